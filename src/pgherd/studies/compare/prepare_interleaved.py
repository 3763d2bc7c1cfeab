"""Whether the servers of a comparison's variants can stand side by side, and whether that is honest; else why not."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.host import paths
from pgherd.model.base import Model
from pgherd.model.errors import UsageError
from pgherd.model.units import format_bytes, parse_bytes
from pgherd.postgres.settings import memory_needed
from pgherd.prepare.prepared_study import Prepared
from pgherd.studies.compare.options import CompareRequest
from pgherd.study.comparison import time_slices
from pgherd.study.comparison.metrics import DEFAULT_METRIC
from pgherd.study.database_options import DatabaseOptions
from pgherd.workloads.registry import find

SECONDS, RAMP = 40 * time_slices.SLICE_S, 0.3
"""Of each server's load in a block, by turns; and before the first turn, when all are loaded at once."""
EXTRA = 1.5
"""Seconds that a trial of a whole block takes beyond that, with the servers' restart."""
SAMPLING = 0.3
"""Least share of the transactions that are logged: turns are counted from the log."""
SLOWEST, MOST_CLIENTS = 0.001, 32
"""Seconds of a transaction, and clients, beyond which one is likely to take more than a tenth of what counts of a turn."""
STEADY = ("throughput", "cpu_per_tx")
"""Metrics that two seconds measure as well as a longer time; a percentile of latency wants more transactions."""
DISK_RESERVE = 512 * 2**20
_ROUND = 64 * 2**20


@dataclass(frozen=True)
class Arrangement:
    """How the arms stand, and a sentence on it. ``memory`` is what the container of each arm gets side by side, bytes (None: no limit)."""

    together: bool
    said: str
    memory: Mapping[str, int | None] = field(default_factory=dict)


def choose(asked: CompareRequest, requests: Mapping[str, Model], made: Mapping[str, Prepared], metric: str | None) -> Arrangement:
    """How the arms stand. ``made`` are the ``requests`` completed as one at a time would have them, the baseline first.

    Raises:
        UsageError: side by side was asked for, and cannot be.
    """
    if asked.arrangement == "one-at-a-time":
        return Arrangement(False, "Arms one at a time, as asked: each trial brings its variant's server up.")
    if all(getattr(one.options, "server", None) for one in made.values()):
        if asked.arrangement is not None:
            raise UsageError("--arms is for servers of our own: those that --server names are up all the time; leave it out")
        return Arrangement(False, "Somebody else's servers are up all the time; each trial loads one of them, in the state that it is in.")
    given: dict[str, int | None] = {}
    why = _why_not(asked, made)
    if not why:
        given, why = _room(requests, made)
    if why and asked.arrangement is not None:
        raise UsageError(f"--arms side-by-side cannot be: {why}; leave it out, or give --arms one-at-a-time")
    if not why and asked.arrangement is None and (metric or DEFAULT_METRIC) not in STEADY:
        why = f"{metric} wants longer trials, of which a run holds few (--arms side-by-side asks for short ones)"
    if why:
        return Arrangement(False, f"Arms one at a time: {why}.")
    each = sorted({limit for limit in given.values() if limit is not None})
    quota = ""
    if any(one.cpu_mode == "quota" for one in map(_options, made.values())):
        quota = f", a CPU quota given out every {1000 * time_slices.QUOTA_PERIOD_S:g} ms"
    limits = f", with {' or '.join(format_bytes(limit) for limit in each)} of memory" if each else ""
    said = (
        f"Arms side by side: {len(made) + 1} servers are up at once, {next(iter(made))} twice (the A/A pair), each in a container of its "
        f"own{limits}{quota}, and their loads take turns of {1000 * time_slices.SLICE_S:g} ms. All restart before each block, so that none "
        "keeps a lucky place in memory."
    )
    return Arrangement(True, said, given)


def _why_not(asked: CompareRequest, made: Mapping[str, Prepared]) -> str:
    """Why the arms must stand one at a time; '' where they need not."""
    if not asked.variant:
        return "scenarios are studies by themselves, each with a deployment of its own"
    if dishonest := _dishonest([one.options for one in made.values() if isinstance(one.options, DatabaseOptions)]):
        return dishonest
    if "state" in asked.model_fields_set and asked.state != "warm":
        return f"--state {asked.state} is to be brought about before every trial"
    if slow := [one.pace for one in made.values() if one.pace is not None and one.pace > SLOWEST]:
        return f"a transaction takes {1000 * max(slow):.3g} ms, too long to be counted in turns of {1000 * time_slices.SLICE_S:g} ms"
    if (clients := max(getattr(one.options, "clients", None) or 1 for one in made.values())) > MOST_CLIENTS:
        return f"with {clients} clients a transaction waits too long to be counted in turns of {1000 * time_slices.SLICE_S:g} ms"
    return _no_disk(made)


def _dishonest(options: Sequence[DatabaseOptions]) -> str:
    """Why the servers would disturb each other's trials; '' where they would not."""
    if any(one.server is not None for one in options):
        return "a server that is somebody else's is up all the time"
    if any(one.rate is not None for one in options):
        return "at a given rate transactions do not wait until it is their turn"
    if small := [one.vcpus for one in options if one.cpu_mode == "quota" and one.vcpus < time_slices.MIN_VCPUS]:
        return f"a CPU quota of {min(small):g} vCPUs cannot be given out within a turn ({time_slices.MIN_VCPUS:g} can)"
    if any(one.runtime == "vm" for one in options):
        return "clients in guests cannot be stopped and continued in an instant"
    if not all(one.read_only for one in options):
        return "what one server has still to write would be written during the trials of another"
    if any(one.huge_page_bytes or one.transparent_huge_pages is not None for one in options):
        return "the pages of memory that are compared are the whole host's"
    if any(one.cpu_mode == "cpuset" for one in options):
        return "with whole CPUs each server would have others"
    if any(one.wal_dir or one.volumes for one in options):
        return "they have volumes of their own, on which all of them at once would be in each other's way, and might not have room"
    return ""


def _no_disk(made: Mapping[str, Prepared]) -> str:
    """That the servers' data does not fit; '' where it does."""
    need, free = disk(made), shutil.disk_usage(_existing(paths.cache_dir())).free
    if need + DISK_RESERVE > free:
        return f"the servers need {format_bytes(need)} of disk at once, and {format_bytes(free)} are free"
    return ""


def _room(requests: Mapping[str, Model], made: Mapping[str, Prepared]) -> tuple[dict[str, int | None], str]:
    """The memory of each arm's container, and why that is too little; '' where it is enough.

    What was asked for is given. The others share what is left, since a limit that nobody asked for is generous.
    """
    baseline = next(iter(made))
    budget = min(one.surroundings.memory for one in made.values())
    limits = {name: _options(one).container_memory for name, one in made.items()}
    fixed = {name: one.memory for name, one in made.items() if limits[name] is None or getattr(requests[name], "memory", None)}
    times = {name: 2 if name == baseline else 1 for name in made}
    free = sum(count for name, count in times.items() if name not in fixed)
    left = budget - sum(need * times[name] for name, need in fixed.items())
    share = left // max(free, 1) // _ROUND * _ROUND
    least = {name: _needed(_options(one)) for name, one in made.items() if name not in fixed}
    if left < 0 or any(need > share for need in least.values()):
        need = sum({**least, **fixed}[name] * count for name, count in times.items())
        return (
            {},
            f"the servers need {format_bytes(need)} of memory at once, and the host's budget is {format_bytes(budget)} (--host-memory)",
        )
    return {name: limit if limit is None or name in fixed else min(limit, share) for name, limit in limits.items()}, ""


def _needed(options: DatabaseOptions) -> int:
    """Bytes of memory that a server needs with its database cached: in its buffers, or where these are small beside them."""
    buffers = options.settings.get("shared_buffers", "128MB")
    size = int(buffers) * 8192 if buffers.isdigit() else parse_bytes(buffers)  # a bare number counts blocks
    data = (find(options.workload).size_estimate(options.scale) or 0) if options.init is None else 0
    return memory_needed(max(size, data), getattr(options, "clients", 1))


def _options(prepared: Prepared) -> DatabaseOptions:
    assert isinstance(prepared.options, DatabaseOptions)
    return prepared.options


def logged(options: Model) -> Model:
    """An arm's options with enough of its transactions logged for counting its turns."""
    assert isinstance(options, DatabaseOptions)
    return options.model_copy(update={"sampling": max(options.sampling, SAMPLING)})


def disk(made: Mapping[str, Prepared]) -> int:
    """Bytes of disk of all servers at once, the baseline's second too; each arm's own figure holds a golden copy beside its server."""
    return sum(one.disk for one in made.values()) + next(iter(made.values())).disk // 2


def memory(made: Mapping[str, Prepared], given: Mapping[str, int | None]) -> int:
    """Bytes of memory of all servers at once, where their containers are given so much."""
    each = {name: given.get(name) or one.memory for name, one in made.items()}
    return sum(each.values()) + each[next(iter(made))]


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())
