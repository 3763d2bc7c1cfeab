"""What the host's merging of equal pages (KSM) shares and saves, while guests run whose memory it may merge.

Linux: Documentation/admin-guide/mm/ksm.rst. The files below ``/sys/kernel/mm/ksm`` are of the whole machine, and are kept up to date only
while merging is on: what others merge is in them too. ``/proc/PID/ksm_merging_pages`` (since Linux 5.19) is one hypervisor's part.
What the kernel needs to look for equal pages, some 64 bytes for each page that it has seen, is not taken off.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgherd.metrics.keyed import number
from pgherd.metrics.sampler import Metric, Reading, View
from pgherd.node.protocol import Source

_HOME = "/sys/kernel/mm/ksm"
_FILES = {"ksm.shared": "pages_shared", "ksm.saved": "pages_sharing", "ksm.unshared": "pages_unshared", "ksm.scans": "full_scans"}
_MERGED = "guest.merged"
_PAGE = 4096
"""Bytes of the pages that are merged; guests are made for x86-64 only."""


class SamePageMergingSampler:
    """Readings of ``host`` and of ``guest:NAME``."""

    name = "same_page_merging"
    metrics = (
        Metric("ksm.shared", "bytes", "gauge", "pages that the kernel keeps once for several places with the same in them"),
        Metric("ksm.saved", "bytes", "gauge", "saved by keeping equal pages once: all their further places"),
        Metric("ksm.unshared", "bytes", "gauge", "pages that may be merged and equal no other"),
        Metric("ksm.scans", "rounds", "counter", "rounds over all memory that may be merged"),
        Metric(_MERGED, "bytes", "gauge", "of the guest's hypervisor, pages that share their memory with equal ones"),
    )

    def sources(self, view: View) -> list[Source]:
        """Four small files of the host's, and one of each guest whose memory may be merged; nothing where there is none."""
        guests = [guest for guest in view.guests if guest.merging]
        found = [Source(self.name, "host", "file", f"{_HOME}/{file}", tag=metric) for metric, file in _FILES.items() if guests]
        return found + [
            Source(self.name, f"guest:{guest.name}", "file", f"/proc/{guest.pid}/ksm_merging_pages", tag=_MERGED) for guest in guests
        ]

    def parse(self, raw: str, source: Source) -> Iterator[Reading]:
        """One reading: each file holds one number, of pages but for the rounds."""
        if source.tag not in _FILES and source.tag != _MERGED:
            raise ValueError(f"'{source.tag}' is no count of merged pages")
        yield source.entity, {source.tag: number(raw.strip()) * (1 if source.tag == "ksm.scans" else _PAGE)}


SAMPLER = SamePageMergingSampler()
