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
        ("pgherd disk --volume fast=/mnt/nvme --volume slow=/mnt/hdd --tests random-read,single-write", ""),
        ("pgherd disk --cluster mine", "on every host of a cluster"),
    ),
    common=(*("volume", "tests", "rate-iops", "file-size", "iodepth", "duration", "repeats", "time-budget", "allow-format", "dry-run"),),
    request="DiskRequest",
    resolved="DiskOptions",
    each_host=True,
    tables={
        "disk": TableView(
            columns=(
                Column("volume", "volume"),
                Column("test", "test"),
                Column("IOPS", "iops", "value ±"),
                Column("MB/s", "bandwidth", "brief"),
                Column("mean\nms", "latency", "brief"),
                Column("limited\nby", "limited_by"),
                Column("cached", "from_cache"),
                Column("steady", "steady"),
                Column("hosts\ndiffer by", "imbalance", "share", needs="imbalance"),
                Column("p99\nms", "p99", "brief"),
                Column("tainted\ntrials", "tainted", "tainted"),
            ),
            main=(
                *("volume", "test", "iops", "bandwidth", "latency", "p99", "limited_by", "from_cache", "steady"),
                *("reads", "writes", "rate_reached", "of_sum", "imbalance", "tainted"),
            ),
        )
    },
    labels={"device_share": "device I/O share", "of_sum": "concurrent vs. sum"},
    percent=frozenset({"device_share", "rate_reached", "of_sum", "imbalance"}),
)
