"""What the storage sees (experiment E11)."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row
from queries import (
    CONTAINER,
    CONTAINERS,
    DEVICE,
    DEVICES,
    EACH_DEVICE,
    EACH_SERVER,
    EACH_TARGET,
    HOST,
    WHOLE,
    Subject,
    each,
    finished,
    increase,
    kinds,
    last,
    of_trials,
    rate,
    ratio,
)

_DRIVES = Subject(CONTAINER, "{{container}} {{device}}")


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
                each("Bytes written", rate, EACH_DEVICE, "pgherd_disk_write_bytes_total", "Bps"),
                Panel("Writes", kinds(rate, EACH_DEVICE, {"pgherd_disk_writes_total": "", "pgherd_disk_flushes_total": "flushes"}), "iops"),
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
                each("Busy", rate, EACH_DEVICE, "pgherd_disk_io_time_seconds_total", "percentunit"),
            ),
        ),
        Row(
            "Reads",
            (
                each(
                    "Bytes read",
                    rate,
                    EACH_DEVICE,
                    "pgherd_disk_read_bytes_total",
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
                    kinds(
                        rate, _DRIVES, {"pgherd_guest_disk_write_bytes_total": "inside", "pgherd_guest_drive_write_bytes_total": "below"}
                    ),
                    "Bps",
                    "Inside: the guest's block devices. Below: the drives as the hypervisor serves them.",
                ),
                Panel(
                    "Writes, inside and below",
                    kinds(rate, _DRIVES, {"pgherd_guest_disk_writes_total": "inside", "pgherd_guest_drive_writes_total": "below"}),
                    "iops",
                    "Flushes apart.",
                ),
            ),
        ),
        Row(
            "Servers",
            (
                each("WAL generated", rate, EACH_SERVER, "pgherd_server_wal_bytes_total", "Bps"),
                Panel(
                    "WAL writes and syncs",
                    kinds(rate, EACH_SERVER, {"pgherd_server_wal_writes_total": "writes", "pgherd_server_wal_syncs_total": "syncs"}),
                    "suffix: /s",
                ),
                each("Checkpoints: buffers written", rate, EACH_SERVER, "pgherd_server_ckpt_buffers_total", "suffix: blocks/s"),
                Panel(
                    "Checkpoints",
                    kinds(
                        increase,
                        EACH_SERVER,
                        {"pgherd_server_ckpt_requested_total": "requested", "pgherd_server_ckpt_timed_total": "by time"},
                    ),
                    "none",
                    "Begun within the window; requested: by WAL volume or by command.",
                ),
                each("Latency by database", last, EACH_TARGET, "pgherd_driver_latency_seconds", "s", "Mean over the last second."),
                Panel(
                    "Waiting for I/O",
                    kinds(rate, WHOLE, {"pgherd_host_psi_io_some_seconds_total": "some", "pgherd_host_psi_io_full_seconds_total": "all"}),
                    "percentunit",
                    "Share of time, of the whole host (pressure stall information).",
                ),
                Panel(
                    "Waiting to be written",
                    kinds(last, WHOLE, {"pgherd_host_memory_dirty_bytes": "dirty", "pgherd_host_memory_writeback_bytes": "being written"}),
                    "bytes",
                ),
                Panel(
                    "Shared buffers: blocks read and found",
                    kinds(rate, EACH_SERVER, {"pgherd_server_db_blks_read_total": "read", "pgherd_server_db_blks_hit_total": "found"}),
                    "suffix: blocks/s",
                ),
            ),
        ),
        finished(),
    ),
    (CONTAINERS, DEVICES),
)
