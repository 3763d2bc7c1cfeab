"""The consolidation study as one object."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.consolidation",
    name="consolidation",
    rank=4,
    help="Compare ways to share memory between databases, and find safe overcommitment.",
    examples=(
        ("pgherd consolidation", "all layouts, without overcommitment"),
        ("pgherd consolidation --overcommit 0,0.2,0.4 --schemes dedicated,dedicated-balloon", ""),
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
                Column("measured", "throughput", "value ±"),
                Column("of own\nbaseline", "normalised", "times", needs="normalised"),
                Column("to the\nfirst", "ratio", "times"),
                Column("to it,\ncorrected", "corrected_ratio", "times", needs="corrected_ratio"),
                Column("corrected\n(E4)", "corrected", "value ±"),
                Column("variation\n%", "variation", "brief"),
                Column("CPU\n%", "cpu_used", "number"),
                Column("per used\ncore", "per_core", "compact"),
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
        "what": "containers/servers/databases",
        "corrected": "with E4's correction",
        "corrected_ratio": "ratio with E4's correction",
        "normalised": "of its own baseline",
        "available": "available memory, MB",
        "variation": "variation across periods",
        "per_core": "per fully used core",
        "cpu_used": "CPU (100 % = one core)",
        "killed": "trials ended for want of memory",
        "honest_rate": "largest honest overcommitment",
    },
    percent=frozenset({"waiting"}),
    figures=("figures", "figures_cpu", "figures_overcommitment"),
    web=("databases", "schemes", "scale", "period-length"),
)
