"""Memory of a container's control group: what is charged to it, and whether it has too little."""

from __future__ import annotations

from collections.abc import Iterator

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
}
_V2_STAT = {
    "anon": "memory.anon",
    "file": "memory.file",
    "shmem": "memory.shmem",
    "workingset_refault_file": "memory.refault_file",
    "workingset_refault_anon": "memory.refault_anon",
    "pgfault": "memory.fault",
    "pgmajfault": "memory.majfault",
}


class CgroupMemorySampler:
    """cgroup v1 (memory.usage_in_bytes, memory.stat with its sub-groups) and v2 (memory.current, memory.stat,
    memory.swap.current); v1 where a container has both. Kernels before 5.9 do not split refaults; then they are absent.
    """

    name = "cgroup_memory"
    metrics = (
        Metric("memory.usage", "bytes", "gauge", "all that is charged to the group, page cache included"),
        Metric("memory.anon", "bytes", "gauge", "anonymous memory"),
        Metric("memory.file", "bytes", "gauge", "page cache, shared memory included"),
        Metric("memory.shmem", "bytes", "gauge", "shared memory and tmpfs"),
        Metric("memory.swap", "bytes", "gauge", "swapped out"),
        Metric("memory.refault_file", "pages", "counter", "file pages read again after they had been evicted"),
        Metric("memory.refault_anon", "pages", "counter", "anonymous pages swapped in again after they had been evicted"),
        Metric("memory.fault", "faults", "counter", "page faults, those that needed no I/O included"),
        Metric("memory.majfault", "faults", "counter", "page faults that needed I/O"),
    )

    def sources(self, view: View) -> list[Source]:
        """Two files of a v1 group, three of a v2 group."""
        slow = cadence(len(view.containers))
        found: list[Source] = []
        for container in view.containers:
            entity, v1, v2 = f"container:{container.name}", container.groups.get("memory"), container.groups.get("v2")
            if v1:
                found.append(Source(self.name, entity, "file", f"{v1}/memory.usage_in_bytes", tag="usage"))
                found.append(Source(self.name, entity, "file", f"{v1}/memory.stat", every=slow, tag="v1 stat"))
            elif v2:
                found.append(Source(self.name, entity, "file", f"{v2}/memory.current", tag="usage"))
                found.append(Source(self.name, entity, "file", f"{v2}/memory.swap.current", every=slow, tag="swap"))
                found.append(Source(self.name, entity, "file", f"{v2}/memory.stat", every=slow, tag="v2 stat"))
        return found

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading per file."""
        if source.tag == "usage":
            values = {"memory.usage": number(raw.strip())}
        elif source.tag == "swap":
            values = {"memory.swap": number(raw.strip())}
        else:
            values = flat_keyed(raw, _V1_STAT if source.tag == "v1 stat" else _V2_STAT)
        yield source.entity, values


SAMPLER = CgroupMemorySampler()
