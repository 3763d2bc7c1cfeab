"""What OpenMetrics tells of a run beside its samples: which run, trial and phase it is, what the drivers say, and what came of it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pgherd.metrics import guest_machine
from pgherd.metrics.openmetrics import PLACE, Family, Sample, named, target_labels
from pgherd.model.deployment import Deployment
from pgherd.model.io_view import DeviceView
from pgherd.model.load import Load
from pgherd.model.result import PhaseResult, TargetResult, TrialResult
from pgherd.model.run import RunRecord

_TARGET = ("target", *PLACE)
_OF_PHASE = ("trial", "number", "phase", *_TARGET)

RUN = Family(
    "pgherd_run", "info", "The run: its study, the host's name and cores, versions", "", ("study", "pgherd", "postgres", "kernel", "cores")
)
TRIAL = Family("pgherd_trial", "info", "The trial that runs", "", ("trial", "study", "point", "repeat", "reason"))
PHASE = Family(
    "pgherd_phase",
    "info",
    "The phase that runs, and whether it is in its ramp or its measured part",
    "",
    ("trial", "study", "point", "repeat", "number", "phase", "part", "load"),
)
POINT = Family("pgherd_trial_point", "gauge", "A coordinate of the trial that runs, such as its number of databases", "", ("coordinate",))
TRIAL_START = Family("pgherd_trial_start_time_seconds", "gauge", "When the trial that runs began, seconds since the epoch", "seconds")
TRIAL_PLANNED = Family("pgherd_trial_planned_seconds", "gauge", "What all phases of the trial that runs are planned to take", "seconds")
TRIALS_LEFT = Family("pgherd_trials_left", "gauge", "Trials that are proposed and have not ended, the one that runs included")
TRIALS = Family("pgherd_trials_finished", "counter", "Trials that have ended: clean, tainted or failed", "", ("result",))
VERDICTS = Family("pgherd_verdicts", "counter", "Verdicts on the trials that have ended", "", ("check", "result"))

DRIVER_TRANSACTIONS = Family(
    "pgherd_driver_transactions", "counter", "Transactions by a driver's own progress, once a second; ramps included", "", _TARGET
)
DRIVER_FAILED = Family("pgherd_driver_failed_transactions", "counter", "Transactions that failed, by a driver's own progress", "", _TARGET)
DRIVER_SKIPPED = Family(
    "pgherd_driver_skipped_transactions", "counter", "Transactions that an open loop left out, since they were too late", "", _TARGET
)
DRIVER_LATENCY = Family(
    "pgherd_driver_latency_seconds", "gauge", "Mean latency over the driver's last second of progress", "seconds", _TARGET
)
DRIVER_LAG = Family(
    "pgherd_driver_lag_seconds", "gauge", "Open loop: mean schedule lag over the driver's last second of progress", "seconds", _TARGET
)

RESULT_TRANSACTIONS = Family(
    "pgherd_result_transactions",
    "gauge",
    "What a target's driver counted in the common window of a finished trial's phase",
    "",
    _OF_PHASE,
)
RESULT_WINDOW = Family(
    "pgherd_result_window_seconds", "gauge", "Length of the common window in which that was counted", "seconds", _OF_PHASE
)
RESULT_FAILED = Family("pgherd_result_failed_transactions", "gauge", "Transactions that failed in that window", "", _OF_PHASE)
RESULT_LATENCY = Family(
    "pgherd_result_latency_seconds", "gauge", "Latency in that window by statistic", "seconds", (*_OF_PHASE, "statistic")
)
RUN_TRANSACTIONS = Family(
    "pgherd_run_transactions", "counter", "Transactions in the common windows of all finished trials: the run's totals", "", _TARGET
)
DEVICE = Family(
    "pgherd_device", "info", "A block device below the servers, and which of their files lie on it", "", ("device", "number", "roles")
)

SOURCE_FAILURES = Family(
    "pgherd_source_failures", "counter", "Readings of the trial that runs which failed, as far as they were looked at", "", ("sampler",)
)
EXPORTER_CPU = Family("pgherd_exporter_cpu_seconds", "counter", "CPU time that answering scrapes has cost", "seconds")
EXPORTER_LAST = Family("pgherd_exporter_last_collection_seconds", "gauge", "How long the last collection took", "seconds")
NODE_EXPORTER = Family(
    "pgherd_node_exporter", "info", "A node_exporter was found on this host when the run began", "", ("address", "version")
)

_OF_SPEED = (
    DRIVER_TRANSACTIONS, DRIVER_FAILED, DRIVER_SKIPPED, DRIVER_LATENCY, DRIVER_LAG, RESULT_TRANSACTIONS, RESULT_WINDOW, RESULT_FAILED,
    RESULT_LATENCY, RUN_TRANSACTIONS,
)  # fmt: skip
EMULATED = {
    family: replace(
        family,
        name=family.name.replace("pgherd_", "pgherd_emulated_", 1),
        help=f"In guests whose processors were emulated, which says nothing of any platform: {family.help[0].lower()}{family.help[1:]}",
    )
    for family in _OF_SPEED
}
"""Family of what drivers count → the one in which it stands where processors were emulated: never beside what was measured."""

FAMILIES = (
    RUN, TRIAL, PHASE, POINT, TRIAL_START, TRIAL_PLANNED, TRIALS_LEFT, TRIALS, VERDICTS, DRIVER_TRANSACTIONS, DRIVER_FAILED, DRIVER_SKIPPED,
    DRIVER_LATENCY, DRIVER_LAG, RESULT_TRANSACTIONS, RESULT_WINDOW, RESULT_FAILED, RESULT_LATENCY, RUN_TRANSACTIONS, DEVICE,
    SOURCE_FAILURES, EXPORTER_CPU, EXPORTER_LAST, NODE_EXPORTER, *EMULATED.values(),
)  # fmt: skip
"""All of them; those of ``LIVE_ONLY`` are not in an export."""
LIVE_ONLY = (TRIALS_LEFT, SOURCE_FAILURES, EXPORTER_CPU, EXPORTER_LAST, NODE_EXPORTER)

Labels = Mapping[str, str]


def host_name(record: RunRecord, host: str = "local") -> str:
    """What the host of a deployment is called: by its own name, unless several have that; empty for what is of no single one of several."""
    facts = record.hosts.get(host)
    if facts is None:
        return "" if host == "local" else host
    alone = sum(other.hostname == facts.hostname for other in record.hosts.values()) == 1
    return facts.hostname if alone and facts.hostname else host


def everywhere(record: RunRecord, host: str = "local") -> dict[str, str]:
    """The labels of every series."""
    return {"run": record.run, "host": host_name(record, host)}


class Naming:
    """The families and labels of a run's samples, each worked out once."""

    def __init__(self, record: RunRecord) -> None:
        """No container is known yet: all are this host's."""
        self._record = record
        self._hosts: dict[str, str] = {}
        self._known: dict[tuple[str, str], tuple[Family, Labels] | None] = {}

    def deployed(self, deployment: Deployment) -> None:
        """Take note of the hosts on which containers lie."""
        self.placed({container.name: host.name for host, container in deployment.containers()})

    def placed(self, hosts: Mapping[str, str]) -> None:
        """Take note of the host of each of these containers; it may be another one than before."""
        if any(self._hosts.get(container, host) != host for container, host in hosts.items()):
            self._known.clear()
        self._hosts |= hosts

    def series(self, entity: str, metric: str) -> tuple[Family, Labels] | None:
        """The family and all labels of an entity's metric; None for an entity of an unknown kind."""
        key = (entity, metric)
        if key not in self._known:
            what = named(entity, metric, self._record.hosts)
            if what is not None:
                family, labels = what
                host = labels.get("host") or self._hosts.get(labels.get("container", ""), "local")
                what = family, {**labels, **everywhere(self._record, host)}
            self._known[key] = what
        return self._known[key]


def emulated(phase: PhaseResult, target: str) -> bool:
    """Whether a target's guest ran by emulation in a phase."""
    return phase.metrics.get(f"guest:{target_labels(target)['container']}", {}).get(guest_machine.EMULATED) == 1


def _marked(samples: Iterable[Sample], emulated: bool) -> Iterator[Sample]:
    """What drivers count, under the name that it has by emulation where it was."""
    for sample in samples:
        yield sample._replace(family=EMULATED[sample.family]) if emulated else sample


def run_info(record: RunRecord) -> Iterator[Sample]:
    """One for each host of the run."""
    for name, facts in record.hosts.items():
        versions = ", ".join(sorted(set(record.postgres.values())))
        about = {"study": record.study, "pgherd": record.pgherd, "postgres": versions, "kernel": facts.kernel, "cores": f"{facts.cores:g}"}
        yield Sample(RUN, {**everywhere(record, name), **about}, 1.0)


def point_words(point: Mapping[str, int | float | str]) -> str:
    """``databases=4,vcpus=2``."""
    return ",".join(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in sorted(point.items()))


def load_words(loads: Iterable[Load]) -> str:
    """A phase's loads, equal ones together: ``4 × pgbench select-only, 8 clients``."""
    said = Counter(_load_words(load) for load in loads)
    return "; ".join(f"{n} × {words}" for words, n in said.items()) or "idle"


def _load_words(load: Load) -> str:
    scripts = "+".join(one.name or one.source.rpartition("/")[2].removeprefix("builtin:") for one in load.scripts)
    options = " ".join(f"{name}={value}" for name, value in sorted(load.options.items())) if not load.scripts else ""
    rate = f", {load.rate:g}/s" if load.rate is not None else ""
    clients = f", {load.clients} client{'' if load.clients == 1 else 's'}" if load.scripts else ""
    return f"{load.driver} {scripts or options}".strip() + clients + rate


class Totals:
    """What the finished trials of a run came to, each taken once."""

    def __init__(self, record: RunRecord) -> None:
        """Nothing has ended yet."""
        self._record = record
        self._base = everywhere(record)
        self._trials: Counter[str] = Counter({"clean": 0, "tainted": 0, "failed": 0})
        self._verdicts: Counter[tuple[str, str]] = Counter()
        self._transactions: dict[tuple[str, bool], float] = {}

    def add(self, result: TrialResult) -> None:
        """A trial has ended."""
        self._trials["failed" if result.error else "tainted" if result.tainted else "clean"] += 1
        for verdict in result.verdicts:
            self._verdicts[verdict.check, verdict.result] += 1
        for phase in result.phases:
            for target in phase.targets:
                key = (target.target, emulated(phase, target.target))
                self._transactions[key] = self._transactions.get(key, 0.0) + target.transactions

    def samples(self, t: float | None = None) -> Iterator[Sample]:
        """The counters, as of an instant."""
        for result, n in self._trials.items():
            yield Sample(TRIALS, {**self._base, "result": result}, n, t)
        for (check, result), n in self._verdicts.items():
            yield Sample(VERDICTS, {**self._base, "check": check, "result": result}, n, t)
        for (target, by_emulation), transactions in self._transactions.items():
            labels = {**target_everywhere(self._record, target), **target_labels(target)}
            yield from _marked([Sample(RUN_TRANSACTIONS, labels, transactions, t)], by_emulation)


def target_everywhere(record: RunRecord, target: str) -> dict[str, str]:
    """Run and host of a target: a name of several parts begins with its host's, and a host may be a target; others are this host's."""
    host, slash, _ = target.partition("/")
    return everywhere(record, host if slash or host in record.hosts else "local")


def result_samples(record: RunRecord, result: TrialResult, t: float | None) -> Iterator[Sample]:
    """What came of one trial, as of an instant."""
    for number, phase in enumerate(result.phases):
        for target in phase.targets:
            of = {"trial": result.id, "number": str(number + 1), "phase": phase.phase}
            labels = {**target_everywhere(record, target.target), **of, **target_labels(target.target)}
            yield from _marked(_target_samples(phase, target, labels, t), emulated(phase, target.target))
    yield from _devices(record, result, t)


def _target_samples(phase: PhaseResult, target: TargetResult, labels: Labels, t: float | None) -> Iterator[Sample]:
    yield Sample(RESULT_TRANSACTIONS, labels, target.transactions, t)
    yield Sample(RESULT_WINDOW, labels, phase.seconds, t)
    yield Sample(RESULT_FAILED, labels, target.failed, t)
    latency = target.latency
    told = {"mean": latency.mean, "p50": latency.p50, "p95": latency.p95, "p99": latency.p99, "max": latency.maximum}
    for statistic, value in told.items():
        if value is not None:
            yield Sample(RESULT_LATENCY, {**labels, "statistic": statistic}, value / 1000, t)


def _devices(record: RunRecord, result: TrialResult, t: float | None) -> Iterator[Sample]:
    seen = set()
    for phase in result.phases:
        for device in phase.io.devices if phase.io is not None else ():
            if device.number not in seen:
                seen.add(device.number)
                host, name, number = _device(record, device)
                roles = ", ".join(sorted(device.roles))
                yield Sample(DEVICE, {**everywhere(record, host), "device": name, "number": number, "roles": roles}, 1.0, t)


def _device(record: RunRecord, device: DeviceView) -> tuple[str, str, str]:
    """Host, name and number of a device; of several hosts its name and number say which (pgherd.distributed.merging)."""
    host, _, name = device.name.partition("/")
    if name and host in record.hosts:
        return host, name, device.number.removeprefix(f"{host}/")
    return "local", device.name, device.number


class Progress:
    """What one target's drivers have told, added up over the run: each line counts its rate times the time since the one before."""

    def __init__(self, labels: Labels, emulated: bool = False) -> None:
        """Labels of all its series; ``emulated``: their names say that processors were."""
        self._labels, self._emulated = labels, emulated
        self._before: float | None = None
        self._done = self._failed = self._skipped = 0.0
        self._at = 0.0
        self._latency: float | None = None
        self._lag: float | None = None

    def begin(self) -> None:
        """Another driver begins: its first line tells of one second."""
        self._before = None

    def tell(self, at: float, tps: float, latency: float, failed: int, lag: float | None, skipped: int) -> None:
        """One line: the instant, transactions per second, mean latency and lag in milliseconds, failed and skipped transactions.

        The first line of a driver tells of one second, as pgbench has it.
        """
        self._done += tps * (1.0 if self._before is None else max(0.0, at - self._before))
        self._failed += failed
        self._skipped += skipped
        self._before = self._at = at
        self._latency, self._lag = latency / 1000, None if lag is None else lag / 1000

    def samples(self) -> Iterator[Sample]:
        """As of the last line; nothing before the first."""
        return _marked(self._samples(), self._emulated)

    def _samples(self) -> Iterator[Sample]:
        if self._latency is None:
            return
        yield Sample(DRIVER_TRANSACTIONS, self._labels, self._done, self._at)
        yield Sample(DRIVER_FAILED, self._labels, self._failed, self._at)
        yield Sample(DRIVER_SKIPPED, self._labels, self._skipped, self._at)
        yield Sample(DRIVER_LATENCY, self._labels, self._latency, self._at)
        if self._lag is not None:
            yield Sample(DRIVER_LAG, self._labels, self._lag, self._at)
