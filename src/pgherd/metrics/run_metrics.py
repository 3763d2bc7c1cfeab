"""OpenMetrics families of a run apart from its samples: run, trial and phase, progress of drivers, results. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pgherd.metrics.guests import EMULATED as EMULATED_METRIC
from pgherd.metrics.openmetrics import DATABASE_LABELS, Family, Sample, named, target_labels
from pgherd.model.deployment import Deployment
from pgherd.model.device_io import DeviceView
from pgherd.model.load import Load
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord

_TARGET_LABELS = ("target", *DATABASE_LABELS)
_PHASE_LABELS = ("trial", "number", "phase", *_TARGET_LABELS)

RUN = Family(
    "pgherd_run", "info", "The run: its study, the host's name and cores, versions", "", ("study", "pgherd", "postgres", "kernel", "cores")
)
TRIAL = Family("pgherd_trial", "info", "The running trial", "", ("trial", "study", "point", "repeat", "reason"))
PHASE = Family(
    "pgherd_phase",
    "info",
    "The running phase, and its part: warm-up or measured period",
    "",
    ("trial", "study", "point", "repeat", "number", "phase", "part", "load"),
)
TRIAL_PARAMETER = Family(
    "pgherd_trial_parameter", "gauge", "A coordinate of the running trial, such as its number of databases", "", ("name",)
)
TRIAL_START = Family("pgherd_trial_start_time_seconds", "gauge", "Start of the running trial, seconds since the epoch", "seconds")
TRIAL_PLANNED = Family("pgherd_trial_planned_seconds", "gauge", "Planned duration of all phases of the running trial", "seconds")
TRIALS_REMAINING = Family("pgherd_trials_remaining", "gauge", "Proposed trials that have not ended, including the running one")
TRIALS = Family("pgherd_trials_finished", "counter", "Finished trials: clean, tainted or failed", "", ("result",))
CHECKS = Family("pgherd_checks", "counter", "Checks of the finished trials by result", "", ("check", "result"))
OBJECTIVE = Family(
    "pgherd_objective_limit_seconds", "gauge", "Limit of a latency objective of the run, such as p99_10ms", "seconds", ("objective",)
)
CAPACITY = Family(
    "pgherd_objective_capacity",
    "gauge",
    "Largest number of databases, or rate in transactions per second, that keeps the objectives: value, and low and high of its interval",
    "",
    ("unit", "statistic"),
)

DRIVER_TRANSACTIONS = Family(
    "pgherd_driver_transactions", "counter", "Transactions by the driver's progress lines, warm-up included", "", _TARGET_LABELS
)
DRIVER_FAILED = Family(
    "pgherd_driver_failed_transactions", "counter", "Failed transactions by the driver's progress lines", "", _TARGET_LABELS
)
DRIVER_SKIPPED = Family(
    "pgherd_driver_skipped_transactions", "counter", "Open loop: transactions skipped because they were late", "", _TARGET_LABELS
)
DRIVER_LATENCY = Family("pgherd_driver_latency_seconds", "gauge", "Mean latency of the driver's last second", "seconds", _TARGET_LABELS)
DRIVER_LAG = Family(
    "pgherd_driver_lag_seconds", "gauge", "Open loop: mean schedule lag of the driver's last second", "seconds", _TARGET_LABELS
)

RESULT_TRANSACTIONS = Family(
    "pgherd_result_transactions",
    "gauge",
    "Transactions of a target in the common window of a phase of a finished trial",
    "",
    _PHASE_LABELS,
)
RESULT_WINDOW = Family("pgherd_result_window_seconds", "gauge", "Length of the common window of that phase", "seconds", _PHASE_LABELS)
RESULT_FAILED = Family("pgherd_result_failed_transactions", "gauge", "Failed transactions in that common window", "", _PHASE_LABELS)
RESULT_LATENCY = Family(
    "pgherd_result_latency_seconds",
    "gauge",
    "Latency in the common window of that phase by statistic",
    "seconds",
    (*_PHASE_LABELS, "statistic"),
)
RESULT_LATE = Family(
    "pgherd_result_late_transactions",
    "gauge",
    "Logged transactions of a target beyond the limit of a latency objective in the common window of that phase",
    "",
    (*_PHASE_LABELS, "objective"),
)
RESULT_LOGGED = Family(
    "pgherd_result_logged_transactions",
    "gauge",
    "Logged transactions of a target with a latency objective in that window",
    "",
    _PHASE_LABELS,
)
RUN_TRANSACTIONS = Family(
    "pgherd_run_transactions", "counter", "Transactions in the common windows of all finished trials", "", _TARGET_LABELS
)
DEVICE = Family(
    "pgherd_device", "info", "A block device used by the servers, and the kinds of their files on it", "", ("device", "number", "roles")
)

SAMPLER_FAILURES = Family(
    "pgherd_sampler_failures", "counter", "Failed readings of the running trial, among those that were parsed", "", ("sampler",)
)
EXPORTER_CPU = Family("pgherd_exporter_cpu_seconds", "counter", "CPU time used to answer scrapes", "seconds")
EXPORTER_LAST = Family("pgherd_exporter_last_collection_seconds", "gauge", "Duration of the last collection", "seconds")

_PERFORMANCE = (
    DRIVER_TRANSACTIONS, DRIVER_FAILED, DRIVER_SKIPPED, DRIVER_LATENCY, DRIVER_LAG, RESULT_TRANSACTIONS, RESULT_WINDOW, RESULT_FAILED,
    RESULT_LATENCY, RESULT_LATE, RESULT_LOGGED, RUN_TRANSACTIONS,
)  # fmt: skip
EMULATED = {
    family: replace(
        family,
        name=family.name.replace("pgherd_", "pgherd_emulated_", 1),
        help=f"Emulated guests, not comparable with any platform: {family.help[0].lower()}{family.help[1:]}",
    )
    for family in _PERFORMANCE
}
"""Family of drivers' counts → its family for emulated processors, so that a query never mixes the two."""

FAMILIES = (
    RUN, TRIAL, PHASE, TRIAL_PARAMETER, TRIAL_START, TRIAL_PLANNED, TRIALS_REMAINING, TRIALS, CHECKS, OBJECTIVE, CAPACITY,
    DRIVER_TRANSACTIONS, DRIVER_FAILED, DRIVER_SKIPPED, DRIVER_LATENCY, DRIVER_LAG, RESULT_TRANSACTIONS, RESULT_WINDOW, RESULT_FAILED,
    RESULT_LATENCY, RESULT_LATE, RESULT_LOGGED, RUN_TRANSACTIONS, DEVICE, SAMPLER_FAILURES, EXPORTER_CPU, EXPORTER_LAST,
    *EMULATED.values(),
)  # fmt: skip
"""All families. An export leaves out those in ``LIVE_ONLY``."""
LIVE_ONLY = (TRIALS_REMAINING, SAMPLER_FAILURES, EXPORTER_CPU, EXPORTER_LAST)

Labels = Mapping[str, str]


def host_name(record: RunRecord, host: str = "local") -> str:
    """Return the label of a deployment's host: its hostname if it is unique in the run, otherwise ``host``.

    In a run on several hosts, ``local`` is no single host and gives ''.
    """
    facts = record.hosts.get(host)
    if facts is None:
        return "" if host == "local" else host
    unique = sum(other.hostname == facts.hostname for other in record.hosts.values()) == 1
    return facts.hostname if unique and facts.hostname else host


def common_labels(record: RunRecord, host: str = "local") -> dict[str, str]:
    """Return the labels of every series."""
    return {"run": record.run, "host": host_name(record, host)}


class MetricLabels:
    """Families and labels of a run's series, each computed once. Before ``set_hosts``, all containers are on this host."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._hosts: dict[str, str] = {}
        self._cache: dict[tuple[str, str], tuple[Family, Labels] | None] = {}

    def set_deployment(self, deployment: Deployment) -> None:
        """Store the hosts of a deployment's containers."""
        self.set_hosts({container.name: host.name for host, container in deployment.containers()})

    def set_hosts(self, hosts: Mapping[str, str]) -> None:
        """Store the host of each of these containers. It may differ from the previous one."""
        if any(self._hosts.get(container, host) != host for container, host in hosts.items()):
            self._cache.clear()
        self._hosts |= hosts

    def series(self, entity: str, metric: str) -> tuple[Family, Labels] | None:
        """Return the family and all labels of an entity's metric, or None for an unknown kind of entity."""
        key = (entity, metric)
        if key not in self._cache:
            series = named(entity, metric, self._record.hosts)
            if series is not None:
                family, labels = series
                host = labels.get("host") or self._hosts.get(labels.get("container", ""), "local")
                series = family, {**labels, **common_labels(self._record, host)}
            self._cache[key] = series
        return self._cache[key]


def emulated(phase: PhaseResult, target: str) -> bool:
    """Return True if the target's guest had emulated processors in the phase."""
    return phase.metrics.get(f"guest:{target_labels(target)['container']}", {}).get(EMULATED_METRIC) == 1


def _renamed_if(emulated: bool, samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield drivers' counts, with the families for emulated processors if ``emulated``."""
    for sample in samples:
        yield sample._replace(family=EMULATED[sample.family]) if emulated else sample


def run_info(record: RunRecord) -> Iterator[Sample]:
    """Yield one sample for each host of the run."""
    for name, facts in record.hosts.items():
        versions = ", ".join(sorted(set(record.postgres.values())))
        info = {"study": record.study, "pgherd": record.pgherd, "postgres": versions, "kernel": facts.kernel, "cores": f"{facts.cores:g}"}
        yield Sample(RUN, {**common_labels(record, name), **info}, 1.0)


def objective_limits(record: RunRecord) -> Iterator[Sample]:
    """Yield the limit of each latency objective of the run."""
    for objective in record.objectives:
        yield Sample(OBJECTIVE, {**common_labels(record), "objective": objective.key}, objective.limit_ms / 1000)


def capacity_samples(record: RunRecord, t: float | None) -> Iterator[Sample]:
    """Yield what a finished search by objective found, without an end that its interval lacks."""
    found = record.analysis.findings.get("capacity") if record.objectives and record.analysis is not None else None
    if found is None:
        return
    for statistic, value in {"value": found.value, "low": found.low, "high": None if found.is_open else found.high}.items():
        if value is not None:
            yield Sample(CAPACITY, {**common_labels(record), "unit": found.unit, "statistic": statistic}, value, t)


def point_text(point: Mapping[str, int | float | str]) -> str:
    """Return a point as text: ``databases=4,vcpus=2``."""
    return ",".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in sorted(point.items()))


def load_text(loads: Iterable[Load]) -> str:
    """Return a phase's loads as text, equal ones together: ``4 × pgbench select-only, 8 clients``."""
    counts = Counter(_load_text(load) for load in loads)
    return "; ".join(f"{n} × {text}" for text, n in counts.items()) or "idle"


def _load_text(load: Load) -> str:
    scripts = "+".join(script.name or script.source.rpartition("/")[2].removeprefix("builtin:") for script in load.scripts)
    options = " ".join(f"{name}={value}" for name, value in sorted(load.options.items())) if not load.scripts else ""
    rate = f", {load.rate:g}/s" if load.rate is not None else ""
    clients = f", {load.clients} client{'' if load.clients == 1 else 's'}" if load.scripts else ""
    return f"{load.driver} {scripts or options}".strip() + clients + rate


class RunTotals:
    """Totals over the finished trials of a run. Each trial must be added once."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._base = common_labels(record)
        self._trials: Counter[str] = Counter({"clean": 0, "tainted": 0, "failed": 0})
        self._checks: Counter[tuple[str, str]] = Counter()
        self._transactions: dict[tuple[str, bool], float] = {}

    def add(self, result: TrialResult) -> None:
        self._trials["failed" if result.error else "tainted" if result.tainted else "clean"] += 1
        for check in result.checks:
            self._checks[check.name, check.result] += 1
        for phase in result.phases:
            for target in phase.targets:
                key = (target.target, emulated(phase, target.target))
                self._transactions[key] = self._transactions.get(key, 0.0) + target.transactions

    def samples(self, t: float | None = None) -> Iterator[Sample]:
        """Yield the counters at an instant."""
        for result, n in self._trials.items():
            yield Sample(TRIALS, {**self._base, "result": result}, n, t)
        for (check, result), n in self._checks.items():
            yield Sample(CHECKS, {**self._base, "check": check, "result": result}, n, t)
        for (target, by_emulation), transactions in self._transactions.items():
            labels = {**target_common_labels(self._record, target), **target_labels(target)}
            yield from _renamed_if(by_emulation, [Sample(RUN_TRANSACTIONS, labels, transactions, t)])


def target_common_labels(record: RunRecord, target: str) -> dict[str, str]:
    """Return the labels ``run`` and ``host`` of a target.

    A path starts with the name of its host, and a host may be a target itself. Other targets belong to this host.
    """
    host, slash, _ = target.partition("/")
    return common_labels(record, host if slash or host in record.hosts else "local")


def result_samples(record: RunRecord, result: TrialResult, t: float | None) -> Iterator[Sample]:
    """Yield the results of one trial at an instant."""
    for number, phase in enumerate(result.phases):
        for target in phase.targets:
            phase_labels = {"trial": result.id, "number": str(number + 1), "phase": phase.phase}
            labels = {**target_common_labels(record, target.target), **phase_labels, **target_labels(target.target)}
            yield from _renamed_if(emulated(phase, target.target), _target_samples(phase, target, labels, t))
    yield from _devices(record, result, t)


def _target_samples(phase: PhaseResult, target: TargetResult, labels: Labels, t: float | None) -> Iterator[Sample]:
    yield Sample(RESULT_TRANSACTIONS, labels, target.transactions, t)
    yield Sample(RESULT_WINDOW, labels, phase.seconds, t)
    yield Sample(RESULT_FAILED, labels, target.failed, t)
    latency = target.latency
    statistics = {"mean": latency.mean, "p50": latency.p50, "p95": latency.p95, "p99": latency.p99, "max": latency.maximum}
    for statistic, value in statistics.items():
        if value is not None:
            yield Sample(RESULT_LATENCY, {**labels, "statistic": statistic}, value / 1000, t)
    for name, value in target.values.items():
        if name == "logged_tx":
            yield Sample(RESULT_LOGGED, labels, value, t)
        elif name.startswith("late_"):
            yield Sample(RESULT_LATE, {**labels, "objective": name.removeprefix("late_").removesuffix("_tx")}, value, t)


def _devices(record: RunRecord, result: TrialResult, t: float | None) -> Iterator[Sample]:
    numbers = set()
    for phase in result.phases:
        for device in phase.io.devices if phase.io is not None else ():
            if device.number not in numbers:
                numbers.add(device.number)
                host, name, number = _device(record, device)
                roles = ", ".join(sorted(device.roles))
                yield Sample(DEVICE, {**common_labels(record, host), "device": name, "number": number, "roles": roles}, 1.0, t)


def _device(record: RunRecord, device: DeviceView) -> tuple[str, str, str]:
    """Return host, name and number of a device. With several hosts, name and number are prefixed with the host."""
    host, _, name = device.name.partition("/")
    if name and host in record.hosts:
        return host, name, device.number.removeprefix(f"{host}/")
    return "local", device.name, device.number


class DriverTotals:
    """Progress of one target's drivers, summed over the run. Each line counts its rate times the time since the line before."""

    def __init__(self, labels: Labels, emulated: bool = False) -> None:
        """Start at zero, with these labels of all series. ``emulated`` selects the families for emulated processors."""
        self._labels, self._emulated = labels, emulated
        self._before: float | None = None
        self._transactions = self._failed = self._skipped = 0.0
        self._at = 0.0
        self._latency: float | None = None
        self._lag: float | None = None

    def begin(self) -> None:
        """Start another driver: its first line covers one second."""
        self._before = None

    def add_line(self, at: float, tps: float, latency: float, failed: int, lag: float | None, skipped: int) -> None:
        """Add one line of progress.

        Args:
            at: the end of the line's interval. A driver's first interval is one second long, as in pgbench.
            tps: transactions per second.
            latency: mean latency in milliseconds.
            failed: number of failed transactions.
            lag: mean schedule lag in milliseconds.
            skipped: number of skipped transactions.
        """
        self._transactions += tps * (1.0 if self._before is None else max(0.0, at - self._before))
        self._failed += failed
        self._skipped += skipped
        self._before = self._at = at
        self._latency, self._lag = latency / 1000, None if lag is None else lag / 1000

    def samples(self) -> Iterator[Sample]:
        """Yield the values of the last line, or nothing before the first."""
        return _renamed_if(self._emulated, self._samples())

    def _samples(self) -> Iterator[Sample]:
        if self._latency is None:
            return
        yield Sample(DRIVER_TRANSACTIONS, self._labels, self._transactions, self._at)
        yield Sample(DRIVER_FAILED, self._labels, self._failed, self._at)
        yield Sample(DRIVER_SKIPPED, self._labels, self._skipped, self._at)
        yield Sample(DRIVER_LATENCY, self._labels, self._latency, self._at)
        if self._lag is not None:
            yield Sample(DRIVER_LAG, self._labels, self._lag, self._at)
