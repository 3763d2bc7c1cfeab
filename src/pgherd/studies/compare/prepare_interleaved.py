"""Choice between interleaved time slices and interleaved trials for the variants of a comparison, with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.host import paths
from pgherd.model.base import Model
from pgherd.model.capabilities import capabilities_of
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
"""Seconds of load on each server in a block, in slices, and of the warm-up before the first slice, in which all servers are loaded."""
EXTRA = 1.5
"""Additional seconds of a trial that contains a whole block: the restart of the servers and the end of the drivers."""
SAMPLING = 0.3
"""Minimum share of transactions that are logged. The transactions of a slice are counted from the log."""
SLOWEST, MOST_CLIENTS = 0.001, 32
"""Maximum duration of a transaction in seconds, and maximum number of clients. Beyond them a transaction probably takes more than a
tenth of the counted part of a slice."""
STEADY = ("throughput", "cpu_per_tx")
"""Metrics that are as precise in two seconds as in a longer time. A latency percentile needs more transactions."""
DISK_RESERVE = 512 * 2**20
_ROUND = 64 * 2**20


@dataclass(frozen=True)
class Arrangement:
    """Selected kind of interleaving, and a sentence that explains it.

    ``together`` is True if all servers run at once and their loads alternate in slices. ``memory`` is then the memory limit of each
    variant's container in bytes (None: no limit).
    """

    together: bool
    said: str
    memory: Mapping[str, int | None] = field(default_factory=dict)


def choose(asked: CompareRequest, requests: Mapping[str, Model], made: Mapping[str, Prepared], metric: str | None) -> Arrangement:
    """Choose between slices and trials.

    Args:
        asked: the request of the comparison.
        requests: the request of each variant by name, the baseline first.
        made: the same requests, completed for interleaved trials.
        metric: the compared metric. None: the default one.

    Raises:
        UsageError: the user requests slices, and they are not possible.
    """
    if asked.interleave == "trials":
        return Arrangement(False, "Variants are interleaved by trials, as requested: each trial starts the server of its variant.")
    if all(getattr(one.options, "server", None) for one in made.values()):
        if asked.interleave is not None:
            raise UsageError("--interleave does not apply to external servers, which --dsn names; leave --interleave out")
        return Arrangement(False, "The external servers keep running; each trial loads one of them in its current state.")
    given: dict[str, int | None] = {}
    why = _why_not(asked, made)
    if not why:
        given, why = _room(requests, made)
    if why and asked.interleave is not None:
        raise UsageError(f"--interleave slices is not possible: {why}; leave it out, or give --interleave trials")
    if not why and asked.interleave is None and (metric or DEFAULT_METRIC) not in STEADY:
        why = f"{metric} needs longer trials, of which a run holds few (--interleave slices requests short ones)"
    if why:
        return Arrangement(False, f"Variants are interleaved by trials: {why}.")
    each = sorted({limit for limit in given.values() if limit is not None})
    quota = ""
    if any(one.cpu_mode == "quota" for one in map(_options, made.values())):
        quota = f", a CPU quota with a period of {1000 * time_slices.QUOTA_PERIOD_S:g} ms"
    limits = f", with {' or '.join(format_bytes(limit) for limit in each)} of memory" if each else ""
    said = (
        f"Variants are interleaved in time slices: {len(made) + 1} servers run at once, {next(iter(made))} twice (the A/A pair), each in a "
        f"separate container{limits}{quota}. Their loads alternate in slices of {1000 * time_slices.SLICE_S:g} ms. All servers restart "
        "before each block, so that none keeps a favourable memory layout."
    )
    return Arrangement(True, said, given)


def _why_not(asked: CompareRequest, made: Mapping[str, Prepared]) -> str:
    """Return the reason against time slices, or an empty string if they are possible."""
    if not asked.variant:
        return "each scenario is a complete study with a separate deployment"
    if interference := _interference([one.options for one in made.values() if isinstance(one.options, DatabaseOptions)]):
        return interference
    if "start_state" in asked.model_fields_set and asked.start_state != "warm":
        return f"--start-state {asked.start_state} applies to every trial"
    if slow := [one.pace for one in made.values() if one.pace is not None and one.pace > SLOWEST]:
        return f"a transaction takes {1000 * max(slow):.3g} ms, too long to be counted in slices of {1000 * time_slices.SLICE_S:g} ms"
    if (clients := max(getattr(one.options, "clients", None) or 1 for one in made.values())) > MOST_CLIENTS:
        return f"with {clients} clients a transaction waits too long to be counted in slices of {1000 * time_slices.SLICE_S:g} ms"
    return _no_disk(made)


def _interference(options: Sequence[DatabaseOptions]) -> str:
    """Return the reason why the servers would disturb each other, or an empty string if they would not."""
    if any(one.server is not None for one in options):
        return "an external server keeps running between slices"
    if any(one.rate is not None for one in options):
        return "at a given rate transactions do not wait for their slice"
    if small := [one.vcpus for one in options if one.cpu_mode == "quota" and one.vcpus < time_slices.MIN_VCPUS]:
        return f"a CPU quota of {min(small):g} vCPUs is too small for one slice (the minimum is {time_slices.MIN_VCPUS:g})"
    if any(capabilities_of(one.runtime).own_kernel for one in options):
        return "clients in guests cannot be stopped and continued instantly"
    if not all(one.read_only for one in options):
        return "delayed writes of one server would happen during the slices of another"
    if any(one.huge_page_bytes or one.transparent_huge_pages is not None for one in options):
        return "huge pages are a setting of the whole host"
    if any(one.cpu_mode == "cpuset" for one in options):
        return "with --cpu-mode cpuset each server would run on different CPUs"
    if any(one.volumes for one in options):
        return "their volumes would be used by all servers at once, and might be too small for all of them"
    return ""


def _no_disk(made: Mapping[str, Prepared]) -> str:
    """Return the reason if the data of all servers does not fit on the disk, else an empty string."""
    need, free = disk(made), shutil.disk_usage(_existing(paths.cache_dir())).free
    if need + DISK_RESERVE > free:
        return f"the servers need {format_bytes(need)} of disk at once, and {format_bytes(free)} are free"
    return ""


def _room(requests: Mapping[str, Model], made: Mapping[str, Prepared]) -> tuple[dict[str, int | None], str]:
    """Return the memory limit of each variant's container, and the reason if the memory is insufficient ('' if it is sufficient).

    A limit that the user sets stays. The other variants share the remaining memory, because default limits are generous.
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
    """Return the memory in bytes of a server with its database cached, in shared buffers or in the page cache."""
    buffers = options.settings.get("shared_buffers", "128MB")
    size = int(buffers) * 8192 if buffers.isdigit() else parse_bytes(buffers)  # a bare number counts blocks
    data = (find(options.workload).size_estimate(options.scale) or 0) if options.init is None else 0
    return memory_needed(max(size, data), getattr(options, "clients", 1))


def _options(prepared: Prepared) -> DatabaseOptions:
    assert isinstance(prepared.options, DatabaseOptions)
    return prepared.options


def logged(options: Model) -> Model:
    """Return the options of a variant with enough logged transactions to count those of each slice."""
    assert isinstance(options, DatabaseOptions)
    return options.model_copy(update={"sampling": max(options.sampling, SAMPLING)})


def disk(made: Mapping[str, Prepared]) -> int:
    """Return the disk space in bytes of all servers, including the second one of the baseline.

    The value of each variant includes a template and the data directory of one server.
    """
    return sum(one.disk for one in made.values()) + next(iter(made.values())).disk // 2


def memory(made: Mapping[str, Prepared], given: Mapping[str, int | None]) -> int:
    """Return the memory in bytes of all servers with the memory limits ``given``, including the second server of the baseline."""
    each = {name: given.get(name) or one.memory for name, one in made.items()}
    return sum(each.values()) + each[next(iter(made))]


def _existing(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if one.exists())
