"""The dashboard of databases that share memory."""

from __future__ import annotations

from panels import Dashboard, Panel, Row
from queries import (
    CONTAINERS,
    EACH_CONTAINER,
    EACH_SERVER,
    WHOLE,
    container_cpu,
    container_memory,
    each,
    finished,
    host_cpu,
    increase,
    kinds,
    last,
    load,
    now,
    rate,
)

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
                    kinds(
                        last,
                        WHOLE,
                        {
                            "pgherd_budget_memory_usage_bytes": "charged, {{host}}",
                            "pgherd_budget_memory_limit_bytes": "limit, {{host}}",
                            "pgherd_budget_memory_swap_bytes": "swapped out, {{host}}",
                        },
                    ),
                    "bytes",
                    "The group around all containers: where memory is overcommitted, its limit is below what they were given.",
                ),
                container_memory(),
                each(
                    "Shared memory by container",
                    last,
                    EACH_CONTAINER,
                    "pgherd_container_memory_shmem_bytes",
                    "bytes",
                    "Shared buffers, as far as they have been touched.",
                    stacked=True,
                ),
                each("Swapped out by container", last, EACH_CONTAINER, "pgherd_container_memory_swap_bytes", "bytes", stacked=True),
                Panel(
                    "Refaults by container",
                    kinds(
                        rate,
                        EACH_CONTAINER,
                        {"pgherd_container_memory_refault_file_total": "file", "pgherd_container_memory_refault_anon_total": "anonymous"},
                    ),
                    "suffix: pages/s",
                    "Pages that were evicted and needed again: memory is too short for what is in use.",
                ),
                Panel(
                    "Waiting for memory",
                    (
                        *kinds(
                            rate,
                            WHOLE,
                            {
                                "pgherd_host_psi_memory_some_seconds_total": "host, some",
                                "pgherd_host_psi_memory_full_seconds_total": "host, all",
                            },
                        ),
                        *kinds(rate, EACH_CONTAINER, {"pgherd_container_psi_memory_some_seconds_total": "some"}),
                    ),
                    "percentunit",
                    "Share of time (pressure stall information).",
                ),
                Panel(
                    "Compressed swap",
                    kinds(last, WHOLE, {"pgherd_zram_original_bytes": "swapped out", "pgherd_zram_used_bytes": "memory that it takes"}),
                    "bytes",
                    "The quotient is the compression that counts.",
                ),
                Panel(
                    "Database memory balloon",
                    kinds(
                        last,
                        EACH_SERVER,
                        {"pgherd_server_balloon_bytes": "given back", "pgherd_server_balloon_working_set_bytes": "working set"},
                    ),
                    "bytes",
                    "Where the servers have pg_balloon.",
                ),
                each(
                    "Ended for want of memory",
                    increase,
                    EACH_CONTAINER,
                    "pgherd_container_memory_oom_kills_total",
                    "none",
                    "Processes that the kernel killed.",
                ),
                Panel(
                    "Swapping",
                    kinds(rate, WHOLE, {"pgherd_host_vm_pswpin_total": "in", "pgherd_host_vm_pswpout_total": "out"}),
                    "suffix: pages/s",
                    "The whole host.",
                ),
            ),
        ),
        Row("CPU", (host_cpu(), container_cpu())),
        finished(),
    ),
    (CONTAINERS,),
)
