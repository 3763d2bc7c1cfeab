"""CPU, memory, pressure, swap and the kernel's I/O threads of the host, from /proc. A guest's own files are read in the same way.

Pressure is also read for containers and for the run cgroup. Of a compressed swap device (zram), /sys has more.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from pgherd.host.kernel_files import TICKS, flat_keyed, nested_keyed, number, unescape
from pgherd.metrics.cgroup import run_cgroup_and_containers
from pgherd.metrics.sampler import Reading, SampledMetric, SamplingView, cadence
from pgherd.node.protocol import SampleSource

_CPU_COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_BLOCK_SOFTIRQ = 5
"""Column of block I/O in the line ``softirq``: after the total, HI, TIMER, NET_TX and NET_RX."""
_STAT_LINES = {
    "ctxt": "context_switches",
    "processes": "forks",
    "procs_running": "procs_running",
    "procs_blocked": "procs_blocked",
}


class CpuSampler:
    """CPU time of the CPUs together, context switches and forks, from /proc/stat (proc(5)).

    The CPUs are those that pgherd may use. /proc/stat has all, also in a container that is limited to some of them.

    The kernel counts guest time in user and nice, and again in two guest columns. Here it is counted once: ``cpu.user``
    includes all guest time, ``cpu.nice`` excludes it. The eight metrics therefore add up to the time of ``cpu.online``
    CPUs. A kernel that counts by ticks loses some time, because it samples busy time and measures idle time
    (``CONFIG_TICK_CPU_ACCOUNTING``).
    """

    name = "cpu"
    metrics = (
        SampledMetric("cpu.user", "s", "counter", "CPU time in user mode, guests included"),
        SampledMetric("cpu.nice", "s", "counter", "CPU time in user mode at low priority, guests excluded"),
        SampledMetric("cpu.system", "s", "counter", "CPU time in the kernel, interrupts excluded"),
        SampledMetric("cpu.idle", "s", "counter", "CPU time idle"),
        SampledMetric("cpu.iowait", "s", "counter", "CPU time idle while a task of that CPU waited for I/O"),
        SampledMetric("cpu.irq", "s", "counter", "CPU time in hardware interrupts"),
        SampledMetric("cpu.softirq", "s", "counter", "CPU time in soft interrupts"),
        SampledMetric("cpu.steal", "s", "counter", "time in which this host was ready to run, but the hypervisor ran another guest"),
        SampledMetric("cpu.online", "CPUs", "gauge", "online CPUs that pgherd may use"),
        SampledMetric("context_switches", "switches", "counter", "context switches"),
        SampledMetric("forks", "tasks", "counter", "tasks created"),
        SampledMetric("softirqs.other", "events", "counter", "soft interrupts of other kinds than block I/O"),
        SampledMetric("procs_running", "tasks", "gauge", "runnable tasks"),
        SampledMetric("procs_blocked", "tasks", "gauge", "tasks blocked on I/O"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [SampleSource(self.name, "host", "file", "/proc/stat", tag=",".join(map(str, view.cpus)))]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading. Columns that an old kernel lacks are zero."""
        values: dict[str, float] = {}
        counted = {f"cpu{cpu}" for cpu in source.tag.split(",")}  # without numbers the line of all CPUs
        online = 0
        for line in raw.splitlines():
            key, _, remainder = line.partition(" ")
            if key in counted:
                columns = [number(text) / TICKS for text in remainder.split()[: len(_CPU_COLUMNS)]]
                times = dict(zip(_CPU_COLUMNS, columns + [0.0] * (len(_CPU_COLUMNS) - len(columns)), strict=True))
                times["user"] += times["guest_nice"]
                times["nice"] = max(0.0, times["nice"] - times["guest_nice"])
                values |= {f"cpu.{name}": values.get(f"cpu.{name}", 0.0) + times[name] for name in _CPU_COLUMNS[:8]}
            if key.startswith("cpu") and key[3:].isdigit():
                online += not source.tag or key in counted
            elif key == "softirq":
                counts = [number(text) for text in remainder.split()]
                values["softirqs.other"] = counts[0] - (counts[_BLOCK_SOFTIRQ] if len(counts) > _BLOCK_SOFTIRQ else 0.0)
            elif key in _STAT_LINES:
                values[_STAT_LINES[key]] = number(remainder.strip())
        if "cpu.user" not in values:
            raise ValueError(f"no 'cpu' line in a text that begins with '{raw[:40]}'")
        if online:
            values["cpu.online"] = float(online)
        yield source.entity, values


_MEMINFO = {
    "MemTotal": "memory.total",
    "MemAvailable": "memory.available",
    "MemFree": "memory.free",
    "Cached": "memory.cached",
    "Buffers": "memory.buffers",
    "Dirty": "memory.dirty",
    "Writeback": "memory.writeback",
    "Shmem": "memory.shmem",
    "PageTables": "memory.page_tables",
    "Hugetlb": "memory.hugetlb",
    "SwapTotal": "memory.swap_total",
    "SwapFree": "memory.swap_free",
    "Zswap": "memory.zswap",
    "Zswapped": "memory.zswapped",
}


class MemorySampler:
    """Gauges of /proc/meminfo in bytes. A value that the kernel lacks (Zswap before 5.19) is absent."""

    name = "memory"
    metrics = (
        SampledMetric("memory.total", "bytes", "gauge", "memory managed by the kernel"),
        SampledMetric("memory.available", "bytes", "gauge", "the kernel's estimate of memory that can be used without swapping"),
        SampledMetric("memory.free", "bytes", "gauge", "unused memory"),
        SampledMetric("memory.cached", "bytes", "gauge", "page cache, shared memory included, swap cache excluded"),
        SampledMetric("memory.buffers", "bytes", "gauge", "page cache of block devices"),
        SampledMetric("memory.dirty", "bytes", "gauge", "memory that waits for writeback"),
        SampledMetric("memory.writeback", "bytes", "gauge", "memory under writeback"),
        SampledMetric("memory.shmem", "bytes", "gauge", "shared memory and tmpfs"),
        SampledMetric("memory.page_tables", "bytes", "gauge", "page tables of all processes"),
        SampledMetric("memory.hugetlb", "bytes", "gauge", "reserved huge pages of all sizes, used and unused"),
        SampledMetric("memory.swap_total", "bytes", "gauge", "swap space"),
        SampledMetric("memory.swap_free", "bytes", "gauge", "unused swap space"),
        SampledMetric("memory.zswap", "bytes", "gauge", "memory used by the compressed swap cache"),
        SampledMetric("memory.zswapped", "bytes", "gauge", "memory swapped out into the compressed swap cache, before compression"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [SampleSource(self.name, "host", "file", "/proc/meminfo")]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        # The file counts in kB of 1024 bytes.
        yield source.entity, flat_keyed(raw, _MEMINFO, 1024)


_VMSTAT = {
    "pswpin": "vm.pswpin",
    "pswpout": "vm.pswpout",
    "pgfault": "vm.pgfault",
    "pgmajfault": "vm.pgmajfault",
    "workingset_refault_file": "vm.refault_file",
    "workingset_refault_anon": "vm.refault_anon",
    "pgscan_kswapd": "vm.pgscan_kswapd",
    "pgscan_direct": "vm.pgscan_direct",
    "zswpin": "vm.zswpin",
    "zswpout": "vm.zswpout",
    "oom_kill": "vm.oom_kill",
}


class VmstatSampler:
    """Swapping, faults, refaults and reclaim of the whole host, from /proc/vmstat. All are counts of pages or events, not bytes."""

    name = "vmstat"
    metrics = (
        SampledMetric("vm.pswpin", "pages", "counter", "pages swapped in"),
        SampledMetric("vm.pswpout", "pages", "counter", "pages swapped out"),
        SampledMetric("vm.pgfault", "faults", "counter", "page faults"),
        SampledMetric("vm.pgmajfault", "faults", "counter", "page faults that needed I/O"),
        SampledMetric("vm.refault_file", "pages", "counter", "file pages read again after their eviction"),
        SampledMetric("vm.refault_anon", "pages", "counter", "anonymous pages swapped in again after their eviction"),
        SampledMetric("vm.pgscan_kswapd", "pages", "counter", "pages scanned for reclaim by kswapd"),
        SampledMetric("vm.pgscan_direct", "pages", "counter", "pages scanned by processes that reclaimed memory directly"),
        SampledMetric("vm.zswpin", "pages", "counter", "pages taken out of the compressed swap cache"),
        SampledMetric("vm.zswpout", "pages", "counter", "pages put into the compressed swap cache"),
        SampledMetric("vm.oom_kill", "kills", "counter", "OOM kills"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        return [SampleSource(self.name, "host", "file", "/proc/vmstat")]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        yield source.entity, flat_keyed(raw, _VMSTAT)


_PRESSURE_KINDS = ("cpu", "memory", "io")


class PressureSampler:
    """Pressure stall information (PSI): time in which tasks waited for CPU, memory or I/O.

    "some" counts time in which at least one task waited, "full" time in which all non-idle tasks waited. The metrics are
    the ``total`` of each line in seconds. ``full`` is left out for CPU, because it has no meaning for the host. A
    container's files are in its v2 group, even if its controllers are in v1 hierarchies: pressure needs no controller.
    (Documentation/accounting/psi.rst of the kernel.)
    """

    name = "pressure"
    metrics = (
        SampledMetric("psi.cpu.some", "s", "counter", "time in which some task waited for a CPU or for its quota"),
        SampledMetric("psi.memory.some", "s", "counter", "time in which some task waited for memory"),
        SampledMetric("psi.memory.full", "s", "counter", "time in which all tasks waited for memory"),
        SampledMetric("psi.io.some", "s", "counter", "time in which some task waited for I/O"),
        SampledMetric("psi.io.full", "s", "counter", "time in which all tasks waited for I/O"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return three files of the host and of each v2 group."""
        sources = [SampleSource(self.name, "host", "file", f"/proc/pressure/{kind}", tag=kind) for kind in _PRESSURE_KINDS]
        slow = cadence(len(view.containers))
        for entity, groups in run_cgroup_and_containers(view):
            group = groups.get("v2")
            if group:
                sources += [
                    SampleSource(self.name, entity, "file", f"{group}/{kind}.pressure", every=slow, tag=kind) for kind in _PRESSURE_KINDS
                ]
        return sources

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        values: dict[str, float] = {}
        for share, fields in nested_keyed(raw).items():
            name = f"psi.{source.tag}.{share}"
            if share in ("some", "full") and name != "psi.cpu.full":
                values[name] = number(fields.get("total", "")) / 1e6  # microseconds
        if not values:
            raise ValueError(f"no pressure lines in a text that begins with '{raw[:40]}'")
        yield source.entity, values


CPU, PRESSURE = CpuSampler(), PressureSampler()


# ---- swap


SWAP_OURS = "swap:ours"
"""Entity of the swap area that the run has created."""


class SwapSampler:
    """Size and usage of each swap area, from /proc/swaps (proc(5)), if the run has created one.

    The area of the run has the entity ``SWAP_OURS``. Any other area is ``swap:NAME``, which shows whether pages went there. A guest's
    areas are ``guest-swap:GUEST/NAME``.
    """

    name = "swap"
    metrics = (
        SampledMetric("swap.size", "bytes", "gauge", "size of the area"),
        SampledMetric("swap.used", "bytes", "gauge", "used space in the area"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Return the file, with the path of the run's area as its tag."""
        return [] if view.swap is None else [SampleSource(self.name, "swap", "file", "/proc/swaps", tag=view.swap.path)]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading per area. The file counts in kB of 1024 bytes."""
        prefix = f"{source.entity}/" if source.entity.startswith("guest-swap:") else "swap:"
        lines = raw.splitlines()
        if not lines or not lines[0].startswith("Filename"):
            raise ValueError(f"'{raw[:40]}' is not the text of /proc/swaps")
        for line in lines[1:]:
            fields = line.split()
            if len(fields) < 5:
                raise ValueError(f"'{line[:40]}' is not a line of /proc/swaps")
            path = unescape(fields[0])
            entity = SWAP_OURS if path == source.tag and prefix == "swap:" else f"{prefix}{posixpath.basename(path)}"
            yield entity, {"swap.size": number(fields[-3]) * 1024, "swap.used": number(fields[-2]) * 1024}


_MM_STAT_COLUMNS = ("zram.orig_data", "zram.compr_data", "zram.mem_used", "zram.mem_limit", "zram.mem_used_max", "zram.same_pages")


class ZramSampler:
    """The first six columns of ``mm_stat`` (Documentation/admin-guide/blockdev/zram.rst of the kernel).

    The device serves the whole machine, so its values belong to no single container, and no container is charged for its
    memory. ``zram.orig_data ÷ zram.mem_used`` is the effective compression ratio, because it includes the allocator's loss.
    """

    name = "zram"
    metrics = (
        SampledMetric(
            "zram.orig_data", "bytes", "gauge", "memory swapped out to the device, before compression, without same-filled pages"
        ),
        SampledMetric("zram.compr_data", "bytes", "gauge", "memory swapped out to the device, after compression"),
        SampledMetric("zram.mem_used", "bytes", "gauge", "memory used by the device, allocator loss included"),
        SampledMetric("zram.mem_limit", "bytes", "gauge", "memory limit of the device; 0: no limit"),
        SampledMetric("zram.mem_used_max", "bytes", "gauge", "largest memory used by the device so far"),
        SampledMetric("zram.same_pages", "pages", "gauge", "same-filled pages, which take no memory"),
    )

    def sources(self, view: SamplingView) -> list[SampleSource]:
        if view.swap is None or view.swap.zram is None:
            return []
        return [SampleSource(self.name, f"zram:zram{view.swap.zram}", "file", f"/sys/block/zram{view.swap.zram}/mm_stat")]

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        fields = raw.split()
        if len(fields) < len(_MM_STAT_COLUMNS):
            raise ValueError(f"'{raw[:40]}' is not the text of mm_stat")
        yield source.entity, {name: number(text) for name, text in zip(_MM_STAT_COLUMNS, fields, strict=False)}


SWAP, ZRAM = SwapSampler(), ZramSampler()

KERNEL_IO_ENTITY = "platform:kernel-io"
"""Part of the platform. Its samples are the threads of the whole host; pgherd.study.kernel_io takes the share of the servers' devices."""


class KernelIoSampler:
    """Kernel threads of the block layer, writeback, journals and stacked devices. Interrupts are part of the entity ``host``."""

    name = "kernel_io"
    metrics = (SampledMetric("cpu.usage", "s", "counter", "CPU time used"),)

    def sources(self, view: SamplingView) -> list[SampleSource]:
        """Only where servers run. A guest's own threads are part of its container."""
        return [SampleSource(self.name, KERNEL_IO_ENTITY, "kernel-threads", "")] if view.servers else []

    def parse(self, raw: str, source: SampleSource) -> Iterator[Reading]:
        """Yield one reading. Names may contain spaces, so the last word of a line is the number of ticks."""
        yield source.entity, {"cpu.usage": sum(number(line.rpartition(" ")[2]) for line in raw.splitlines()) / TICKS}


SAMPLERS = (CPU, MemorySampler(), VmstatSampler(), PRESSURE, SWAP, ZRAM, KernelIoSampler())
