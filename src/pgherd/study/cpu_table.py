"""Where the host's CPU went at a point, as cells of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pgherd.model.finding import Finding
from pgherd.study.observation import CpuBreakdown, Observation
from pgherd.study.repeats import Repeats, mean_finding

NO_CONTAINER_CPU = "the CPU of the containers was not seen; a runtime with accounting (cgroup) shows it"
PART_NOT_SEEN = "this part was not seen"

_PARTS: dict[str, tuple[Callable[[CpuBreakdown], float | None], str]] = {
    "databases_cpu": (lambda w: w.databases, "containers without clients and sampling backends"),
    "clients": (lambda w: w.clients, "all drivers, inside and outside"),
    "pgherd": (lambda w: w.pgherd, "with its sampling backends"),
    "platform": (lambda w: w.platform, "all CPU used outside the containers, without pgherd and clients; named parts are in it"),
    "iowait": (lambda w: w.iowait, ""),
    "idle": (lambda w: w.idle, ""),
    "steal": (lambda w: w.steal, ""),
}


def named_parts(points: Sequence[Repeats]) -> list[str]:
    """Names of the parts of the platform that any trial accounted for."""
    return sorted({name for point in points for o in point.used for name in o.cpu.named})


def cpu_cells(point: Repeats, named: Sequence[str]) -> dict[str, Finding]:
    """Column → cores: databases_cpu, clients, pgherd, platform, ``platform.NAME`` of each named part, iowait, idle, steal."""
    cells = {}
    for column, (take, note) in _PARTS.items():
        cells[column] = mean_finding(point, _of_window(take), "cores", _not_seen(column), note)
        if column == "platform":
            for name in named:
                cells[f"platform.{name}"] = mean_finding(point, part_cpu(name), "cores", PART_NOT_SEEN)
    return cells


def _of_window(take: Callable[[CpuBreakdown], float | None]) -> Callable[[Observation], float | None]:
    return lambda observation: take(observation.cpu)


def part_cpu(name: str) -> Callable[[Observation], float | None]:
    """What takes the CPU of a named part of the platform from an observation."""
    return lambda observation: observation.cpu.named.get(name)


def _not_seen(column: str) -> str:
    if column in ("databases_cpu", "platform"):
        return NO_CONTAINER_CPU
    return f"{'the host did not show' if column in ('iowait', 'idle', 'steal') else 'the processes did not show'} it"
