"""Metrics of a comparison: how to extract each from a trial, its unit, and the words for more and less of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pgherd.model.analysis import Finding
from pgherd.model.result import DATABASE, PhaseResult, TrialResult, counted
from pgherd.model.trial import Trial
from pgherd.study import trial_schedule
from pgherd.study.comparison import variants
from pgherd.study.comparison.options import Variant
from pgherd.study.observation import container_sum, host_device_sum, host_sum, median_latency

POINT_MARK = "@"
"""Separator between a metric and the single point that it is taken from: ``throughput@databases=4``."""
DEFAULT_METRIC = "throughput"
DEVICE_IO = "device_bytes_per_tx"
MB = 2**20


@dataclass(frozen=True)
class ComparedMetric:
    """Metric that variants are compared by.

    Attributes:
        better_direction: higher or lower. '' if unknown.
        words: descriptions of a variant with more, and with less of the metric.
        extract: function that extracts the value from a trial.
        absent: reason why a trial may not have it.
        minimum: value below which it cannot be compared.
        rare: no warning if it was not measured.
    """

    name: str
    label: str
    unit: str
    better_direction: Literal["higher", "lower", ""]
    words: tuple[str, str]
    extract: Callable[[TrialResult], float | None]
    absent: str
    minimum: float = 0.0
    rare: bool = False


def _throughput(result: TrialResult) -> float | None:
    return trial_schedule.throughput(result) if any(phase.targets for phase in result.phases) else None


def _new_orders(result: TrialResult) -> float | None:
    """Return the mean over the phases."""
    seconds = math.fsum(phase.seconds for phase in result.phases)
    parts = [(phase.nopm, phase.seconds) for phase in result.phases]
    if seconds <= 0 or any(rate is None for rate, _ in parts):
        return None
    return math.fsum(rate * length for rate, length in parts if rate is not None) / seconds


def _per_transaction(of_phase: Callable[[Trial, int, PhaseResult], float | None]) -> Callable[[TrialResult], float | None]:
    """Return a function that converts a rate per second into an amount per transaction. ``of_phase`` gets the number of a phase too."""

    def extract(result: TrialResult) -> float | None:
        transactions = sum(target.transactions for phase in result.phases for target in phase.targets)
        parts = [of_phase(result.trial, number, phase) for number, phase in enumerate(result.phases)]
        if transactions <= 0 or not parts or any(part is None for part in parts):
            return None
        return sum(part * phase.seconds for part, phase in zip(parts, result.phases, strict=True) if part is not None) / transactions

    return extract


def _cpu(trial: Trial, number: int, phase: PhaseResult) -> float | None:
    used = container_sum(phase, "cpu.usage")
    return None if used is None else 1000 * used


def _wal(trial: Trial, number: int, phase: PhaseResult) -> float | None:
    """Return the WAL bytes per second of all measured servers under load."""
    values = [m["wal.bytes"] for m in _loaded_servers(phase) if "wal.bytes" in m]
    return math.fsum(values) if values else None


def _loaded_servers(phase: PhaseResult) -> list[Mapping[str, float]]:
    """Return the metrics of the servers under load. Idle servers are not compared."""
    names = {"server:" + "/".join(target.target.split("/")[1:3]) for target in phase.targets if target.target.count("/") == 3}
    return [m for entity, m in phase.metrics.items() if entity in names]


def _memory(result: TrialResult) -> float | None:
    seconds = math.fsum(phase.seconds for phase in result.phases)
    parts = [_with_reserved(phase, container_sum(phase, "memory.usage")) for phase in result.phases]
    if seconds <= 0 or not parts or any(part is None for part in parts):
        return None
    return sum(part * phase.seconds for part, phase in zip(parts, result.phases, strict=True) if part is not None) / seconds / MB


def _with_reserved(phase: PhaseResult, charged: float | None) -> float | None:
    """Add the servers' reserved huge pages, which the kernel does not charge to a cgroup."""
    pages = math.fsum(m.get("pages.reserved", 0.0) for m in _loaded_servers(phase))
    return None if charged is None else charged + pages


def _sampled(percent: int) -> str:
    return f"fewer than ten sampled transactions beyond p{percent}"


METRICS: Mapping[str, ComparedMetric] = {
    metric.name: metric
    for metric in (
        ComparedMetric("throughput", "throughput", "tps", "higher", ("faster", "slower"), _throughput, "nothing was loaded"),
        ComparedMetric(
            "nopm",
            "new orders per minute",
            "new orders/min",
            "higher",
            ("faster", "slower"),
            _new_orders,
            "the load has no orders",
            rare=True,
        ),
        ComparedMetric(
            "cpu_per_tx",
            "CPU per transaction",
            "ms",
            "lower",
            ("higher cost", "lower cost"),
            _per_transaction(_cpu),
            "the container's CPU was not measured",
        ),
        ComparedMetric("p50", "median latency", "ms", "lower", ("slower", "faster"), lambda r: median_latency(r, "p50"), _sampled(50)),
        ComparedMetric("p95", "p95 latency", "ms", "lower", ("slower", "faster"), lambda r: median_latency(r, "p95"), _sampled(95)),
        ComparedMetric("p99", "p99 latency", "ms", "lower", ("slower", "faster"), lambda r: median_latency(r, "p99"), _sampled(99)),
        ComparedMetric(
            "memory", "memory", "MB", "lower", ("larger", "smaller"), _memory, "this runtime does not measure a container's memory"
        ),
        ComparedMetric(
            "wal_per_tx",
            "WAL per transaction",
            "bytes",
            "lower",
            ("more WAL", "less WAL"),
            _per_transaction(_wal),
            "the servers' statistics could not be read",
            minimum=1.0,
        ),
        ComparedMetric(
            DEVICE_IO,
            "device I/O per transaction",
            "bytes",
            "lower",
            ("more I/O", "less I/O"),
            _per_transaction(lambda trial, number, phase: host_device_sum(trial, number, phase, "read_bytes", "write_bytes")),
            "the devices of the servers' host were not measured",
            minimum=16.0,
        ),
        ComparedMetric(
            "context_switches_per_tx",
            "context switches per transaction",
            "switches",
            "lower",
            ("more switches", "fewer switches"),
            _per_transaction(lambda trial, number, phase: host_sum(trial, number, phase, "context_switches")),
            "the context switches of the servers' host were not measured",
        ),
    )
}
"""Metrics that a comparison takes from every trial, in the order of the report.

I/O covers all block devices of the servers' host and context switches cover the whole host, so both include other programs.
"""

_Better = tuple[Literal["higher", "lower", ""], tuple[str, str]]
_VOLUME_METRICS: Mapping[str, _Better] = {
    "_iops.": ("higher", ("faster", "slower")),
    "_bandwidth.": ("higher", ("faster", "slower")),
    "_latency.": ("lower", ("slower", "faster")),
}
"""Better direction and words of a volume study's metrics, by suffix of the name. A volume or host follows the dot."""


def metric(name: str, unit: str = "") -> ComparedMetric:
    """Return the metric of a name. Names outside ``METRICS`` are a study's findings or a probe's readings.

    For those, the better direction is known only for volumes (``random_read_iops``, ``qd1_write_latency.data``).
    """
    base, at, point = name.partition(POINT_MARK)
    known = METRICS.get(base)
    if known is None:
        better, words = next(
            (direction for suffix, direction in _VOLUME_METRICS.items() if suffix in f"{base}."), ("", ("higher", "lower"))
        )
        return ComparedMetric(name, name.replace("_", " ").replace("iops", "IOPS"), unit, better, words, lambda result: None, "")
    if not at:
        return known
    return replace(known, name=name, label=f"{known.label} at {point}")


def metric_for(name: str, results: Sequence[TrialResult], unit: str = "") -> ComparedMetric:
    """Return the metric of a name for these trials. Their drivers determine the unit of work in its label and unit."""
    known, work = metric(name, unit), counted(results)
    if work == DATABASE or name.partition(POINT_MARK)[0] not in METRICS:
        return replace(known, unit=work.unit) if known.unit == DATABASE.unit else known
    label, absent = (text.replace(DATABASE.many, work.many).replace(DATABASE.one, work.one) for text in (known.label, known.absent))
    return replace(known, unit=work.unit if known.unit == DATABASE.unit else known.unit, label=label, absent=absent)


def metric_values(results: Sequence[TrialResult], only: str | None = None, common: Collection[str] | None = None) -> dict[str, float]:
    """Return the measured metrics of one variant's trials in one block, by name. ``only`` limits them to one metric.

    With several points, each metric has a value per point, and their geometric mean under the plain name. The mean skips points that are
    not ``common`` to all variants (``variants.common_points``), and those at a fixed rate unless all have one, because a fixed rate gives
    the same throughput on any variant.
    """
    measured: dict[str, float] = {}
    by_point = common is not None or len(results) > 1
    compared = [common is None or variants.point_text(result.trial) in common for result in results]
    overall = [one and not at_fixed_rate(result.trial) for one, result in zip(compared, results, strict=True)]
    overall = overall if any(overall) else compared
    selected = [metric for metric in METRICS.values() if only is None or metric.name == only.partition(POINT_MARK)[0]]
    for metric in selected:
        values = [metric.extract(result) if result.error is None else None for result in results]
        if by_point:
            names = [f"{metric.name}{POINT_MARK}{variants.point_text(result.trial)}" for result in results]
            measured |= {name: value for name, value in zip(names, values, strict=True) if value is not None}
        included = [value for value, counts in zip(values, overall, strict=True) if counts]
        if included and None not in included:
            measured[metric.name] = _geometric_mean([value for value in included if value is not None])
    for result in results:
        readings = result.probe if result.error is None else {}
        suffix = f"{POINT_MARK}{variants.point_text(result.trial)}" if by_point else ""
        measured |= {f"{name}{suffix}": value for name, value in readings.items()}
    return measured


def at_fixed_rate(trial: Trial) -> bool:
    """Return True if all loads of a trial have a fixed rate, as in a mix or the idle round trips of a link."""
    loads = [load for phase in trial.phases for load in phase.loads.values()]
    return bool(loads) and all(load.rate is not None or "rate" in load.options for load in loads)


def _geometric_mean(values: Sequence[float]) -> float:
    if len(values) == 1:
        return values[0]
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if min(values) > 0 else 0.0


def study_findings(variant: Variant, results: Sequence[TrialResult]) -> dict[str, Finding]:
    """Return the findings of the variant's study on its trials of one block, without those that have no value.

    A finding with the name of a metric gets the study's name as prefix.
    """
    study, options = variants.study_with_options(variant)
    findings = study.analyse(options, variants.as_study_results(variant, results)).findings
    return {
        (f"{variant.study}.{name}" if name in METRICS else name): finding for name, finding in findings.items() if finding.value is not None
    }
