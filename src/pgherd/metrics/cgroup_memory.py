"""Memory of a container's control group: what is charged to it, and whether it has too little.

The group around all containers (entity ``budget``) is read in the same way: what is charged to it, its limit and what it has swapped.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics import accounting
from pgherd.metrics.accounting import BUDGET
from pgherd.metrics.keyed import cadence, flat_keyed, number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_V1_STAT = {
    "total_rss": "memory.anon",
    "total_cache": "memory.file",
    "total_shmem": "memory.shmem",
    "total_swap": "memory.swap",
    "total_workingset_refault_file": "memory.refault_file",
    "total_workingset_refault_anon": "memory.refault_anon",
    "total_pgfault": "memory.fault",
    "total_pgmajfault": "memory.majfault",
    "total_active_file": "memory.active_file",
    "total_inactive_file": "memory.inactive_file",
    "total_pswpin": "memory.swap_in",
    "total_pswpout": "memory.swap_out",
}
_V2_STAT = {
    "anon": "memory.anon",
    "file": "memory.file",
    "shmem": "memory.shmem",
    "kernel": "memory.kernel",
    "workingset_refault_file": "memory.refault_file",
    "workingset_refault_anon": "memory.refault_anon",
    "pgfault": "memory.fault",
    "pgmajfault": "memory.majfault",
    "active_file": "memory.active_file",
    "inactive_file": "memory.inactive_file",
    "pswpin": "memory.swap_in",
    "pswpout": "memory.swap_out",
    "zswap": "memory.zswap",
    "zswapped": "memory.zswapped",
}
_FILES = {
    "v1": (
        ("usage", "memory.usage_in_bytes", False),
        ("v1 stat", "memory.stat", True),
        ("kernel", "memory.kmem.usage_in_bytes", True),
        ("events", "memory.oom_control", True),
    ),
    "v2": (
        ("usage", "memory.current", False),
        ("swap", "memory.swap.current", True),
        ("v2 stat", "memory.stat", True),
        ("events", "memory.events", True),
    ),
}
"""(tag, file, whether it is read less often in a herd)."""
_LIMITS = {"v1": "memory.limit_in_bytes", "v2": "memory.max"}
_SINGLE = {"usage": "memory.usage", "swap": "memory.swap", "kernel": "memory.kernel", "limit": "memory.limit"}
_UNLIMITED = 1 << 60
"""v1 writes 'no limit' as the largest page-aligned count; anything near it is no limit."""


class CgroupMemorySampler:
    """cgroup v1 and v2; v1 where a container has both.

    Kernels before 5.9 do not split refaults, v1 has no swap-in and swap-out of a group, and v2 has them since Linux 6.13; what is not
    counted is absent. Shared buffers are shared memory, which the kernel counts within the page cache.
    """

    name = "cgroup_memory"
    metrics = (
        Metric("memory.usage", "bytes", "gauge", "all that is charged to the group, page cache included"),
        Metric("memory.anon", "bytes", "gauge", "anonymous memory"),
        Metric("memory.file", "bytes", "gauge", "page cache, shared memory included"),
        Metric("memory.shmem", "bytes", "gauge", "shared memory and tmpfs"),
        Metric("memory.active_file", "bytes", "gauge", "page cache of files that was used more than once of late"),
        Metric("memory.inactive_file", "bytes", "gauge", "page cache of files that goes first"),
        Metric("memory.kernel", "bytes", "gauge", "the kernel's own, for the group: page tables, inodes, sockets"),
        Metric("memory.swap", "bytes", "gauge", "swapped out"),
        Metric("memory.zswap", "bytes", "gauge", "memory that the compressed swap cache takes"),
        Metric("memory.zswapped", "bytes", "gauge", "swapped out into the compressed swap cache, before compression"),
        Metric("memory.swap_in", "pages", "counter", "swapped in"),
        Metric("memory.swap_out", "pages", "counter", "swapped out"),
        Metric("memory.refault_file", "pages", "counter", "file pages read again after they had been evicted"),
        Metric("memory.refault_anon", "pages", "counter", "anonymous pages swapped in again after they had been evicted"),
        Metric("memory.fault", "faults", "counter", "page faults, those that needed no I/O included"),
        Metric("memory.majfault", "faults", "counter", "page faults that needed I/O"),
        Metric("memory.oom_kills", "kills", "counter", "processes that the kernel ended for want of memory"),
        Metric("memory.limit", "bytes", "gauge", "what the group may be charged for at most"),
    )

    def sources(self, view: View) -> list[Source]:
        """Four files of each group; of the one around all containers its limit too."""
        slow = cadence(len(view.containers))
        found: list[Source] = []
        # The budget first: its containers follow within a millisecond, and their sum is held against it.
        for entity, groups in [(BUDGET, view.budget), *((f"container:{one.name}", one.groups) for one in view.containers)]:
            place = accounting.memory(groups)
            if place is None:
                continue
            for tag, file, slowly in _FILES[place.version]:
                found.append(Source(self.name, entity, "file", f"{place.directory}/{file}", every=slow if slowly else 1, tag=tag))
            if entity == BUDGET:
                found.append(Source(self.name, entity, "file", f"{place.directory}/{_LIMITS[place.version]}", tag="limit"))
        return found

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading per file; none of a limit that is none."""
        if source.tag == "limit" and raw.strip() == "max":
            return
        if source.tag in _SINGLE:
            values = {_SINGLE[source.tag]: number(raw.strip())}
            if source.tag == "limit" and values["memory.limit"] >= _UNLIMITED:
                return
        elif source.tag == "events":
            values = flat_keyed(raw, {"oom_kill": "memory.oom_kills"})
        else:
            values = flat_keyed(raw, _V1_STAT if source.tag == "v1 stat" else _V2_STAT)
        yield source.entity, values


SAMPLER = CgroupMemorySampler()
