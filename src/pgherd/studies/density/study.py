"""The density study as one object."""

from __future__ import annotations

from pgherd.study.study import Column, SideBySide, Study, TableView

STUDY = Study(
    package="pgherd.studies.density",
    name="density",
    rank=1,
    help="Find how many databases this host can run at a given efficiency.",
    examples=(
        ("pgherd density", "default run, under 5 minutes"),
        ("pgherd density --databases 1,8,16 --vcpus 2 --scale 100", ""),
        ("pgherd density --script my.sql --dry-run", "show the plan, change nothing"),
        ("pgherd density --cluster mine", "on all hosts of a cluster"),
    ),
    common=(
        *("databases", "vcpus", "efficiency", "memory", "workload", "script", "scale", "clients", "rate", "duration", "repeats"),
        *("time-budget", "soak", "set", "dry-run"),
    ),
    request="DensityRequest",
    resolved="DensityOptions",
    tables={
        "density": TableView(
            columns=(
                Column("databases", "databases", "number"),
                Column("of\ncores", "fraction", "share"),
                Column("measured\ntps", "throughput", "value ±"),
                Column("new orders\n/min", "notpm", "value ±", needs="notpm"),
                Column("efficiency\n%", "efficiency", "share ±"),
                Column("in CPU/tx\n%", "efficiency_cpu", "share ±"),
                Column("limited\nby", "limited_by"),
                Column("p95\nms", "p95", "brief"),
                Column("tainted\ntrials", "tainted", "tainted"),
                Column("perfect\ntps", "perfect", "compact"),
            ),
            main=(
                *("databases", "cores", "fraction", "throughput", "notpm", "perfect", "efficiency", "efficiency_cpu"),
                *("p95", "limited_by", "tainted"),
            ),
            plain=frozenset({"perfect"}),
        )
    },
    side_by_side=SideBySide("density", "databases", ("throughput", "efficiency", "efficiency_cpu")),
    labels={
        "efficiency": "efficiency (of 1 database × N)",
        "efficiency_linear": "efficiency (of the linear slope)",
        "efficiency_cpu": "efficiency in CPU per transaction",
        "perfect": "perfect (1 database × N)",
        "perfect_linear": "perfect (linear slope)",
        "fraction": "fraction of cores",
        "jain": "Jain's index",
        "min_max": "slowest ÷ fastest",
        "published_efficiency": "published (E1)",
        "end_of_linear": "end of the linear region",
        "databases_held_one": "databases held (of 1 database × N)",
        "databases_held_linear": "databases held (of the linear slope)",
    },
    percent=frozenset({"fraction", "efficiency", "efficiency_linear", "efficiency_cpu", "published_efficiency"}),
    figures=("figures", "figures_resources"),
    overlays="figures_overlay",
    web=("databases", "workload", "scale", "duration", "repeats"),
)
