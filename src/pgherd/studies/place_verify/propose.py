"""Trials of a verification: capacity, calibration, then the planned slots as phases. Pure. Imports no scientific library.

1. ``capacity``: every database as fast as it can, which gives the transactions per second of each full container.
2. ``calibration``: phases at known parts of that rate. A line through them gives the CPU of idle servers and of each transaction.
3. ``verification``: a phase for each slot, at the rates that this line gives for the planned CPU.

On a shared machine a transaction soon takes more CPU or less. So a reference database, in a container of its own, has the same rate in
all phases of the last two stages. Predictions are for the CPU of its transactions in their phase.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.model.analysis import Proposal
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.load import Load, Phase
from pgherd.model.result import PhaseResult, TrialResult
from pgherd.model.trial import Trial
from pgherd.studies.place_verify.options import PlaceVerifyOptions, PlannedHost
from pgherd.study.objectives import rate_sampling

CAPACITY, CALIBRATION, VERIFICATION = "capacity", "calibration", "verification"
LEVELS = (0.05, 0.15, 0.3, 0.45, 0.6, 0.75)
"""Rates of the calibration as parts of the capacity. At a fixed rate a transaction takes more CPU than at full speed."""
FULL = 0.9
"""Part of its quota from which a container's phase is left out of the calibration: a full container shows its quota only."""
RATE_OF_CLIENT = 200.0
"""Transactions per second for which a database gets another client."""
LEAST_RATE = 0.1
"""Transactions per second below which a database is idle in a slot."""
REFERENCE = "reference"
"""Name of the container of the reference database."""
REFERENCE_ADDRESS = f"local/{REFERENCE}/db001/bench"
REFERENCE_CORES, REFERENCE_PART = 0.1, 0.05
"""CPU of the reference database: at most these cores, and at most this part of the host."""
_REFERENCE_QUOTA = 4
"""Its CPU quota by its CPU: so far away that it never waits for it."""


@dataclass(frozen=True)
class Line:
    """CPU of a container by its transactions per second, from the phases of the calibration, each divided by its slowness.

    Attributes:
        idle: CPU of a server without load, in cores.
        cost: CPU seconds of a transaction.
        reference: CPU seconds of a transaction of the reference database, on average over the phases.
        deviation: standard deviation of the CPU of a phase around the line, as a part of its CPU.
        inverse: of the normal equations: for ``idle`` twice, for both, and for ``cost`` twice.
        n: phases of containers.
    """

    idle: float
    cost: float
    reference: float
    deviation: float
    inverse: tuple[float, float, float]
    n: int

    def cpu(self, servers: int, rate: float) -> float:
        """Return the CPU in cores of a container with these servers."""
        return self.idle * servers + self.cost * rate

    def error(self, servers: int, rate: float, cpu: float) -> float:
        """Return the standard error of one phase with this CPU, in cores: its deviation from the line, and the error of the line."""
        first, both, second = self.inverse
        return self.deviation * math.sqrt(cpu**2 + first * servers**2 + 2 * both * servers * rate + second * rate**2)


def container_cpu(phase: PhaseResult, container: str) -> float | None:
    """Return the CPU of a container in cores. None: not observed."""
    return phase.metrics.get(f"container:{container}", {}).get("cpu.usage")


def _container_rate(phase: PhaseResult, container: str) -> float:
    return sum(target.throughput for target in phase.targets if target.target.split("/")[1] == container)


def reference_cost(phase: PhaseResult) -> float | None:
    """Return the CPU seconds of a transaction of the reference database. None: not observed."""
    cpu, rate = container_cpu(phase, REFERENCE), _container_rate(phase, REFERENCE)
    return cpu / rate if cpu and rate else None


def offered_rate(phase: Phase, container: str) -> float:
    """Return the transactions per second that a phase of a verification asks of a container."""
    return math.fsum(load.rate or 0.0 for address, load in phase.loads.items() if address.split("/")[1] == container)


def container_name(number: int) -> str:
    """Return the name of the container of a host by its number from 0."""
    return f"host{number + 1}"


def address(number: int, database: int) -> str:
    """Return the address of a database by the numbers of host and database from 0."""
    return f"local/{container_name(number)}/db{database + 1:03d}/bench"


def line_of(options: PlaceVerifyOptions, calibration: TrialResult) -> Line | None:
    """Return the line of the calibration: least squares of relative errors. None: too few phases, or no CPU observed."""
    observed = [(phase, cost) for phase in calibration.phases if (cost := reference_cost(phase)) is not None]
    if not observed:
        return None
    reference = statistics.fmean(cost for _, cost in observed)
    points = []
    for phase, slow in observed:
        for number, host in enumerate(options.planned):
            cpu = container_cpu(phase, container_name(number))
            if cpu is not None and 0 < cpu < FULL * options.quota(host):
                even = cpu * reference / slow
                points.append((len(host.databases) / even, _container_rate(phase, container_name(number)) / even))
    if len(points) < len(LEVELS) or not any(rate for _, rate in points):
        return None
    # Each phase says 1 = idle × servers ÷ cpu + cost × rate ÷ cpu. The normal equations of two unknowns:
    uu, uv, vv = (math.fsum(a[i] * a[j] for a in points) for i, j in ((0, 0), (0, 1), (1, 1)))
    u, v = (math.fsum(a[i] for a in points) for i in (0, 1))
    determinant = uu * vv - uv * uv
    idle, cost, inverse = 0.0, v / vv, (0.0, 0.0, 1 / vv)
    if determinant > 1e-9 * uu * vv:
        inverse = (vv / determinant, -uv / determinant, uu / determinant)
        if u * vv > v * uv:  # a line with an idle CPU below zero is replaced by one through zero
            idle, cost = (u * vv - v * uv) / determinant, (v * uu - u * uv) / determinant
    if cost <= 0:
        return None
    errors = [1 - idle * a - cost * b for a, b in points]
    return Line(idle, cost, reference, math.sqrt(math.fsum(error**2 for error in errors) / (len(points) - 2)), inverse, len(points))


def by_stage(results: Sequence[TrialResult], stage: str) -> list[TrialResult]:
    """Return the trials of a stage, in their order."""
    return [result for result in results if result.trial.point["stage"] == stage]


def propose(options: PlaceVerifyOptions, results: Sequence[TrialResult]) -> Proposal:
    """Return the trial of the next stage, or the reason to stop. The same options and results always give the same proposal."""
    most = 2 + options.repeats
    capacity, calibration, verified = (by_stage(results, stage) for stage in (CAPACITY, CALIBRATION, VERIFICATION))
    failed = next((result for result in (*capacity, *calibration) if result.error is not None), None)
    if failed is not None:
        return Proposal(stop=f"the trial of the {failed.trial.point['stage']} did not finish", max_trials=most)
    if not capacity:
        return Proposal(trials=(_trial(options, CAPACITY, 0, _full(options)),), max_trials=most)
    reference = _reference(options, capacity[0])
    if not calibration:
        return Proposal(trials=(_trial(options, CALIBRATION, 0, _levels(options, capacity[0], reference)),), max_trials=most)
    line = line_of(options, calibration[0])
    if line is None:
        return Proposal(stop="the calibration gives no CPU per transaction", max_trials=most)
    if len(verified) == options.repeats:
        return Proposal(stop="all planned trials are done", max_trials=most)
    trial = _trial(options, VERIFICATION, len(verified), _slots(options, line, reference))
    used = sum(result.ended - result.started for result in results)
    if options.time_budget is not None and used + trial.seconds() > options.time_budget:
        return Proposal(stop=f"the budget of {options.time_budget:g} s is used up", max_trials=most)
    return Proposal(trials=(trial,), max_trials=most)


def _trial(options: PlaceVerifyOptions, stage: str, repeat: int, phases: tuple[Phase, ...]) -> Trial:
    return Trial(point={"stage": stage}, repeat=repeat, deployment=deploy(options), state="warm", phases=phases)


def _phase(options: PlaceVerifyOptions, name: str, loads: dict[str, Load]) -> Phase:
    return Phase(name=name, warmup=options.warmup, seconds=options.duration, loads=loads)


def _full(options: PlaceVerifyOptions) -> tuple[Phase, ...]:
    loads = {address(n, d): options.load(1) for n, host in enumerate(options.planned) for d in range(len(host.databases))}
    return (_phase(options, CAPACITY, loads),)


def _reference(options: PlaceVerifyOptions, capacity: TrialResult) -> dict[str, Load]:
    """Return the load of the reference database, by the CPU of a transaction in the trial of the capacity."""
    reached = math.fsum(_container_rate(capacity.phases[0], container_name(number)) for number in range(len(options.planned)))
    rate = _reference_cores(options) * reached / math.fsum(map(options.quota, options.planned))
    return {REFERENCE_ADDRESS: _at_rate(options, rate)} if rate >= LEAST_RATE else {}


def _levels(options: PlaceVerifyOptions, capacity: TrialResult, reference: dict[str, Load]) -> tuple[Phase, ...]:
    order = random.Random(f"place-verify {options.seed}").sample(LEVELS, len(LEVELS))
    full = [_container_rate(capacity.phases[0], container_name(number)) for number in range(len(options.planned))]
    phases = []
    for level in order:
        loads = dict(reference)
        for number, host in enumerate(options.planned):
            means = [statistics.fmean(row) for row in host.cpu]
            loads |= _loads(options, number, means, level * full[number])
        phases.append(_phase(options, f"level{round(100 * level)}", loads))
    return tuple(phases)


def _slots(options: PlaceVerifyOptions, line: Line, reference: dict[str, Load]) -> tuple[Phase, ...]:
    phases = []
    for slot in range(len(options.slots)):
        loads = dict(reference)
        for number, host in enumerate(options.planned):
            loads |= _loads(options, number, [row[slot] for row in host.cpu], _planned_rate(options, line, host, slot))
        phases.append(_phase(options, f"slot{slot + 1}", loads))
    return tuple(phases)


def _planned_rate(options: PlaceVerifyOptions, line: Line, host: PlannedHost, slot: int) -> float:
    """Return the transactions per second that need the planned CPU of a host in a slot, scaled down."""
    return max(host.demand(slot) * options.factor - line.idle * len(host.databases), 0.0) / line.cost


def _loads(options: PlaceVerifyOptions, number: int, weights: Sequence[float], total: float) -> dict[str, Load]:
    """Return the loads of a host: the rate ``total``, divided among its databases by weight."""
    whole, loads = math.fsum(weights), {}
    for database, weight in enumerate(weights):
        rate = total * weight / whole if whole > 0 else 0.0
        if rate >= LEAST_RATE:
            loads[address(number, database)] = _at_rate(options, rate)
    return loads


def _at_rate(options: PlaceVerifyOptions, rate: float) -> Load:
    judged = {} if options.objective is None else {"objectives": (options.objective,), "sampling": rate_sampling(rate)}
    return options.load(1 + int(rate / RATE_OF_CLIENT)).model_copy(update={"rate": rate, "threads": 1, **judged})


def _reference_cores(options: PlaceVerifyOptions) -> float:
    return min(REFERENCE_CORES, REFERENCE_PART * options.host_cores)


def deploy(options: PlaceVerifyOptions) -> Deployment:
    """Return a container for each planned host, with a server for each of its databases, and that of the reference database."""
    database = options.database_called("bench")
    containers = tuple(
        Container(
            name=container_name(number),
            runtime=options.runtime,
            vcpus=options.quota(host),
            cpu_mode="quota",
            servers=tuple(
                options.own_server(address(number, d).split("/")[2], (database.model_copy(update={"scale": options.scale_of(number, d)}),))
                for d in range(len(host.databases))
            ),
        )
        for number, host in enumerate(options.planned)
    )
    reference = Container(
        name=REFERENCE,
        runtime=options.runtime,
        vcpus=_REFERENCE_QUOTA * _reference_cores(options),
        cpu_mode="quota",
        servers=(options.own_server(REFERENCE_ADDRESS.split("/")[2], (database,)),),
    )
    host = Host(cores=options.host_cores, memory=options.host_memory, labels=options.labels, containers=(*containers, reference))
    return Deployment(
        hosts=(host,),
        volumes=options.volumes,
    )
