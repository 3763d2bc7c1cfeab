"""What is compared: a trial's metrics, each with its unit and what to call more and less of it. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pgherd.model.finding import Finding
from pgherd.model.result import DATABASE, PhaseResult, TrialResult, counted
from pgherd.study import trial_schedule
from pgherd.study.comparison import variants
from pgherd.study.comparison.options import Variant
from pgherd.study.observation import device_sum, median_latency

POINT_MARK = "@"
"""Stands between a metric and the point at which alone it is taken: ``throughput@databases=4``."""
DEFAULT_METRIC = "throughput"
DEVICE_IO = "io_per_tx"
MB = 2**20


@dataclass(frozen=True)
class ComparedMetric:
    """``words`` are what a variant is called that has more of it, and less. ``absent`` says why a trial may not have it;
    ``least`` is the value below which there is nothing to compare; nobody misses a ``rare`` one where it is not seen."""

    name: str
    label: str
    unit: str
    better: Literal["higher", "lower", ""]
    words: tuple[str, str]
    take: Callable[[TrialResult], float | None]
    absent: str
    least: float = 0.0
    rare: bool = False


def _throughput(result: TrialResult) -> float | None:
    return trial_schedule.throughput(result) if any(phase.targets for phase in result.phases) else None


def _new_orders(result: TrialResult) -> float | None:
    """The mean over the phases' windows."""
    seconds = math.fsum(phase.seconds for phase in result.phases)
    parts = [(phase.notpm, phase.seconds) for phase in result.phases]
    if seconds <= 0 or any(rate is None for rate, _ in parts):
        return None
    return math.fsum(rate * length for rate, length in parts if rate is not None) / seconds


def _per_transaction(of_phase: Callable[[TrialResult, PhaseResult], float | None]) -> Callable[[TrialResult], float | None]:
    """A rate per second of the phases' windows, per transaction."""

    def take(result: TrialResult) -> float | None:
        done = sum(target.transactions for phase in result.phases for target in phase.targets)
        parts = [of_phase(result, phase) for phase in result.phases]
        if done <= 0 or not parts or any(part is None for part in parts):
            return None
        return sum(part * phase.seconds for part, phase in zip(parts, result.phases, strict=True) if part is not None) / done

    return take


def _containers(result: TrialResult, phase: PhaseResult, metric: str) -> float | None:
    """The sum of a metric over the containers under load; None where one of them was not seen."""
    names = {target.target.split("/")[1] for target in phase.targets if target.target.count("/") == 3}
    values = [phase.metrics.get(f"container:{name}", {}).get(metric) for name in names]
    return None if not values or any(value is None for value in values) else math.fsum(value or 0.0 for value in values)


def _cpu(result: TrialResult, phase: PhaseResult) -> float | None:
    used = _containers(result, phase, "cpu.usage")
    return None if used is None else 1000 * used


def _servers(result: TrialResult, phase: PhaseResult) -> float | None:
    """WAL bytes per second of all servers under load that were seen."""
    values = [m["wal.bytes"] for m in _of_loaded(phase) if "wal.bytes" in m]
    return math.fsum(values) if values else None


def _of_loaded(phase: PhaseResult) -> list[Mapping[str, float]]:
    """The metrics of the servers under load: of those that stand idle beside them nothing is compared."""
    names = {"server:" + "/".join(target.target.split("/")[1:3]) for target in phase.targets if target.target.count("/") == 3}
    return [m for entity, m in phase.metrics.items() if entity in names]


def _devices(result: TrialResult, phase: PhaseResult) -> float | None:
    return device_sum(phase, "read_bytes", "write_bytes")


def _memory(result: TrialResult) -> float | None:
    seconds = math.fsum(phase.seconds for phase in result.phases)
    parts = [_with_reserved(phase, _containers(result, phase, "memory.usage")) for phase in result.phases]
    if seconds <= 0 or not parts or any(part is None for part in parts):
        return None
    return sum(part * phase.seconds for part, phase in zip(parts, result.phases, strict=True) if part is not None) / seconds / MB


def _with_reserved(phase: PhaseResult, charged: float | None) -> float | None:
    """With the servers' reserved huge pages, which the kernel charges to no control group."""
    pages = math.fsum(m.get("pages.reserved", 0.0) for m in _of_loaded(phase))
    return None if charged is None else charged + pages


def _sampled(percent: int) -> str:
    return f"fewer than ten sampled transactions lie beyond p{percent}"


METRICS: Mapping[str, ComparedMetric] = {
    metric.name: metric
    for metric in (
        ComparedMetric("throughput", "throughput", "tps", "higher", ("faster", "slower"), _throughput, "nothing was loaded"),
        ComparedMetric(
            "new_orders_per_minute",
            "new orders per minute",
            "new orders/min",
            "higher",
            ("faster", "slower"),
            _new_orders,
            "the load enters no orders",
            rare=True,
        ),
        ComparedMetric(
            "cpu_per_tx",
            "CPU per transaction",
            "ms",
            "lower",
            ("dearer", "cheaper"),
            _per_transaction(_cpu),
            "the container's CPU was not seen",
        ),
        ComparedMetric("p50", "median latency", "ms", "lower", ("slower", "faster"), lambda r: median_latency(r, "p50"), _sampled(50)),
        ComparedMetric("p95", "p95 latency", "ms", "lower", ("slower", "faster"), lambda r: median_latency(r, "p95"), _sampled(95)),
        ComparedMetric("p99", "p99 latency", "ms", "lower", ("slower", "faster"), lambda r: median_latency(r, "p99"), _sampled(99)),
        ComparedMetric(
            "memory", "memory", "MB", "lower", ("larger", "smaller"), _memory, "this runtime does not account for a container's memory"
        ),
        ComparedMetric(
            "wal_per_tx",
            "WAL per transaction",
            "bytes",
            "lower",
            ("more WAL", "less WAL"),
            _per_transaction(_servers),
            "the servers' statistics could not be read",
            least=1.0,
        ),
        ComparedMetric(
            DEVICE_IO,
            "device I/O per transaction",
            "bytes",
            "lower",
            ("more I/O", "less I/O"),
            _per_transaction(_devices),
            "/proc/diskstats shows no device here",
            least=16.0,
        ),
        ComparedMetric(
            "switches_per_tx",
            "context switches per transaction",
            "switches",
            "lower",
            ("more switches", "fewer switches"),
            _per_transaction(lambda result, phase: phase.metrics.get("host", {}).get("ctxt")),
            "the host's context switches were not seen",
        ),
    )
}
"""The metrics that a comparison takes of every trial, in the order in which they are told. I/O is that of all the host's block
devices and context switches are all the host's: other programs' are among them."""

_Better = tuple[Literal["higher", "lower", ""], tuple[str, str]]
_OF_VOLUMES: Mapping[str, _Better] = {
    "_iops.": ("higher", ("faster", "slower")),
    "_bandwidth.": ("higher", ("faster", "slower")),
    "_latency.": ("lower", ("slower", "faster")),
}
"""How a figure of a study of volumes ends (what follows the dot is a volume or a host) → which direction is better, and words."""


def metric(name: str, unit: str = "") -> ComparedMetric:
    """The metric of a name. What is not of ``METRICS`` is a study's own finding or a probe's reading: whether more of it is better
    is known of the figures of volumes only (``random_read_iops``, ``single_write_latency.data``)."""
    base, at, place = name.partition(POINT_MARK)
    known = METRICS.get(base)
    if known is None:
        better, words = next((said for end, said in _OF_VOLUMES.items() if end in f"{base}."), ("", ("higher", "lower")))
        return ComparedMetric(name, name.replace("_", " ").replace("iops", "IOPS"), unit, better, words, lambda result: None, "")
    if not at:
        return known
    return replace(known, name=name, label=f"{known.label} at {place}")


def metric_for(name: str, results: Sequence[TrialResult], unit: str = "") -> ComparedMetric:
    """The metric of a name as it is of these trials: what throughput counts, and what others are told per, depends on their drivers."""
    found, what = metric(name, unit), counted(results)
    if what == DATABASE or name.partition(POINT_MARK)[0] not in METRICS:
        return replace(found, unit=what.unit) if found.unit == DATABASE.unit else found
    label, absent = (text.replace(DATABASE.many, what.many).replace(DATABASE.one, what.one) for text in (found.label, found.absent))
    return replace(found, unit=what.unit if found.unit == DATABASE.unit else found.unit, label=label, absent=absent)


def metric_values(results: Sequence[TrialResult], only: str | None = None) -> dict[str, float]:
    """Metric → value of one arm's trials in one block, those that were seen; ``only`` one of them.

    An arm with several points has each metric at every point, and under the metric's own name their geometric mean: of those points that
    are loaded as fast as they can be, if there are any, since one at a given rate does as much on whatever it is.
    """
    found: dict[str, float] = {}
    overall = [not _at_given_rate(result) for result in results]
    overall = overall if any(overall) else [True] * len(results)
    wanted = [one for one in METRICS.values() if only is None or one.name == only.partition(POINT_MARK)[0]]
    for one in wanted:
        values = [one.take(result) if result.error is None else None for result in results]
        if len(results) > 1:
            found |= {f"{one.name}{POINT_MARK}{_place(result)}": v for result, v in zip(results, values, strict=True) if v is not None}
        whole = [value for value, counts in zip(values, overall, strict=True) if counts]
        if whole and None not in whole:
            found[one.name] = _geometric_mean([value for value in whole if value is not None])
    for result in results:
        readings = result.probe if result.error is None else {}
        suffix = f"{POINT_MARK}{_place(result)}" if len(results) > 1 else ""
        found |= {f"{name}{suffix}": value for name, value in readings.items()}
    return found


def _at_given_rate(result: TrialResult) -> bool:
    """Whether no load of a trial is as fast as it can be: a mix at fixed rates, the trickle by which a link's idle round trips are seen."""
    loads = [load for phase in result.trial.phases for load in phase.loads.values()]
    return bool(loads) and all(load.rate is not None or "rate" in load.options for load in loads)


def _geometric_mean(values: Sequence[float]) -> float:
    if len(values) == 1:
        return values[0]
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if min(values) > 0 else 0.0


def study_findings(arm: Variant, results: Sequence[TrialResult]) -> dict[str, Finding]:
    """The arm's own study's findings on its trials of one block: those with a value, under their name (with the study's before it
    where a metric has the same)."""
    study, options = variants.study_with_options(arm)
    found = study.analyse(options, variants.as_study_results(arm, results)).findings
    return {(f"{arm.study}.{name}" if name in METRICS else name): finding for name, finding in found.items() if finding.value is not None}


def _place(result: TrialResult) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(variants.point_of(result).items()))
