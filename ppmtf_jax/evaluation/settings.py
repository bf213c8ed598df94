"""The metrics and attacks of an evaluation, and their settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.data.measurement import Comparison, Measurement, MetricInfo
from ppmtf_jax.errors import InputError, Problem, collecting
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.settings import Settings, build_settings


class ConfiguredMeasurement(NamedTuple):
    """A metric or attack with its settings, and the quantities that it gives at these settings."""

    measurement: Measurement
    settings: Any
    quantities: list[MetricInfo]

    def applies(self, comparison: Comparison) -> bool:
        """Whether the sets have the measured data, such as friendships."""
        return self.measurement.applies is None or self.measurement.applies(comparison)

    def by_name(self, function: Callable[[Comparison, Any], Sequence[Any]] | None, comparison: Comparison) -> dict:
        """What a function of the measurement gives for each quantity, by its name; empty without the function."""
        if function is None:
            return {}
        names = [each.name for each in self.quantities]
        return dict(zip(names, function(comparison, self.settings), strict=True))


@dataclass(frozen=True)
class EvaluationSettings(Settings, subject="evaluation"):
    """The metrics and attacks of an evaluation, and their settings.

    Parameters
    ----------
    attacks : bool
        Run the attacks too; they compare the users of the sets.
    settings : dict
        Settings by metric or attack: a mapping for each name in `METRICS` or `ATTACKS`.

    Examples
    --------
    >>> settings = EvaluationSettings(attacks=False, settings={"tp_tv": {"n_top": 10}})
    >>> list(settings.quantities())[:3]
    ['tp_tv', 'tp_tv_top10', 'tm_emd_y']
    """

    attacks: bool = True
    settings: dict = field(default_factory=dict)

    def problems(self) -> list[Problem | str]:
        """Problems for unknown metrics and attacks, and for settings that a metric or attack refuses."""
        problems: list[Problem | str] = []
        for name, values in self.settings.items():
            if name not in METRICS and name not in ATTACKS:
                problems.append(Problem(f"metrics and attacks among {', '.join([*METRICS, *ATTACKS])}", repr(name)))
            elif not isinstance(values, Mapping):
                problems.append(Problem(f"{name} as a table of settings", repr(values)))
            else:
                measurement = METRICS[name] if name in METRICS else ATTACKS[name]
                with collecting(problems, f"{name}: "):
                    build_settings(measurement.settings, values, name)
        return problems

    def measurements(self) -> list[ConfiguredMeasurement]:
        """The metrics and, if wanted, the attacks, at these settings; refuses two quantities of the same name."""
        found = []
        for measurement in [*METRICS.values(), *(ATTACKS.values() if self.attacks else ())]:
            settings = build_settings(measurement.settings, self.settings.get(measurement.name, {}), measurement.name)
            found.append(ConfiguredMeasurement(measurement, settings, measurement.described(settings)))
        n_uses = Counter(quantity.name for each in found for quantity in each.quantities)
        repeated = sorted(name for name, n in n_uses.items() if n > 1)
        if repeated:
            problem = Problem("quantities of different names", f"{', '.join(repeated)} more than once")
            raise InputError("metrics and attacks", [problem])
        return found

    def quantities(self) -> dict[str, MetricInfo]:
        """The quantities that `evaluate` can give, by name, in order; some need sets with friendships or categories."""
        return {quantity.name: quantity for each in self.measurements() for quantity in each.quantities}
