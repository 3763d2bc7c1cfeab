"""Declaration of the disk study."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.disk",
    name="disk",
    rank=8,
    help="Benchmark volumes with fio: IOPS, bandwidth, latency and the bottleneck.",
    examples=(
        ("pgherd disk", "the volume where data would go"),
        ("pgherd disk --volume fast=/mnt/nvme --volume slow=/mnt/hdd --tests random-read,qd1-write", ""),
        ("pgherd disk --cluster mine", "on every host of a cluster"),
    ),
    capability="IOPS, bandwidth and latency of directories, loop devices and empty devices",
    checks_host=True,
    needs_server=False,
    common=(*("volume", "tests", "rate-iops", "file-size", "iodepth", "duration", "repeats", "time-budget", "allow-format", "dry-run"),),
    request="DiskRequest",
    resolved="DiskOptions",
    propose_module="options",
    each_host=True,
    tables={
        "disk": TableView(
            columns=(
                Column("volume", "volume"),
                Column("test", "test"),
                Column("IOPS", "iops", "value ±"),
                Column("MB/s", "bandwidth", "brief"),
                Column("mean\nms", "latency_mean", "brief"),
                Column("bottleneck", "bottleneck"),
                Column("cached", "from_cache"),
                Column("steady\nstate", "steady_state"),
                Column("host\nimbalance", "imbalance", "share", needs="imbalance"),
                Column("p99\nms", "p99", "brief"),
                Column("tainted\ntrials", "tainted_trials", "tainted"),
            ),
            main=(
                *("volume", "test", "iops", "bandwidth", "latency_mean", "p99", "bottleneck", "from_cache", "steady_state"),
                *("reads", "writes", "rate_achieved", "concurrent_vs_sum", "imbalance", "tainted_trials"),
            ),
        )
    },
    labels={"concurrent_vs_sum": "concurrent vs. sum"},
    percent=frozenset({"device_io_share", "rate_achieved", "concurrent_vs_sum", "imbalance"}),
)
