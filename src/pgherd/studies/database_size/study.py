"""Declaration of the database-size study."""

from __future__ import annotations

from pgherd.study.study import Study

STUDY = Study(
    package="pgherd.studies.database_size",
    name="database-size",
    rank=11,
    help="Measure database size by scale factor and predict larger ones.",
    examples=(
        ("pgherd database-size", ""),
        ("pgherd database-size --scales 1,10,100 --predict 1000,10000", ""),
    ),
    capability="database size by scale factor",
    common=(*("scales", "predict", "pg-version", "pg-bin", "run-as", "time-budget", "dry-run"),),
    request="DatabaseSizeRequest",
    resolved="DatabaseSizeOptions",
    propose_module="options",
    probe_module="prepare",
    default_metric="database_bytes",
    lead=("sizes",),
    web=("scales", "predict"),
)
