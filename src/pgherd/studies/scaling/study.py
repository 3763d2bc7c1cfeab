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
        ("pgherd scaling --slo p99=10ms", "rate that keeps the objective"),
        ("pgherd scaling --workload tpcb-like --scale 50", ""),
        ("pgherd scaling --variant old:pg-version=15 --variant new:pg-version=18", ""),
        ("pgherd scaling --cluster mine --client-host a", "clients on another host"),
    ),
    capability="one server with a growing number of clients, and variants of it",
    common=(*("clients", "slo", "variant", "workload", "script", "scale", "duration", "repeats", "time-budget", "set", "dsn", "dry-run"),),
    request="ScalingRequest",
    resolved="ScalingOptions",
    hosts="one",
    tables={
        "scaling": TableView(
            columns=(
                Column("variant", "variant", needs="variant"),
                Column("clients", "clients", "number"),
                Column("throughput\ntps", "throughput", "value ±"),
                Column("new orders\n/min", "nopm", "value ±", needs="nopm"),
                Column("vs.\nbaseline", "ratio_to_baseline", "times", needs="ratio_to_baseline"),
                Column("of\nlinear", "efficiency_linear", "share"),
                Column("bottleneck", "bottleneck"),
                Column("p95\nms", "p95", "brief"),
                Column("server CPU\n/tx, ms", "server_cpu_per_tx", "brief"),
                Column("client\nCPU", "client_cpu_share", "share"),
                Column("tainted\ntrials", "tainted_trials", "tainted"),
            ),
            main=(
                *("variant", "clients", "clients_per_core", "throughput", "nopm", "ratio_to_baseline", "efficiency_linear"),
                *("server_cpu_per_tx", "client_cpu_share", "p95", "bottleneck", "tainted_trials"),
            ),
        )
    },
    labels={
        "server_cpu_per_tx": "server CPU per transaction",
        "server_cpu_per_tx_ratio": "server CPU per transaction, ratio",
    },
    percent=frozenset({"client_cpu_share"}),
    figures=("figures", "figures_cpu"),
    overlays="figures",
    web=("clients", "workload", "scale", "slo", "duration", "repeats"),
)
