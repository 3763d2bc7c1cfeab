"""Definition of the compare study."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.compare",
    name="compare",
    rank=3,
    help="Compare settings, versions or scenarios, with confidence intervals.",
    examples=(
        ("pgherd compare --variant big:shared_buffers=1GB", "against the same without it"),
        ("pgherd compare --variant old:pg-version=15 --variant new:pg-version=18 --metric p95", ""),
        ("pgherd compare before.yaml after.yaml --precision 2%", ""),
        ("pgherd compare --cluster mine --variant big:shared_buffers=1GB", "on hosts in turn"),
    ),
    capability="settings, PostgreSQL versions, protocols; scenarios of any study; vCPU and memory limits",
    without_cgroups="settings, PostgreSQL versions, protocols; scenarios of any study",
    common=(
        *("variant", "metric", "max-blocks", "precision", "equivalence-margin", "workload", "script", "clients", "time-budget"),
        *("dsn", "dry-run"),
    ),
    request="CompareRequest",
    resolved="CompareOptions",
    propose_module="pgherd.study.comparison.propose",
    analyse_module="pgherd.study.comparison.analyse",
    hosts="in turn",
    tables={
        "comparison": TableView(
            columns=(
                Column("variant", "variant"),
                Column("metric", "metric"),
                Column("change", "ratio_to_baseline", "change"),
                Column("conclusion", "conclusion"),
                Column("A/A", "aa_ratio", "at most"),
                Column("baseline", "baseline", "with unit"),
            ),
            main=("variant", "metric", "baseline", "value", "change", "conclusion", "A/A"),
            ratios_as_changes=True,
        )
    },
)
