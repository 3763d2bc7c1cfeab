"""The dashboard of a density run."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row
from queries import CONTAINER, CONTAINERS, RUN, finished, host_cpu, last, load, now, rate

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
                Panel(
                    "Clients' CPU",
                    (Query(rate("pgherd_driver_cpu_usage_seconds_total", CONTAINER), "{{target}}"),),
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
                Panel(
                    "CPU by container",
                    (Query(rate("pgherd_container_cpu_usage_seconds_total", CONTAINER), "{{container}}"),),
                    "suffix: cores",
                    stacked=True,
                ),
                Panel(
                    "Held back by the quota",
                    (Query(rate("pgherd_container_cpu_throttled_seconds_total", CONTAINER), "{{container}}"),),
                    "suffix: cores",
                    "Time for which tasks of a container were held back, summed over CPUs.",
                ),
                Panel(
                    "Waiting for a CPU",
                    (
                        Query(rate("pgherd_host_psi_cpu_some_seconds_total"), "host"),
                        Query(rate("pgherd_container_psi_cpu_some_seconds_total", CONTAINER), "{{container}}"),
                    ),
                    "percentunit",
                    "Share of time in which at least one task waited (pressure stall information).",
                ),
            ),
        ),
        Row(
            "Memory",
            (
                Panel(
                    "Memory by container",
                    (Query(last("pgherd_container_memory_usage_bytes", CONTAINER), "{{container}}"),),
                    "bytes",
                    "All that is charged to it, page cache included.",
                    stacked=True,
                ),
                Panel(
                    "Shared buffers: blocks read",
                    (Query(rate("pgherd_server_db_blks_read_total", CONTAINER), "{{container}}/{{server}}"),),
                    "suffix: /s",
                    "Blocks that were not in shared buffers.",
                ),
            ),
        ),
        finished(),
    ),
    (CONTAINERS,),
)
