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
                Column("cores\nallocated", "allocated_share", "share"),
                Column("throughput\ntps", "throughput", "value ±"),
                Column("new orders\n/min", "nopm", "value ±", needs="nopm"),
                Column("CPU\nreceived %", "cpu_share", "share ±"),
                Column("efficiency\n%", "efficiency", "share ±"),
                Column("bottleneck", "bottleneck"),
                Column("p95\nms", "p95", "brief"),
                Column("tainted\ntrials", "tainted_trials", "tainted"),
                Column("CPU eff.\n%", "cpu_efficiency", "share ±"),
                Column("ideal\ntps", "ideal", "compact"),
            ),
            main=(
                *("databases", "cores_allocated", "allocated_share", "throughput", "nopm", "ideal", "cpu_share", "efficiency"),
                *("cpu_efficiency", "p95", "bottleneck", "tainted_trials"),
            ),
            plain=frozenset({"ideal"}),
        )
    },
    side_by_side=SideBySide("density", "databases", ("throughput", "cpu_share", "efficiency", "cpu_efficiency")),
    labels={
        "efficiency": "efficiency vs. reference",
        "efficiency_vs_single": "efficiency vs. single database",
        "cpu_share": "CPU received",
        "ideal": "ideal (N × reference)",
        "allocated_share": "share of the cores allocated",
        "jain_index": "Jain index",
        "min_max_ratio": "min/max ratio",
        "published_efficiency": "published",
        "capacity_by_cpu": "capacity by CPU received",
        "capacity_by_throughput": "capacity by throughput",
        "capacity_vs_single": "capacity vs. single database",
        "cost_ratio": "CPU per transaction ÷ reference",
        "client_cpu_share": "clients' share of the CPU per transaction",
        "under_50us": "share of transactions under 50 µs",
        "throttled_share": "share of quota periods throttled",
    },
    percent=frozenset(
        {
            *("allocated_share", "efficiency", "efficiency_vs_single", "cpu_efficiency", "cpu_share", "published_efficiency"),
            *("throttled_share", "under_50us", "client_cpu_share", "fast_share"),
        }
    ),
    figures=("figures",),
    overlays="figures",
    web=("databases", "workload", "scale", "duration", "repeats"),
)
