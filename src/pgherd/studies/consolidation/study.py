"""Definition of the consolidation study."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.consolidation",
    name="consolidation",
    rank=4,
    help="Compare ways to share memory between databases, and find safe overcommitment.",
    examples=(
        ("pgherd consolidation", "all layouts, without overcommitment"),
        ("pgherd consolidation --overcommit 0,0.2,0.4 --schemes 3,4", ""),
        ("pgherd consolidation --preset E4 --dry-run", "a published set-up: show the plan"),
    ),
    common=(*("databases", "schemes", "overcommit", "shared-buffers-percent", "pattern", "repeats", "preset", "memory", "dry-run", "yes"),),
    request="ConsolidationRequest",
    resolved="ConsolidationOptions",
    hosts="one",
    tables={
        "consolidation": TableView(
            columns=(
                Column("buffers\n%", "buffers", "number"),
                Column("over-\ncommit", "rate", "share"),
                Column("scheme", "what"),
                Column("throughput", "throughput", "value ±"),
                Column("vs. under-\ncommitted", "normalised", "times", needs="normalised"),
                Column("vs.\nfirst", "ratio", "times"),
                Column("ratio,\ncorrected", "corrected_ratio", "times", needs="corrected_ratio"),
                Column("corrected\nfor vCPUs", "corrected", "value ±"),
                Column("CV\n%", "variation", "brief"),
                Column("CPU\n%", "cpu_used", "number"),
                Column("per\ncore", "per_core", "compact"),
                Column("published\n(E4)", "throughput", "published"),
                Column("tainted\ntrials", "tainted", "tainted"),
            ),
            main=(
                *("buffers", "rate", "scheme", "what", "throughput", "corrected", "ratio", "corrected_ratio", "normalised"),
                *("variation", "cpu_used", "per_core", "tainted", "killed"),
            ),
        )
    },
    labels={
        "what": "layout (containers/servers/databases)",
        "corrected": "corrected for vCPUs",
        "corrected_ratio": "ratio, corrected for vCPUs",
        "normalised": "vs. undercommitted",
        "available": "available memory, MB",
        "variation": "CV across periods",
        "per_core": "per fully used core",
        "cpu_used": "CPU (100 % = one core)",
        "killed": "trials with OOM kills",
        "honest_rate": "max. safe overcommitment",
    },
    percent=frozenset({"waiting"}),
    web=("databases", "schemes", "scale", "period-length"),
)
