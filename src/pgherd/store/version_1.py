"""Names in run directories of schema ``pgherd/run/1``, and their names today. Pure.

No name of today is an old name, so a table may be applied to files of any version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

METRICS: Final[Mapping[str, str]] = {
    "ctxt": "context_switches",
    "weighted_io_time": "io_time_weighted",
    "memory.fault": "memory.page_faults",
    "memory.majfault": "memory.major_page_faults",
    "memory.refault_file": "memory.refaults_file",
    "memory.refault_anon": "memory.refaults_anon",
    "memory.swap_in": "memory.swapped_in_pages",
    "memory.swap_out": "memory.swapped_out_pages",
    "ckpt.timed": "checkpoint.timed",
    "ckpt.requested": "checkpoint.requested",
    "ckpt.buffers": "checkpoint.buffers_written",
    "ckpt.write_time": "checkpoint.write_time",
    "ckpt.sync_time": "checkpoint.sync_time",
    "zram.original": "zram.orig_data",
    "zram.compressed": "zram.compr_data",
    "zram.used": "zram.mem_used",
    "zram.limit": "zram.mem_limit",
    "zram.used_most": "zram.mem_used_max",
    "zram.same": "zram.same_pages",
    "balloon.pool": "balloon.shared_buffers",
    "balloon.stuck": "balloon.resident_in_balloon",
    "guest.memory": "guest.memory_configured",
    "guest.actual": "guest.memory_balloon_actual",
    "guest.total": "guest.memory_managed",
    "guest.caches": "guest.disk_caches",
    "guest.merged": "guest.ksm_merged",
    "ksm.scans": "ksm.full_scans",
}
"""Old name of a metric → name today, in samples and in a trial's metrics."""

ENTITIES: Final[Mapping[str, str]] = {"budget": "run-cgroup", "guest-budget": "guest-run-cgroup"}
"""Old kind of entity → kind today. The kind is the part of an entity before its first colon."""
