"""Declaration of the compression study."""

from __future__ import annotations

from pgherd.study.study import Study

STUDY = Study(
    package="pgherd.studies.compression",
    name="compression",
    rank=10,
    help="Measure compression ratios by codec, block size and kind of data.",
    examples=(
        ("pgherd compression", "all generated data"),
        ("pgherd compression --data realistic,pgbench@50 --codecs lz4,zstd-19", ""),
        ("pgherd compression --data none --dsn postgresql://me@db/sales", "read-only"),
    ),
    capability="ratios by codec, block size and kind of data",
    needs_server=False,
    common=(*("data", "dsn", "dir", "codecs", "block-sizes", "segments", "encrypt", "filesystem", "seed", "time-budget", "dry-run"),),
    request="CompressionRequest",
    resolved="CompressionOptions",
    propose_module="options",
    web=("data", "codecs", "block-sizes", "segments"),
)
