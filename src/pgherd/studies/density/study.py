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
                Column("cores\nallocated", "fraction", "share"),
                Column("throughput\ntps", "throughput", "value ±"),
                Column("new orders\n/min", "notpm", "value ±", needs="notpm"),
                Column("efficiency\n%", "efficiency", "share ±"),
                Column("CPU eff.\n%", "efficiency_cpu", "share ±"),
                Column("bottleneck", "limited_by"),
                Column("p95\nms", "p95", "brief"),
                Column("tainted\ntrials", "tainted", "tainted"),
                Column("ideal\ntps", "perfect", "compact"),
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
        "efficiency": "efficiency vs. single database",
        "efficiency_linear": "efficiency vs. linear fit",
        "efficiency_cpu": "CPU efficiency",
        "perfect": "ideal (N × single database)",
        "perfect_linear": "ideal (linear fit)",
        "fraction": "cores allocated",
        "jain": "Jain's index",
        "min_max": "min/max ratio",
        "published_efficiency": "published",
        "end_of_linear": "end of the linear region",
        "databases_held_one": "capacity vs. single database",
        "databases_held_linear": "capacity vs. linear fit",
        "databases_held": "capacity",
    },
    percent=frozenset({"fraction", "efficiency", "efficiency_linear", "efficiency_cpu", "published_efficiency"}),
    figures=("figures",),
    overlays="figures",
    web=("databases", "workload", "scale", "duration", "repeats"),
)
