"""The host's paging, from /proc/vmstat. All are counts of pages or events, not bytes."""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.keyed import flat_keyed
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_WANTED = {
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
    """Swapping, faults, refaults and reclaim of the whole host, whoever caused them."""

    name = "vmstat"
    metrics = (
        Metric("vm.pswpin", "pages", "counter", "swapped in"),
        Metric("vm.pswpout", "pages", "counter", "swapped out"),
        Metric("vm.pgfault", "faults", "counter", "page faults"),
        Metric("vm.pgmajfault", "faults", "counter", "page faults that needed I/O"),
        Metric("vm.refault_file", "pages", "counter", "file pages read again after they had been evicted"),
        Metric("vm.refault_anon", "pages", "counter", "anonymous pages swapped in again after they had been evicted"),
        Metric("vm.pgscan_kswapd", "pages", "counter", "scanned by kswapd in search of memory"),
        Metric("vm.pgscan_direct", "pages", "counter", "scanned by a process that had to reclaim memory itself"),
        Metric("vm.zswpin", "pages", "counter", "taken out of the compressed swap cache"),
        Metric("vm.zswpout", "pages", "counter", "put into the compressed swap cache"),
        Metric("vm.oom_kill", "kills", "counter", "processes killed for want of memory"),
    )

    def sources(self, view: View) -> list[Source]:
        """/proc/vmstat."""
        return [Source(self.name, "host", "file", "/proc/vmstat")]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading with what this kernel counts."""
        yield source.entity, flat_keyed(raw, _WANTED)


SAMPLER = VmstatSampler()
