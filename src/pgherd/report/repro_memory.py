"""The memory of all containers together, in a script that repeats a trial: as the runner brings it about (runner/deploy/budget.py)."""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.model.deployment import Host
from pgherd.model.run import RunRecord


def at_first(host: Host, record: RunRecord) -> int | None:
    """Bytes until the servers are warm: the run's whole where the rest is taken away only then, as with swap of the run's own."""
    around = record.surroundings
    return around.memory if around is not None and _is_taken_away(host, record) else host.memory


def taken_away(host: Host, record: RunRecord) -> Iterator[str]:
    """What follows once the servers are warm."""
    if _is_taken_away(host, record):
        yield "# All are warm: memory is taken away."
        yield f"group '' '' {host.memory} ''"
        yield ""


def _is_taken_away(host: Host, record: RunRecord) -> bool:
    around = record.surroundings
    if around is None or around.swap is None or around.swap.kind == "none" or around.runtime != "cgroup":
        return False
    return host.memory is not None and host.memory < around.memory
