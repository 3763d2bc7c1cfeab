"""CPU, memory and I/O of cgroups: of each container, and of the run cgroup around all of them.

The run cgroup (entity ``run-cgroup``) has the same memory files as a container. Its limit is read too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from pgherd.host.kernel_files import TICKS, flat_keyed, nested_keyed, number
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView, cadence
from pgherd.node.protocol import SampleSource

RUN_CGROUP = "run-cgroup"
"""Entity of the run cgroup."""
LOCKED = "locked-memory"
"""Name of the idle container whose memory is locked, if the run withholds memory in that way."""


class Accounting(NamedTuple):
    """Cgroup hierarchy that counts a resource, and the directory of the container's group in it."""

    version: Literal["v1", "v2"]
    directory: str


def cpu(groups: Mapping[str, str]) -> Accounting | None:
    """Return the group that counts CPU time, or None. ``groups`` maps controllers to directories, as in ``ContainerView``."""
    return _accounting(groups, "cpuacct")


def memory(groups: Mapping[str, str]) -> Accounting | None:
    """Return the group that is charged for memory, or None. ``groups`` maps controllers to directories, as in ``ContainerView``."""
    return _accounting(groups, "memory")


def _accounting(groups: Mapping[str, str], controller: str) -> Accounting | None:
    # A container in both hierarchies is counted by v1, because a controller belongs to one hierarchy only.
    if groups.get(controller):
        return Accounting("v1", groups[controller])
    return Accounting("v2", groups["v2"]) if groups.get("v2") else None


def run_cgroup_and_containers(view: SamplingView) -> list[tuple[str, Mapping[str, str]]]:
    """Return entity and groups of the run cgroup and of each container.

    The run cgroup is first. Its containers are then read within a millisecond, and their sum is compared with it.
    """
    return [(RUN_CGROUP, view.run_cgroup), *((f"container:{container.name}", container.groups) for container in view.containers)]


_CPU_V1_STAT = {"user": "cpu.user", "system": "cpu.system"}
_CPU_PERIODS = {"nr_periods": "cpu.periods", "nr_throttled": "cpu.throttled_periods"}
_CPU_V2_TIMES = {"usage_usec": "cpu.usage", "user_usec": "cpu.user", "system_usec": "cpu.system", "throttled_usec": "cpu.throttled"}


class CgroupCpuSampler:
    """CPU time and throttling from cgroup v1 (cpuacct.usage, cpuacct.stat, cpu.stat) or v2 (cpu.stat).

    v1 counts user and system time in the kernel's tick (10 ms), and usage in nanoseconds.
    """

    name = "cgroup_cpu"
    metrics = (
        SampledMetric("cpu.usage", "s", "counter", "CPU time used"),
        SampledMetric("cpu.user", "s", "counter", "CPU time in user mode, guests included"),
        SampledMetric("cpu.system", "s", "counter", "CPU time in the kernel"),
        SampledMetric("cpu.throttled", "s", "counter", "time in which the quota throttled tasks, summed over CPUs"),
        SampledMetric("cpu.periods", "periods", "counter", "quota periods with running tasks"),
        SampledMetric("cpu.throttled_periods", "periods", "counter", "quota periods with throttled tasks"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return three files of a v1 group, one of a v2 group, and only the usage of groups that are no containers."""
        slow = cadence(len(view.containers))
        sources: list[SampleSource] = []
        for container in view.containers:
            entity, groups = f"container:{container.name}", container.groups
            sources += self._usage(entity, groups)
            accounting = cpu(groups)
            if accounting is not None and accounting.version == "v1":
                sources.append(SampleSource(self.name, entity, "file", f"{accounting.directory}/cpuacct.stat", every=slow, tag="v1 stat"))
                if groups.get("cpu"):
                    sources.append(SampleSource(self.name, entity, "file", f"{groups['cpu']}/cpu.stat", tag="v1 throttling"))
        for group in view.groups:
            sources += self._usage(group.entity, group.groups)
        return sources

    def _usage(self, entity: str, groups: Mapping[str, str]) -> list[SampleSource]:
        accounting = cpu(groups)
        if accounting is None:
            return []
        file, tag = ("cpuacct.usage", "v1 usage") if accounting.version == "v1" else ("cpu.stat", "v2")
        return [SampleSource(self.name, entity, "file", f"{accounting.directory}/{file}", tag=tag)]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        if source.tag == "v1 usage":
            values = {"cpu.usage": number(raw.strip()) / 1e9}
        elif source.tag == "v1 stat":
            values = flat_keyed(raw, _CPU_V1_STAT, 1 / TICKS)
        elif source.tag == "v1 throttling":
            values = flat_keyed(raw, _CPU_PERIODS) | flat_keyed(raw, {"throttled_time": "cpu.throttled"}, 1e-9)
        else:
            values = flat_keyed(raw, _CPU_V2_TIMES, 1e-6)
            if "nr_periods" in raw:
                values |= flat_keyed(raw, _CPU_PERIODS)
        yield source.entity, values


_MEMORY_V1_STAT = {
    "total_rss": "memory.anon",
    "total_cache": "memory.file",
    "total_shmem": "memory.shmem",
    "total_swap": "memory.swap",
    "total_workingset_refault_file": "memory.refaults_file",
    "total_workingset_refault_anon": "memory.refaults_anon",
    "total_pgfault": "memory.page_faults",
    "total_pgmajfault": "memory.major_page_faults",
    "total_active_file": "memory.active_file",
    "total_inactive_file": "memory.inactive_file",
    "total_pswpin": "memory.swapped_in_pages",
    "total_pswpout": "memory.swapped_out_pages",
}
_MEMORY_V2_STAT = {
    "anon": "memory.anon",
    "file": "memory.file",
    "shmem": "memory.shmem",
    "kernel": "memory.kernel",
    "workingset_refault_file": "memory.refaults_file",
    "workingset_refault_anon": "memory.refaults_anon",
    "pgfault": "memory.page_faults",
    "pgmajfault": "memory.major_page_faults",
    "active_file": "memory.active_file",
    "inactive_file": "memory.inactive_file",
    "pswpin": "memory.swapped_in_pages",
    "pswpout": "memory.swapped_out_pages",
    "zswap": "memory.zswap",
    "zswapped": "memory.zswapped",
}
_MEMORY_FILES = {
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
"""(tag, file, True if it is read less often with many containers)."""
_LIMIT_FILES = {"v1": "memory.limit_in_bytes", "v2": "memory.max"}
_SINGLE_VALUES = {"usage": "memory.usage", "swap": "memory.swap", "kernel": "memory.kernel", "limit": "memory.limit"}
_UNLIMITED = 1 << 60
"""v1 writes 'no limit' as the largest page-aligned count. Values from here on mean that there is no limit."""


class CgroupMemorySampler:
    """Charged memory, refaults and OOM kills from cgroup v1 or v2.

    A value that the kernel does not count is absent. Kernels before 5.9 do not split refaults. v1 has no swap-in and
    swap-out per group, and v2 has them since Linux 6.13. Shared buffers are shared memory, which the kernel counts as
    page cache.
    """

    name = "cgroup_memory"
    metrics = (
        SampledMetric("memory.usage", "bytes", "gauge", "charged memory, page cache included"),
        SampledMetric("memory.anon", "bytes", "gauge", "anonymous memory"),
        SampledMetric("memory.file", "bytes", "gauge", "page cache, shared memory included"),
        SampledMetric("memory.shmem", "bytes", "gauge", "shared memory and tmpfs"),
        SampledMetric("memory.active_file", "bytes", "gauge", "active file pages"),
        SampledMetric("memory.inactive_file", "bytes", "gauge", "inactive file pages, which are reclaimed first"),
        SampledMetric("memory.kernel", "bytes", "gauge", "kernel memory: page tables, inodes, sockets"),
        SampledMetric("memory.swap", "bytes", "gauge", "swapped-out memory"),
        SampledMetric("memory.zswap", "bytes", "gauge", "memory used by the compressed swap cache"),
        SampledMetric("memory.zswapped", "bytes", "gauge", "memory swapped out into the compressed swap cache, before compression"),
        SampledMetric("memory.swapped_in_pages", "pages", "counter", "pages swapped in"),
        SampledMetric("memory.swapped_out_pages", "pages", "counter", "pages swapped out"),
        SampledMetric("memory.refaults_file", "pages", "counter", "file pages read again after their eviction"),
        SampledMetric("memory.refaults_anon", "pages", "counter", "anonymous pages swapped in again after their eviction"),
        SampledMetric("memory.page_faults", "faults", "counter", "page faults with and without I/O"),
        SampledMetric("memory.major_page_faults", "faults", "counter", "page faults that needed I/O"),
        SampledMetric("memory.oom_kills", "kills", "counter", "OOM kills"),
        SampledMetric("memory.limit", "bytes", "gauge", "memory limit"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return four files of each group, and the limit of the run cgroup."""
        slow = cadence(len(view.containers))
        sources: list[SampleSource] = []
        for entity, groups in run_cgroup_and_containers(view):
            accounting = memory(groups)
            if accounting is None:
                continue
            for tag, file, slowly in _MEMORY_FILES[accounting.version]:
                sources.append(
                    SampleSource(self.name, entity, "file", f"{accounting.directory}/{file}", every=slow if slowly else 1, tag=tag)
                )
            if entity == RUN_CGROUP:
                sources.append(
                    SampleSource(self.name, entity, "file", f"{accounting.directory}/{_LIMIT_FILES[accounting.version]}", tag="limit")
                )
        return sources

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading per file, but none for an unlimited group's limit."""
        if source.tag == "limit" and raw.strip() == "max":
            return
        if source.tag in _SINGLE_VALUES:
            values = {_SINGLE_VALUES[source.tag]: number(raw.strip())}
            if source.tag == "limit" and values["memory.limit"] >= _UNLIMITED:
                return
        elif source.tag == "events":
            values = flat_keyed(raw, {"oom_kill": "memory.oom_kills"})
        else:
            values = flat_keyed(raw, _MEMORY_V1_STAT if source.tag == "v1 stat" else _MEMORY_V2_STAT)
        yield source.entity, values


class CgroupIoSampler:
    """Block I/O of external servers' cgroups: io.stat of v2, or the blkio controller of v1.

    The sum is over devices. A device made of others (LVM, RAID) is counted, and some kernels count the others too. v1 counts
    writes of the page cache for the group of the kernel's writeback thread, not for the server's.
    """

    name = "cgroup_io"
    metrics = (
        SampledMetric("reads", "requests", "counter", "read requests"),
        SampledMetric("writes", "requests", "counter", "write requests"),
        SampledMetric("read_bytes", "bytes", "counter", "data read from devices"),
        SampledMetric("write_bytes", "bytes", "counter", "data written to devices"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return one file of a v2 group and two of a v1 group, for containers whose group names an I/O controller."""
        slow = cadence(len(view.containers))
        sources = []
        for container in view.containers:
            entity, groups = f"container:{container.name}", container.groups
            if groups.get("io"):
                sources.append(SampleSource(self.name, entity, "file", f"{groups['io']}/io.stat", every=slow, tag="v2"))
            elif groups.get("blkio"):
                sources += [
                    SampleSource(self.name, entity, "file", f"{groups['blkio']}/blkio.throttle.{file}_recursive", every=slow, tag=tag)
                    for tag, file in (("v1 requests", "io_serviced"), ("v1 bytes", "io_service_bytes"))
                ]
        return sources

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading per file. A group that has done no I/O has an empty io.stat."""
        if source.tag == "v2":
            devices = nested_keyed(raw).values()
            names = {"rios": "reads", "wios": "writes", "rbytes": "read_bytes", "wbytes": "write_bytes"}
            yield source.entity, {name: sum(number(device.get(key, "0")) for device in devices) for key, name in names.items()}
            return
        suffix = "s" if source.tag == "v1 requests" else "_bytes"
        values = {f"read{suffix}": 0.0, f"write{suffix}": 0.0}
        for line in raw.splitlines():
            fields = line.split()
            if len(fields) == 3 and fields[1] in ("Read", "Write"):
                values[f"{fields[1].lower()}{suffix}"] += number(fields[2])
        yield source.entity, values


CGROUP_CPU, CGROUP_MEMORY, CGROUP_IO = CgroupCpuSampler(), CgroupMemorySampler(), CgroupIoSampler()
SAMPLERS = (CGROUP_CPU, CGROUP_MEMORY, CGROUP_IO)
