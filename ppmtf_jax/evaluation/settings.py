"""The metrics and attacks of an evaluation, and their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ppmtf_jax.attacks.registry import ATTACKS
from ppmtf_jax.data.measurement import Comparison, Interpretation, Measurement, MetricInfo
from ppmtf_jax.errors import InputError, Problem
from ppmtf_jax.evaluation.registry import METRICS
from ppmtf_jax.settings import Settings, build_settings


class ConfiguredMeasurement(NamedTuple):
    """A metric or attack with its settings, and the quantities that it gives at these settings."""

    measurement: Measurement
    settings: Any
    quantities: list[MetricInfo]

    @property
    def names(self) -> list[str]:
        """Names of the quantities."""
        return [each.name for each in self.quantities]

    def applies(self, comparison: Comparison) -> bool:
        """Whether the sets have the measured data, such as friendships."""
        applies = self.measurement.applies
        return applies is None or applies(comparison)

    def measured(self, comparison: Comparison) -> dict[str, float]:
        """The numbers of a trace set, by name."""
        return self._by_name(self.measurement.measure(comparison, self.settings))

    def uniform(self, comparison: Comparison) -> dict[str, float]:
        """The exact numbers of uniform traces; empty where they are not known."""
        uniform = self.measurement.uniform
        return self._by_name(uniform(comparison, self.settings)) if uniform else {}

    def readings(self, comparison: Comparison) -> dict[str, Interpretation]:
        """How to read the numbers, by name, from the comparison of the training set."""
        reading = self.measurement.reading
        found = reading(comparison, self.settings) if reading else [Interpretation()] * len(self.quantities)
        return dict(zip(self.names, found, strict=True))

    def _by_name(self, values: Sequence[float]) -> dict[str, float]:
        return {name: float(value) for name, value in zip(self.names, values, strict=True)}


@dataclass(frozen=True)
class EvaluationSettings(Settings, subject="evaluation"):
    """The metrics and attacks of an evaluation, and their settings.

    Parameters
    ----------
    attacks : bool
        Run the attacks too; then the users of the sets matter.
    settings : dict
        Settings of single metrics and attacks by their names in `METRICS` and `ATTACKS`, each a mapping.

    Raises
    ------
    InputError
        A metric or attack is unknown, or refuses a setting; the error lists all of them.

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
                problems += _refused(METRICS[name] if name in METRICS else ATTACKS[name], values)
        return problems

    def measurements(self) -> list[ConfiguredMeasurement]:
        """The metrics and, if wanted, the attacks, at these settings; refuses two quantities of the same name."""
        found = []
        for measurement in [*METRICS.values(), *(ATTACKS.values() if self.attacks else ())]:
            settings = build_settings(measurement.settings, self.settings.get(measurement.name, {}), measurement.name)
            found.append(ConfiguredMeasurement(measurement, settings, measurement.described(settings)))
        names = [name for each in found for name in each.names]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            problem = Problem("quantities of different names", f"{', '.join(repeated)} more than once")
            raise InputError("metrics and attacks", [problem])
        return found

    def quantities(self) -> dict[str, MetricInfo]:
        """The quantities that `evaluate` can give, by name, in order; some need sets with friendships or categories."""
        return {quantity.name: quantity for each in self.measurements() for quantity in each.quantities}


def _refused(measurement: Measurement, values: Mapping[str, Any]) -> list[str]:
    try:
        build_settings(measurement.settings, values, measurement.name)
    except InputError as error:
        return [f"{measurement.name}: {problem}" for problem in error.problems]
    return []
