"""The dashboard of a density run."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row
from queries import (
    CONTAINERS,
    EACH_CONTAINER,
    EACH_SERVER,
    EACH_TARGET,
    RUN,
    WHOLE,
    container_cpu,
    container_memory,
    each,
    finished,
    host_cpu,
    kinds,
    last,
    load,
    now,
    rate,
)

DENSITY = Dashboard(
    "density",
    "pgherd: density",
    "How many databases does this host hold? Throughput, latency, CPU and memory by database while trials run.",
    (
        now(),
        Row(
            "Load",
            (
                *load(),
                Panel(
                    "Throughput and databases",
                    (
                        Query(f"sum({rate('pgherd_driver_transactions_total')})", "throughput"),
                        Query(last("pgherd_trial_point", f'{RUN}, coordinate="databases"'), "databases"),
                    ),
                    "suffix: tps",
                    "With perfect scaling the one follows the other.",
                    right="databases",
                ),
                each(
                    "Clients' CPU",
                    rate,
                    EACH_TARGET,
                    "pgherd_driver_cpu_usage_seconds_total",
                    "suffix: cores",
                    "A driver near one core per thread limits what it measures.",
                    stacked=True,
                ),
            ),
        ),
        Row(
            "CPU",
            (
                host_cpu(),
                container_cpu(),
                each(
                    "Held back by the quota",
                    rate,
                    EACH_CONTAINER,
                    "pgherd_container_cpu_throttled_seconds_total",
                    "suffix: cores",
                    "Time for which tasks of a container were held back, summed over CPUs.",
                ),
                Panel(
                    "Waiting for a CPU",
                    (
                        *kinds(rate, WHOLE, {"pgherd_host_psi_cpu_some_seconds_total": "host"}),
                        *kinds(rate, EACH_CONTAINER, {"pgherd_container_psi_cpu_some_seconds_total": ""}),
                    ),
                    "percentunit",
                    "Share of time in which at least one task waited (pressure stall information).",
                ),
            ),
        ),
        Row(
            "Memory",
            (
                container_memory("All that is charged to it, page cache included."),
                each(
                    "Shared buffers: blocks read",
                    rate,
                    EACH_SERVER,
                    "pgherd_server_db_blks_read_total",
                    "suffix: /s",
                    "Blocks that were not in shared buffers.",
                ),
            ),
        ),
        finished(),
    ),
    (CONTAINERS,),
)
