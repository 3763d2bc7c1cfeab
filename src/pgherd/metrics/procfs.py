"""CPU time, memory, paging and pressure of the host, from /proc. A guest's own files are read in the same way.

Pressure is also read for containers and for the run cgroup.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.cgroup import run_cgroup_and_containers
from pgherd.metrics.keyed import TICKS, cadence, flat_keyed, nested_keyed, number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_CPU_COLUMNS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_STAT_LINES = {
    "ctxt": "context_switches",
    "processes": "forks",
    "procs_running": "procs_running",
    "procs_blocked": "procs_blocked",
}


class CpuSampler:
    """CPU time of all CPUs together, context switches and forks, from /proc/stat (proc(5)).

    The kernel counts guest time in user and nice, and again in two guest columns. Here it is counted once: ``cpu.user``
    includes all guest time, ``cpu.nice`` excludes it. The eight metrics therefore add up to the time of ``cpu.online``
    CPUs. A kernel that counts by ticks loses some time, because it samples busy time and measures idle time
    (``CONFIG_TICK_CPU_ACCOUNTING``).
    """

    name = "cpu"
    metrics = (
        Metric("cpu.user", "s", "counter", "CPU time in user mode, guests included"),
        Metric("cpu.nice", "s", "counter", "CPU time in user mode at low priority, guests excluded"),
        Metric("cpu.system", "s", "counter", "CPU time in the kernel, interrupts excluded"),
        Metric("cpu.idle", "s", "counter", "CPU time idle"),
        Metric("cpu.iowait", "s", "counter", "CPU time idle while a task of that CPU waited for I/O"),
        Metric("cpu.irq", "s", "counter", "CPU time in hardware interrupts"),
        Metric("cpu.softirq", "s", "counter", "CPU time in soft interrupts"),
        Metric("cpu.steal", "s", "counter", "time in which this host was ready to run, but the hypervisor ran another guest"),
        Metric("cpu.online", "CPUs", "gauge", "online CPUs"),
        Metric("context_switches", "switches", "counter", "context switches"),
        Metric("forks", "tasks", "counter", "tasks created"),
        Metric("procs_running", "tasks", "gauge", "runnable tasks"),
        Metric("procs_blocked", "tasks", "gauge", "tasks blocked on I/O"),
    )

    def sources(self, view: View) -> list[Source]:
        return [Source(self.name, "host", "file", "/proc/stat")]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """Yield one reading. Columns that an old kernel lacks are zero."""
        values: dict[str, float] = {}
        online = 0
        for line in raw.splitlines():
            key, _, remainder = line.partition(" ")
            if key == "cpu":
                columns = [number(text) / TICKS for text in remainder.split()[: len(_CPU_COLUMNS)]]
                times = dict(zip(_CPU_COLUMNS, columns + [0.0] * (len(_CPU_COLUMNS) - len(columns)), strict=True))
                times["user"] += times["guest_nice"]
                times["nice"] = max(0.0, times["nice"] - times["guest_nice"])
                values |= {f"cpu.{name}": times[name] for name in _CPU_COLUMNS[:8]}
            elif key.startswith("cpu") and key[3:].isdigit():
                online += 1
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
        Metric("memory.total", "bytes", "gauge", "memory managed by the kernel"),
        Metric("memory.available", "bytes", "gauge", "the kernel's estimate of memory that can be used without swapping"),
        Metric("memory.free", "bytes", "gauge", "unused memory"),
        Metric("memory.cached", "bytes", "gauge", "page cache, shared memory included, swap cache excluded"),
        Metric("memory.buffers", "bytes", "gauge", "page cache of block devices"),
        Metric("memory.dirty", "bytes", "gauge", "memory that waits for writeback"),
        Metric("memory.writeback", "bytes", "gauge", "memory under writeback"),
        Metric("memory.shmem", "bytes", "gauge", "shared memory and tmpfs"),
        Metric("memory.page_tables", "bytes", "gauge", "page tables of all processes"),
        Metric("memory.hugetlb", "bytes", "gauge", "reserved huge pages of all sizes, used and unused"),
        Metric("memory.swap_total", "bytes", "gauge", "swap space"),
        Metric("memory.swap_free", "bytes", "gauge", "unused swap space"),
        Metric("memory.zswap", "bytes", "gauge", "memory used by the compressed swap cache"),
        Metric("memory.zswapped", "bytes", "gauge", "memory swapped out into the compressed swap cache, before compression"),
    )

    def sources(self, view: View) -> list[Source]:
        return [Source(self.name, "host", "file", "/proc/meminfo")]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
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
        Metric("vm.pswpin", "pages", "counter", "pages swapped in"),
        Metric("vm.pswpout", "pages", "counter", "pages swapped out"),
        Metric("vm.pgfault", "faults", "counter", "page faults"),
        Metric("vm.pgmajfault", "faults", "counter", "page faults that needed I/O"),
        Metric("vm.refault_file", "pages", "counter", "file pages read again after their eviction"),
        Metric("vm.refault_anon", "pages", "counter", "anonymous pages swapped in again after their eviction"),
        Metric("vm.pgscan_kswapd", "pages", "counter", "pages scanned for reclaim by kswapd"),
        Metric("vm.pgscan_direct", "pages", "counter", "pages scanned by processes that reclaimed memory directly"),
        Metric("vm.zswpin", "pages", "counter", "pages taken out of the compressed swap cache"),
        Metric("vm.zswpout", "pages", "counter", "pages put into the compressed swap cache"),
        Metric("vm.oom_kill", "kills", "counter", "OOM kills"),
    )

    def sources(self, view: View) -> list[Source]:
        return [Source(self.name, "host", "file", "/proc/vmstat")]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
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
        Metric("psi.cpu.some", "s", "counter", "time in which some task waited for a CPU or for its quota"),
        Metric("psi.memory.some", "s", "counter", "time in which some task waited for memory"),
        Metric("psi.memory.full", "s", "counter", "time in which all tasks waited for memory"),
        Metric("psi.io.some", "s", "counter", "time in which some task waited for I/O"),
        Metric("psi.io.full", "s", "counter", "time in which all tasks waited for I/O"),
    )

    def sources(self, view: View) -> list[Source]:
        """Return three files of the host and of each v2 group."""
        sources = [Source(self.name, "host", "file", f"/proc/pressure/{kind}", tag=kind) for kind in _PRESSURE_KINDS]
        slow = cadence(len(view.containers))
        for entity, groups in run_cgroup_and_containers(view):
            group = groups.get("v2")
            if group:
                sources += [Source(self.name, entity, "file", f"{group}/{kind}.pressure", every=slow, tag=kind) for kind in _PRESSURE_KINDS]
        return sources

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        values: dict[str, float] = {}
        for share, fields in nested_keyed(raw).items():
            name = f"psi.{source.tag}.{share}"
            if share in ("some", "full") and name != "psi.cpu.full":
                values[name] = number(fields.get("total", "")) / 1e6  # microseconds
        if not values:
            raise ValueError(f"no pressure lines in a text that begins with '{raw[:40]}'")
        yield source.entity, values


CPU, PRESSURE = CpuSampler(), PressureSampler()
SAMPLERS = (CPU, MemorySampler(), VmstatSampler(), PRESSURE)
