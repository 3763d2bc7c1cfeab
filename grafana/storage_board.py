"""What the storage sees (experiment E11)."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row
from queries import CONTAINER, CONTAINERS, DEVICE, DEVICES, HOST, finished, last, of_trials, rate, ratio


def _await(kind: str) -> str:
    """Mean response time of a kind of request; the kernel counts the time of flushes as writes'."""
    if kind == "flush":
        return ratio(rate("pgherd_disk_flush_time_seconds_total", DEVICE), rate("pgherd_disk_flushes_total", DEVICE))
    time = rate(f"pgherd_disk_{kind}_time_seconds_total", DEVICE)
    if kind == "write":
        time = f"clamp_min({time} - ({rate('pgherd_disk_flush_time_seconds_total', DEVICE)} or 0 * {time}), 0)"
    return ratio(time, rate(f"pgherd_disk_{kind}s_total", DEVICE))


STORAGE = Dashboard(
    "storage",
    "pgherd: what the storage sees",
    "WAL and data as their devices see them (experiment E11): the WAL's steady, small, sequential writes beside the bursts of checkpoints.",
    (
        Row(
            "Devices below the servers",
            (
                Panel(
                    "Which files lie where",
                    (Query(f"max by (device, number, roles) ({of_trials('pgherd_device_info', HOST)})"),),
                    "none",
                    "By the last trial that ended in the time shown.",
                    "table",
                    columns=("device", "number", "roles"),
                ),
                Panel(
                    "Throughput",
                    (Query(f"sum({rate('pgherd_driver_transactions_total')})", "transactions"),),
                    "suffix: tps",
                    "Transactions of all databases: where WAL writes stall, it drops.",
                ),
            ),
        ),
        Row(
            "Writes",
            (
                Panel("Bytes written", (Query(rate("pgherd_disk_write_bytes_total", DEVICE), "{{device}}"),), "Bps"),
                Panel(
                    "Writes",
                    (
                        Query(rate("pgherd_disk_writes_total", DEVICE), "{{device}}"),
                        Query(rate("pgherd_disk_flushes_total", DEVICE), "{{device}}, flushes"),
                    ),
                    "iops",
                ),
                Panel(
                    "Mean size of a write",
                    (Query(ratio(rate("pgherd_disk_write_bytes_total", DEVICE), rate("pgherd_disk_writes_total", DEVICE)), "{{device}}"),),
                    "bytes",
                    "E11: 16 to 32 kB for the WAL, blocks of 8 kB for data.",
                ),
                Panel(
                    "Response time of writes",
                    (Query(_await("write"), "{{device}}"), Query(_await("flush"), "{{device}}, flushes")),
                    "s",
                    "Mean over the requests that completed; E11: 1.5 ms even in bursts.",
                ),
                Panel(
                    "Queue",
                    (
                        Query(rate("pgherd_disk_weighted_io_time_seconds_total", DEVICE), "{{device}}, mean"),
                        Query(f"max_over_time(pgherd_disk_in_flight{{{DEVICE}}}[$window])", "{{device}}, seen at most"),
                    ),
                    "none",
                    "Requests in flight: low for the WAL, deep in a checkpoint's bursts.",
                ),
                Panel("Busy", (Query(rate("pgherd_disk_io_time_seconds_total", DEVICE), "{{device}}"),), "percentunit"),
            ),
        ),
        Row(
            "Reads",
            (
                Panel(
                    "Bytes read",
                    (Query(rate("pgherd_disk_read_bytes_total", DEVICE), "{{device}}"),),
                    "Bps",
                    "E11: where memory suffices, hardly any read reaches a device.",
                ),
                Panel("Response time of reads", (Query(_await("read"), "{{device}}"),), "s"),
            ),
        ),
        Row(
            "Virtual machines: the same I/O from both sides",
            (
                Panel(
                    "Bytes written, inside and below",
                    (
                        Query(rate("pgherd_guest_disk_write_bytes_total", CONTAINER), "{{container}} {{device}}, inside"),
                        Query(rate("pgherd_guest_drive_write_bytes_total", CONTAINER), "{{container}} {{device}}, below"),
                    ),
                    "Bps",
                    "Inside: the guest's block devices. Below: the drives as the hypervisor serves them.",
                ),
                Panel(
                    "Writes, inside and below",
                    (
                        Query(rate("pgherd_guest_disk_writes_total", CONTAINER), "{{container}} {{device}}, inside"),
                        Query(rate("pgherd_guest_drive_writes_total", CONTAINER), "{{container}} {{device}}, below"),
                    ),
                    "iops",
                    "Flushes apart.",
                ),
            ),
        ),
        Row(
            "Servers",
            (
                Panel("WAL generated", (Query(rate("pgherd_server_wal_bytes_total", CONTAINER), "{{container}}/{{server}}"),), "Bps"),
                Panel(
                    "WAL writes and syncs",
                    (
                        Query(rate("pgherd_server_wal_writes_total", CONTAINER), "{{container}}/{{server}}, writes"),
                        Query(rate("pgherd_server_wal_syncs_total", CONTAINER), "{{container}}/{{server}}, syncs"),
                    ),
                    "suffix: /s",
                ),
                Panel(
                    "Checkpoints: buffers written",
                    (Query(rate("pgherd_server_ckpt_buffers_total", CONTAINER), "{{container}}/{{server}}"),),
                    "suffix: blocks/s",
                ),
                Panel(
                    "Checkpoints",
                    (
                        Query(
                            f"increase(pgherd_server_ckpt_requested_total{{{CONTAINER}}}[$window])", "{{container}}/{{server}}, requested"
                        ),
                        Query(f"increase(pgherd_server_ckpt_timed_total{{{CONTAINER}}}[$window])", "{{container}}/{{server}}, by time"),
                    ),
                    "none",
                    "Begun within the window; requested: by WAL volume or by command.",
                ),
                Panel(
                    "Latency by database",
                    (Query(last("pgherd_driver_latency_seconds", CONTAINER), "{{target}}"),),
                    "s",
                    "Mean over the last second.",
                ),
                Panel(
                    "Waiting for I/O",
                    (
                        Query(rate("pgherd_host_psi_io_some_seconds_total"), "some"),
                        Query(rate("pgherd_host_psi_io_full_seconds_total"), "all"),
                    ),
                    "percentunit",
                    "Share of time, of the whole host (pressure stall information).",
                ),
                Panel(
                    "Waiting to be written",
                    (
                        Query(last("pgherd_host_memory_dirty_bytes"), "dirty"),
                        Query(last("pgherd_host_memory_writeback_bytes"), "being written"),
                    ),
                    "bytes",
                ),
                Panel(
                    "Shared buffers: blocks read and found",
                    (
                        Query(rate("pgherd_server_db_blks_read_total", CONTAINER), "{{container}}/{{server}}, read"),
                        Query(rate("pgherd_server_db_blks_hit_total", CONTAINER), "{{container}}/{{server}}, found"),
                    ),
                    "suffix: blocks/s",
                ),
            ),
        ),
        finished(),
    ),
    (CONTAINERS, DEVICES),
)
