"""The scaling study as one object."""

from __future__ import annotations

from pgherd.study.study import Column, Study, TableView

STUDY = Study(
    package="pgherd.studies.scaling",
    name="scaling",
    rank=2,
    help="Measure one server's throughput against its number of clients.",
    examples=(
        ("pgherd scaling", "default run, under 5 minutes"),
        ("pgherd scaling --workload tpcb-like --scale 50", ""),
        ("pgherd scaling --variant old:pg-version=15 --variant new:pg-version=18", ""),
        ("pgherd scaling --cluster mine --client-host a", "server and clients on two hosts of a cluster"),
    ),
    common=(*("clients", "variant", "workload", "script", "scale", "duration", "repeats", "time-budget", "set", "dsn", "dry-run"),),
    request="ScalingRequest",
    resolved="ScalingOptions",
    hosts="one",
    tables={
        "scaling": TableView(
            columns=(
                Column("variant", "variant", needs="variant"),
                Column("clients", "clients", "number"),
                Column("throughput\ntps", "throughput", "value ±"),
                Column("new orders\n/min", "notpm", "value ±", needs="notpm"),
                Column("vs.\nbaseline", "ratio", "times", needs="ratio"),
                Column("of\nlinear", "efficiency_linear", "share"),
                Column("bottleneck", "limited_by"),
                Column("p95\nms", "p95", "brief"),
                Column("server CPU\n/tx, ms", "server_cpu_per_tx", "brief"),
                Column("client\nCPU", "client_share", "share"),
                Column("tainted\ntrials", "tainted", "tainted"),
            ),
            main=(
                *("variant", "clients", "clients_per_core", "throughput", "notpm", "ratio", "efficiency_linear"),
                *("server_cpu_per_tx", "client_share", "p95", "limited_by", "tainted"),
            ),
        )
    },
    labels={
        "clients_per_core": "clients per core",
        "client_share": "client CPU share",
        "client_cpu_share": "client CPU share at the peak",
        "server_cpu_per_tx": "server CPU per transaction",
        "peak_ratio": "ratio of the peaks",
        "slope_ratio": "ratio of the slopes",
        "linear_ratio": "ratio of the linear regions",
        "cpu_ratio": "ratio of the server CPU per transaction",
    },
    percent=frozenset({"client_share"}),
    figures=("figures", "figures_cpu"),
    overlays="figures",
    web=("clients", "workload", "scale", "duration", "repeats"),
)
