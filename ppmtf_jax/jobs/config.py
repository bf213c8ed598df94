"""The configuration of a job: a TOML file with a table for each step."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ppmtf_jax.datasets.registry import DATA_SETS
from ppmtf_jax.errors import InputError, Message, Problem, Setting, collecting, raise_any
from ppmtf_jax.evaluation.evaluation import EvaluationSettings
from ppmtf_jax.privacy.own_test import TestSettings, settings_kind
from ppmtf_jax.privacy.plausible_deniability import PrivacyTestSettings
from ppmtf_jax.privacy.release_plan import ReleaseSettings
from ppmtf_jax.runtime.files import PathLike
from ppmtf_jax.settings import build_settings, input_paths
from ppmtf_jax.streams import check_seed
from ppmtf_jax.synthesizers.registry import DEFAULT_SYSTEM, SYNTHESIZERS
from ppmtf_jax.synthesizers.synthesis import SynthesisSettings

# In the order of the fields of `JobConfig`. The settings of [import] depend on the source, those of [fit] and [test] on
# the system.
TABLES = {
    "synthesize": SynthesisSettings,
    "test": PrivacyTestSettings,
    "release": ReleaseSettings,
    "evaluate": EvaluationSettings,
}
PUBLIC_PLACES = Message(
    "Choose a table of places from elsewhere (",
    Setting("place_table"),
    "), or the cells of a grid; unless there is a table, set ",
    Setting("min_users_per_place", 1),
)
RELEASE_FIELDS = [each.name for each in fields(ReleaseSettings)]


@dataclass(frozen=True)
class JobConfig:
    """A whole job: what to import, how to fit and test, and where to write."""

    out: Path
    source: str
    importing: Any
    fitting: Any  # the synthesizer's settings
    system: str = DEFAULT_SYSTEM
    # None: drawn from the operating system before the first step, and kept with the private files.
    seed: int | None = None
    synthesizing: SynthesisSettings = SynthesisSettings()
    testing: TestSettings = PrivacyTestSettings()
    releasing: ReleaseSettings = ReleaseSettings()
    evaluating: EvaluationSettings = EvaluationSettings()
    # Other synthesizers, by name. They are fitted to the same data, and their traces are tested in the same way.
    compared: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, file: PathLike) -> JobConfig:
        """Read a TOML file; all that is wrong with it is listed in one `InputError`.

        Paths in it are relative to the file; `out` is by default the file's name without its suffix.
        """
        file = Path(file)
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8-sig"))
        except FileNotFoundError as error:
            raise InputError(str(file), [Problem("a configuration file", "no such file")]) from error
        except (OSError, ValueError) as error:
            raise InputError(str(file), [Problem("a readable TOML file", str(error))]) from error
        return cls.from_mapping(content, file.parent, default_out=file.stem, subject=str(file))

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], base: Path, *, default_out: str, subject: str) -> JobConfig:
        """Build from the tables of a configuration file."""
        names = ["import", "fit", *TABLES]
        expected = f"out, seed, {', '.join(f'[{name}]' for name in names)}, [[compare]] and nothing else"
        unknown = content.keys() - {"out", "seed", "compare", *names}
        problems: list[Problem | str] = [Problem(expected, repr(name)) for name in sorted(unknown)]
        out, seed = content.get("out", default_out), content.get("seed")
        if not isinstance(out, str):
            problems.append(Problem("out as text", repr(out)))
        if seed is not None:
            with collecting(problems, "seed: "):
                check_seed(seed)

        tables: dict[str, dict[str, Any]] = {}
        for name in names:
            table = content.get(name, {})
            if isinstance(table, Mapping):
                tables[name] = dict(table)
            else:
                problems.append(Problem(f"[{name}] as a table", repr(table)))
        source = tables.get("import", {}).pop("source", None)
        system = tables.get("fit", {}).pop("system", DEFAULT_SYSTEM)
        kinds: dict[str, Any] = dict(TABLES)
        built: dict[str, Any] = {}
        with collecting(problems, "[import] "):
            if source is None:
                choices = " or ".join(map(repr, DATA_SETS))
                raise InputError("import", [Problem(f"source as {choices}", "nothing")])
            kinds["import"] = DATA_SETS[source].settings
        with collecting(problems, "[fit] "):
            kinds["fit"] = SYNTHESIZERS[system].settings
            kinds["test"] = settings_kind(system)
        for name, table in tables.items():
            if name not in kinds:
                continue
            with collecting(problems, f"[{name}] "):
                built[name] = build_settings(kinds[name], table, name)
        compared = _compared(content.get("compare", []), system, problems)
        if system in SYNTHESIZERS and SYNTHESIZERS[system].of_nobody:
            # Refuse these settings now, because the fit would spend privacy budget.
            proven = SYNTHESIZERS[system].has_proof
            refused = RELEASE_FIELDS if proven else [each for each in RELEASE_FIELDS if each != "min_users_per_place"]
            for name, setting in (("synthesize", "traces_per_user"), *(("release", each) for each in refused)):
                if setting in tables.get(name, {}):
                    problems.append(Problem(f"no {setting} in [{name}]: {system} knows no users", "one"))
            if proven and not getattr(built.get("import"), "places_are_public", True):
                found = "places, or events at them, that depend on who visits them"
                problems.append(Problem("[import] onto public places", found, way_out=PUBLIC_PLACES))
        raise_any(subject, problems)
        importing, fitting = (_moved(built[name], base) for name in ("import", "fit"))
        compared = {name: _moved(settings, base) for name, settings in compared.items()}
        steps = [built[name] for name in TABLES]
        return cls(base / out, source, importing, fitting, system, seed, *steps, compared=compared)


def _moved(settings: Any, base: Path) -> Any:
    """The settings, with `base` put before the files and folders that they name."""
    return replace(settings, **{name: base / path for name, path in input_paths(settings).items()})


def _compared(tables: Any, system: str, problems: list[Problem | str]) -> dict[str, Any]:
    """Settings of each [[compare]]; wrong settings are added to `problems`."""
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) and "system" in table for table in tables):
        problems.append(Problem("[[compare]] with a system in each", repr(tables)))
        return {}
    found: dict[str, Any] = {}
    for table in tables:
        name, settings = table["system"], {key: value for key, value in table.items() if key != "system"}
        if name == system or name in found:
            problems.append(Problem("[[compare]] of another system each", repr(name)))
            continue
        found[name] = None  # so that a second table of this system is told, also where the first is refused
        with collecting(problems, f"[[compare]] {name}: "):
            found[name] = build_settings(SYNTHESIZERS[name].settings, settings, name)
    return found
