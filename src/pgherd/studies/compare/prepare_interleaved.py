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
from pgherd.model.units import format_bytes, parse_buffers
from pgherd.postgres.settings import memory_needed
from pgherd.prepare.prepared_study import PreparedStudy
from pgherd.studies.compare.options import CompareRequest
from pgherd.study.comparison import time_slices
from pgherd.study.comparison.metrics import DEFAULT_METRIC
from pgherd.study.database_options import DatabaseOptions
from pgherd.workloads.registry import find

MEASURED_S, WARMUP_S = 40 * time_slices.SLICE_S, 0.3
"""Seconds of load on each server in a block, in slices, and of the warm-up before the first slice, in which all servers are loaded."""
OVERHEAD_S = 1.5
"""Additional seconds of a trial that contains a whole block: the restart of the servers and the end of the drivers."""
MIN_SAMPLED_SHARE = 0.3
"""Minimum share of transactions that are logged. The transactions of a slice are counted from the log."""
MAX_TRANSACTION_S, MAX_CLIENTS = 0.001, 32
"""Maximum duration of a transaction in seconds, and maximum number of clients. Beyond them a transaction probably takes more than a
tenth of the counted part of a slice."""
SHORT_TRIAL_METRICS = ("throughput", "cpu_per_tx")
"""Metrics that are as precise in two seconds as in a longer time. A latency percentile needs more transactions."""
DISK_RESERVE_BYTES = 512 * 2**20
_ROUND = 64 * 2**20


@dataclass(frozen=True)
class InterleavingPlan:
    """Selected kind of interleaving, and a sentence that explains it.

    ``in_slices`` is True if all servers run at once and their loads alternate in slices. ``memory`` is then the memory limit of each
    variant's container in bytes (None: no limit).
    """

    in_slices: bool
    explanation: str
    memory: Mapping[str, int | None] = field(default_factory=dict)


def choose(
    request: CompareRequest, requests: Mapping[str, Model], prepared: Mapping[str, PreparedStudy], metric: str | None
) -> InterleavingPlan:
    """Choose between slices and trials.

    Args:
        request: the request of the comparison.
        requests: the request of each variant by name, the baseline first.
        prepared: the same requests, completed for interleaved trials.
        metric: the compared metric. None: the default variant.

    Raises:
        UsageError: the user requests slices, and they are not possible.
    """
    if request.interleave == "trials":
        return InterleavingPlan(False, "Variants are interleaved by trials, as requested: each trial starts the server of its variant.")
    if all(getattr(variant.options, "dsn", None) for variant in prepared.values()):
        if request.interleave is not None:
            raise UsageError("--interleave does not apply to external servers; leave --interleave out")
        return InterleavingPlan(False, "The external servers keep running; each trial loads one of them in its current state.")
    limits_by_variant: dict[str, int | None] = {}
    reason = _reason_against_slices(request, prepared)
    if not reason:
        limits_by_variant, reason = _memory_limits(requests, prepared)
    if reason and request.interleave is not None:
        raise UsageError(f"--interleave slices is not possible: {reason}; leave it out, or give --interleave trials")
    if not reason and request.interleave is None and (metric or DEFAULT_METRIC) not in SHORT_TRIAL_METRICS:
        reason = f"{metric} needs longer trials, of which a run holds few (--interleave slices requests short ones)"
    if reason:
        return InterleavingPlan(False, f"Variants are interleaved by trials: {reason}.")
    each = sorted({limit for limit in limits_by_variant.values() if limit is not None})
    quota = ""
    if any(variant.cpu_mode == "quota" for variant in map(_options, prepared.values())):
        quota = f", a CPU quota with a period of {1000 * time_slices.QUOTA_PERIOD_S:g} ms"
    limits = f", with {' or '.join(format_bytes(limit) for limit in each)} of memory" if each else ""
    explanation = (
        f"Variants are interleaved in time slices: {len(prepared) + 1} servers run at once, {next(iter(prepared))} twice (the A/A pair), "
        f"each in a separate container{limits}{quota}. Their loads alternate in slices of {1000 * time_slices.SLICE_S:g} ms. All servers "
        "restart before each block, so that none keeps a favourable memory layout."
    )
    return InterleavingPlan(True, explanation, limits_by_variant)


def _reason_against_slices(request: CompareRequest, prepared: Mapping[str, PreparedStudy]) -> str:
    """Return the reason against time slices, or an empty string if they are possible."""
    if not request.variant:
        return "each scenario is a complete study with a separate deployment"
    if interference := _interference([variant.options for variant in prepared.values() if isinstance(variant.options, DatabaseOptions)]):
        return interference
    if "start_state" in request.model_fields_set and request.start_state != "warm":
        return f"--start-state {request.start_state} applies to every trial"
    if slow := [variant.pace for variant in prepared.values() if variant.pace is not None and variant.pace > MAX_TRANSACTION_S]:
        return f"a transaction takes {1000 * max(slow):.3g} ms, too long to be counted in slices of {1000 * time_slices.SLICE_S:g} ms"
    if (clients := max(getattr(variant.options, "clients", None) or 1 for variant in prepared.values())) > MAX_CLIENTS:
        return f"with {clients} clients a transaction waits too long to be counted in slices of {1000 * time_slices.SLICE_S:g} ms"
    return _no_disk(prepared)


def _interference(options: Sequence[DatabaseOptions]) -> str:
    """Return the reason why the servers would disturb each other, or an empty string if they would not."""
    if any(variant.dsn is not None for variant in options):
        return "an external server keeps running between slices"
    if any(variant.rate is not None for variant in options):
        return "at a given rate transactions do not wait for their slice"
    if small := [variant.vcpus for variant in options if variant.cpu_mode == "quota" and variant.vcpus < time_slices.MIN_VCPUS]:
        return f"a CPU quota of {min(small):g} vCPUs is too small for one slice (the minimum is {time_slices.MIN_VCPUS:g})"
    if any(capabilities_of(variant.runtime).own_kernel for variant in options):
        return "clients in guests cannot be stopped and continued instantly"
    if not all(variant.read_only for variant in options):
        return "delayed writes of one server would happen during the slices of another"
    if any(variant.huge_page_bytes or variant.transparent_huge_pages is not None for variant in options):
        return "huge pages are a setting of the whole host"
    if any(variant.cpu_mode == "cpuset" for variant in options):
        return "with --cpu-mode cpuset each server would run on different CPUs"
    if any(variant.volumes for variant in options):
        return "their volumes would be used by all servers at once, and might be too small for all of them"
    return ""


def _no_disk(prepared: Mapping[str, PreparedStudy]) -> str:
    """Return the reason if the data of all servers does not fit on the disk, else an empty string."""
    need, free = disk(prepared), shutil.disk_usage(_existing(paths.cache_dir())).free
    if need + DISK_RESERVE_BYTES > free:
        return f"the servers need {format_bytes(need)} of disk at once, and {format_bytes(free)} are free"
    return ""


def _memory_limits(requests: Mapping[str, Model], prepared: Mapping[str, PreparedStudy]) -> tuple[dict[str, int | None], str]:
    """Return the memory limit of each variant's container, and the reason if the memory is insufficient ('' if it is sufficient).

    A limit that the user sets stays. The other variants share the remaining memory, because default limits are generous.
    """
    baseline = next(iter(prepared))
    budget = min(variant.environment.memory for variant in prepared.values())
    limits = {name: _options(variant).container_memory for name, variant in prepared.items()}
    fixed = {name: variant.memory for name, variant in prepared.items() if limits[name] is None or getattr(requests[name], "memory", None)}
    times = {name: 2 if name == baseline else 1 for name in prepared}
    free = sum(count for name, count in times.items() if name not in fixed)
    remaining = budget - sum(need * times[name] for name, need in fixed.items())
    share = remaining // max(free, 1) // _ROUND * _ROUND
    minimum = {name: _needed(_options(variant)) for name, variant in prepared.items() if name not in fixed}
    if remaining < 0 or any(need > share for need in minimum.values()):
        need = sum({**minimum, **fixed}[name] * count for name, count in times.items())
        return (
            {},
            f"the servers need {format_bytes(need)} of memory at once, and the host's budget is {format_bytes(budget)} (--host-memory)",
        )
    return {name: limit if limit is None or name in fixed else min(limit, share) for name, limit in limits.items()}, ""


def _needed(options: DatabaseOptions) -> int:
    """Return the memory in bytes of a server with its database cached, in shared buffers or in the page cache."""
    size = parse_buffers(options.settings.get("shared_buffers", "128MB"))
    data = (find(options.workload).size_estimate(options.scale) or 0) if options.init is None else 0
    return memory_needed(max(size, data), getattr(options, "clients", 1))


def _options(variant: PreparedStudy) -> DatabaseOptions:
    assert isinstance(variant.options, DatabaseOptions)
    return variant.options


def with_sampling(options: Model) -> Model:
    """Return the options of a variant with enough logged transactions to count those of each slice."""
    assert isinstance(options, DatabaseOptions)
    return options.model_copy(update={"sampling": max(options.sampling, MIN_SAMPLED_SHARE)})


def disk(prepared: Mapping[str, PreparedStudy]) -> int:
    """Return the disk space in bytes of all servers, including the second one of the baseline.

    The value of each variant includes a template and the data directory of one server.
    """
    return sum(variant.disk for variant in prepared.values()) + next(iter(prepared.values())).disk // 2


def memory(prepared: Mapping[str, PreparedStudy], limits_by_variant: Mapping[str, int | None]) -> int:
    """Return the memory in bytes of all servers with these memory limits, including the second server of the baseline."""
    each = {name: limits_by_variant.get(name) or variant.memory for name, variant in prepared.items()}
    return sum(each.values()) + each[next(iter(prepared))]


def _existing(path: Path) -> Path:
    return next(directory for directory in (path, *path.parents) if directory.exists())
