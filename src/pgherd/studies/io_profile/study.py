"""Definition of the I/O profile study."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.io_profile",
    name="io-profile",
    rank=7,
    help="Profile a server's device I/O: WAL, checkpoints, stalls, latency.",
    examples=(
        ("pgherd io-profile --workload tpcb-like", ""),
        ("pgherd io-profile --wal-volume /mnt/wal --checkpoint-timeout 1min", ""),
        ("pgherd io-profile --compare-setting checkpoint_completion_target=0.5,0.9", ""),
        ("pgherd io-profile --servers fleet.yaml --server alpha --allow-writes", ""),
    ),
    capability="device I/O of a server, and the effect of checkpoints",
    common=(
        *("wal-volume", "checkpoint-timeout", "checkpoints", "compare-setting", "variant", "memory-ratio", "trace-io", "dsn", "dry-run"),
    ),
    request="IoProfileRequest",
    resolved="IoProfileOptions",
    propose_module="options",
    hosts="one",
    tables={
        "io_profile": TableView(
            columns=(
                Column("server", "server"),
                Column("throughput\ntps", "throughput", "value ±"),
                Column("IOPS", "iops", "value ±", needs="iops"),
                Column("under 1 ms\n%", "share_under_1ms", "share ±", needs="iops"),
                Column("checkpoints\n/trial", "checkpoints", "brief"),
                Column("checkpoints\n/min", "checkpoint_rate", "brief", needs="checkpoint_rate"),
                Column("stalls\n/trial", "stalls", "brief"),
                Column("in check-\npoints", "stalls_in_checkpoints", "brief"),
                Column("WAL/tx\nkB", "wal_per_tx", "value ±"),
                Column("p95 ms\nin ckpt", "p95_during_checkpoint", "brief"),
                Column("p95 ms\nbetween", "p95_between_checkpoints", "brief"),
            ),
            main=(
                *("server", "throughput", "iops", "share_under_1ms", "checkpoints", "checkpoint_rate"),
                *("wal_per_tx", "relation_read_rate", "stalls", "stalls_in_checkpoints", "stall_time_share"),
                *(
                    "data_burst_to_wal_ratio",
                    "p95_during_checkpoint",
                    "p95_between_checkpoints",
                    "p95_checkpoint_ratio",
                    "wal_request_size",
                    "wal_await",
                    "burst_write_await",
                ),
            ),
        )
    },
    labels={
        "share_under_1ms": "under 1 ms",
        "data_burst_to_wal_ratio": "data bursts vs. WAL",
        "inter_request_gap_p50": "median request gap",
    },
    lead=("io_profile",),
    web=("workload", "scale", "checkpoints", "checkpoint-timeout"),
)
