"""The working set as it is seen from inside: by misses, by memory in use, and by pressure. Each looks at something else than throughput,
and so may say something else; none of them replaces it.

A container that is a guest is looked at by its own kernel's counts: the host sees its hypervisor, and not what is in its memory.

- *Misses*: pages that the container reads or swaps in again after it had evicted them (the kernel's workingset_refault), or blocks
  that were not in shared buffers, each per transaction: the smallest size from which on MISSES_LEFT of them are left.
- *Use*: at the largest size, memory of the container less its inactive file pages, which is what Kubernetes calls the working set (of a
  guest: less what its kernel calls available); or the
  shared buffers that were used again since they were read in, as pg_buffercache says (usage count above 1).
- *Pressure*: the smallest size from which on tasks wait for memory or I/O at most PRESSURE of the time (PSI).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgherd.analysis.intervals import mean_interval
from pgherd.model.finding import Finding
from pgherd.model.result import TrialResult
from pgherd.studies.working_set.curves import Measured
from pgherd.studies.working_set.options import CONTAINER, MB
from pgherd.study.findings import as_finding, missing
from pgherd.study.trial_schedule import throughput

PRESSURE = 0.05
"""Share of the time in which some task may wait for memory or I/O where there is enough memory."""
MISSES_LEFT = 0.05
"""Share of the misses at the smallest size that may be left where there is enough memory."""
FEW_MISSES = 0.02
"""Misses per transaction at the smallest size below which nothing can be said by them."""

Take = Callable[[TrialResult], float | None]


def metric(result: TrialResult, entity: str, name: str) -> float | None:
    """Mean of a metric over a trial's phases; None where one has not seen it."""
    values = [phase.metrics.get(entity, {}).get(name) for phase in result.phases]
    seen = [value for value in values if value is not None]
    return sum(seen) / len(seen) if seen and len(seen) == len(values) else None


def in_guest(result: TrialResult) -> bool:
    """Whether the trial's container is a guest."""
    return any(container.runtime == "vm" for _, container in result.trial.deployment.containers())


def of_container(name: str, *, guest: str | None = None) -> Take:
    """A metric of the container; of one that is a guest, the one that its kernel has under the name ``guest`` (None: the same)."""

    def found(result: TrialResult) -> float | None:
        if in_guest(result):
            return metric(result, f"guest:{CONTAINER}", guest or name)
        return metric(result, f"container:{CONTAINER}", name)

    return found


def of_server(name: str) -> Take:
    """A metric of the server."""
    return lambda result: metric(result, f"server:{CONTAINER}/pg", name)


def per_transaction(take: Take) -> Take:
    """A rate per second as a number per transaction."""

    def found(result: TrialResult) -> float | None:
        rate, done = take(result), throughput(result)
        return None if rate is None or done <= 0 else rate / done

    return found


def _read_again(result: TrialResult) -> float | None:
    """File pages read, and anonymous and shared ones swapped in, after they had been evicted; per second."""
    parts = [of_container(f"memory.refault_{kind}", guest=f"vm.refault_{kind}")(result) for kind in ("file", "anon")]
    return None if parts[0] is None else sum(part or 0.0 for part in parts)


refaults = per_transaction(_read_again)
"""Pages of the container read or swapped in again after they had been evicted, per transaction."""
buffer_misses = per_transaction(of_server("db.blks_read"))
"""Blocks that were not in shared buffers, per transaction."""


def waiting(result: TrialResult) -> float | None:
    """The larger of the shares of time in which some task of the container waited for memory, or for I/O."""
    shares = [of_container(f"psi.{kind}.some")(result) for kind in ("memory", "io")]
    seen = [share for share in shares if share is not None]
    return max(seen) if seen else None


def in_use(result: TrialResult) -> float | None:
    """Memory of the container without inactive file pages, in MB; of a guest what it has and does not call available."""
    usage = of_container("memory.usage", guest="memory.total")(result)
    inactive = of_container("memory.inactive_file", guest="memory.available")(result)
    return None if usage is None or inactive is None else (usage - inactive) / MB


def reused_buffers(result: TrialResult) -> float | None:
    """Shared buffers used again since they were read in, in MB."""
    reused = of_server("buffers.reused")(result)
    return None if reused is None else reused / MB


def by_misses(measured: Measured) -> Finding:
    """The smallest size from which on next to nothing is missed."""
    memory = measured.curve.sweep == "memory"
    take, what = (refaults, "pages read again (refaults)") if memory else (buffer_misses, "blocks missed in shared buffers")
    method = (
        f"smallest size measured from which on {what} per transaction are at most {100 * MISSES_LEFT:.0f} % of those at the smallest size"
    )
    means = [(size, sum(values) / len(values)) for size, values in _by_size(measured, take)]
    if not means:
        return missing("MB", f"{what} were not seen{': older kernels do not count them' if memory else ''}", method=method)
    most = means[0][1]
    if most < FEW_MISSES:
        return missing("MB", f"only {most:.2g} {what} per transaction even at the smallest size", method=method)
    return _from_here_on(measured, means, MISSES_LEFT * most, method, "there are more even at the largest size")


def by_use(measured: Measured) -> Finding:
    """Memory in use at the largest size that lived."""
    memory = measured.curve.sweep == "memory"
    take = in_use if memory else reused_buffers
    largest = [result for result in measured.used if measured.size(result) == max(measured.lived)]
    method = "shared buffers of a usage count above 1 (pg_buffercache) at the largest size"
    if memory:
        method = "memory charged less inactive file pages (the working set of Kubernetes) at the largest size"
        if any(map(in_guest, largest)):
            method = "the guest's memory less what its kernel calls available at the largest size"
    values = [value for result in largest if (value := take(result)) is not None]
    if not values:
        return missing("MB", "it was not seen" if memory else "pg_buffercache could not be asked", method=method)
    return as_finding(mean_interval(values), "MB", f"at {max(measured.lived)} MB", method=method)


def by_pressure(measured: Measured) -> Finding:
    """The smallest size from which on hardly any task waits."""
    method = f"smallest size measured from which on tasks wait for memory or I/O at most {100 * PRESSURE:.0f} % of the time (PSI)"
    if measured.curve.sweep != "memory":
        return missing("MB", "shared buffers that are too small make no pressure: the page cache answers", method=method)
    shares = [(size, sum(values) / len(values)) for size, values in _by_size(measured, waiting)]
    if not shares:
        return missing("MB", "the container's pressure was not seen (PSI needs a version 2 control group)", method=method)
    return _from_here_on(measured, shares, PRESSURE, method, "tasks wait longer than that even at the largest size")


def _from_here_on(measured: Measured, values: Sequence[tuple[int, float]], limit: float, method: str, never: str) -> Finding:
    """The smallest size from which on all values are within the limit; low is the largest size that is not."""
    enough = [size for index, (size, _) in enumerate(values) if all(value <= limit for _, value in values[index:])]
    if not enough:
        return missing("MB", never, method=method)
    below = [size for size, _ in values if size < enough[0]]
    n = sum(measured.size(result) in (enough[0], *below[-1:]) for result in measured.used)
    return Finding(
        value=float(enough[0]),
        unit="MB",
        low=float(below[-1]) if below else None,
        high=float(enough[0]) if below else None,
        n=n,
        method=method,
        note="low is the next smaller size" if below else "no interval: it is the smallest size measured",
    )


def _by_size(measured: Measured, take: Take) -> Sequence[tuple[int, list[float]]]:
    found: dict[int, list[float]] = {}
    for result in measured.used:
        value = take(result)
        if value is not None:
            found.setdefault(measured.size(result), []).append(value)
    return sorted(found.items())
