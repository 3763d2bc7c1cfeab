"""The dashboard of databases that share memory."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row
from queries import CONTAINER, CONTAINERS, finished, host_cpu, last, load, now, rate

CONSOLIDATION = Dashboard(
    "consolidation",
    "pgherd: consolidation",
    "Which container for databases that share memory, and how far can it be overcommitted? Load, memory by kind, pressure, swap.",
    (
        now(),
        Row("Load", load()),
        Row(
            "Memory",
            (
                Panel(
                    "Budget",
                    (
                        Query(last("pgherd_budget_memory_usage_bytes"), "charged, {{host}}"),
                        Query(last("pgherd_budget_memory_limit_bytes"), "limit, {{host}}"),
                        Query(last("pgherd_budget_memory_swap_bytes"), "swapped out, {{host}}"),
                    ),
                    "bytes",
                    "The group around all containers: where memory is overcommitted, its limit is below what they were given.",
                ),
                Panel(
                    "Memory by container",
                    (Query(last("pgherd_container_memory_usage_bytes", CONTAINER), "{{container}}"),),
                    "bytes",
                    stacked=True,
                ),
                Panel(
                    "Shared memory by container",
                    (Query(last("pgherd_container_memory_shmem_bytes", CONTAINER), "{{container}}"),),
                    "bytes",
                    "Shared buffers, as far as they have been touched.",
                    stacked=True,
                ),
                Panel(
                    "Swapped out by container",
                    (Query(last("pgherd_container_memory_swap_bytes", CONTAINER), "{{container}}"),),
                    "bytes",
                    stacked=True,
                ),
                Panel(
                    "Refaults by container",
                    (
                        Query(rate("pgherd_container_memory_refault_file_total", CONTAINER), "{{container}}, file"),
                        Query(rate("pgherd_container_memory_refault_anon_total", CONTAINER), "{{container}}, anonymous"),
                    ),
                    "suffix: pages/s",
                    "Pages that were evicted and needed again: memory is too short for what is in use.",
                ),
                Panel(
                    "Waiting for memory",
                    (
                        Query(rate("pgherd_host_psi_memory_some_seconds_total"), "host, some"),
                        Query(rate("pgherd_host_psi_memory_full_seconds_total"), "host, all"),
                        Query(rate("pgherd_container_psi_memory_some_seconds_total", CONTAINER), "{{container}}, some"),
                    ),
                    "percentunit",
                    "Share of time (pressure stall information).",
                ),
                Panel(
                    "Compressed swap",
                    (
                        Query(last("pgherd_zram_original_bytes"), "swapped out"),
                        Query(last("pgherd_zram_used_bytes"), "memory that it takes"),
                    ),
                    "bytes",
                    "The quotient is the compression that counts.",
                ),
                Panel(
                    "Database memory balloon",
                    (
                        Query(last("pgherd_server_balloon_bytes", CONTAINER), "{{container}}/{{server}}, given back"),
                        Query(last("pgherd_server_balloon_working_set_bytes", CONTAINER), "{{container}}/{{server}}, working set"),
                    ),
                    "bytes",
                    "Where the servers have pg_balloon.",
                ),
                Panel(
                    "Ended for want of memory",
                    (Query(f"increase(pgherd_container_memory_oom_kills_total{{{CONTAINER}}}[$window])", "{{container}}"),),
                    "none",
                    "Processes that the kernel killed.",
                ),
                Panel(
                    "Swapping",
                    (Query(rate("pgherd_host_vm_pswpin_total"), "in"), Query(rate("pgherd_host_vm_pswpout_total"), "out")),
                    "suffix: pages/s",
                    "The whole host.",
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
            ),
        ),
        finished(),
    ),
    (CONTAINERS,),
)
