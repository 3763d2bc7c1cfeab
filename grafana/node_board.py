"""The hosts of a run, and what node_exporter tells beside it."""

from __future__ import annotations

from panels import Dashboard, Panel, Query, Row
from queries import DEVICE, DEVICES, HOST, HOSTS, Subject, each, host_cpu, kinds, last, of_trials, rate

_DEVICES = Subject(DEVICE, "{{host}} {{device}}")
_NOT_IDLE = 'mode!="idle"'
_NODE = 'on (instance) group_left (nodename) node_uname_info{nodename=~"$host"}'
"""node_exporter's series of the hosts of the run: pgherd's label ``host`` is what node_exporter calls nodename."""


def node(name: str, which: str = "") -> str:
    """Increase per second of a counter of node_exporter, of the run's hosts."""
    return f"rate({name}{{{which}}}[$window]) * {_NODE}"


_BUSY = f"sum by (nodename) ({node('node_cpu_seconds_total', _NOT_IDLE)})"

NODE = Dashboard(
    "node",
    "pgherd: node",
    "The hosts of a run: CPU, memory, paging, devices, pressure; and what node_exporter tells beside it, where it is scraped too.",
    (
        Row(
            "CPU",
            (
                host_cpu(),
                Panel(
                    "Tasks", kinds(last, HOSTS, {"pgherd_host_procs_running": "running", "pgherd_host_procs_blocked": "blocked"}), "none"
                ),
                Panel(
                    "Context switches and forks",
                    kinds(rate, HOSTS, {"pgherd_host_context_switches_total": "switches", "pgherd_host_forks_total": "forks"}),
                    "suffix: /s",
                ),
                Panel(
                    "Pressure",
                    kinds(
                        rate,
                        HOSTS,
                        {
                            "pgherd_host_psi_cpu_some_seconds_total": "CPU",
                            "pgherd_host_psi_memory_some_seconds_total": "memory",
                            "pgherd_host_psi_io_some_seconds_total": "I/O",
                        },
                    ),
                    "percentunit",
                    "Share of time in which at least one task waited.",
                ),
            ),
        ),
        Row(
            "Memory",
            (
                Panel(
                    "Memory",
                    kinds(
                        last,
                        HOSTS,
                        {
                            "pgherd_host_memory_total_bytes": "in all",
                            "pgherd_host_memory_available_bytes": "available",
                            "pgherd_host_memory_cached_bytes": "page cache",
                            "pgherd_host_memory_hugetlb_bytes": "huge pages",
                        },
                    ),
                    "bytes",
                ),
                Panel(
                    "Paging",
                    kinds(
                        rate,
                        HOSTS,
                        {
                            "pgherd_host_vm_pswpin_total": "swapped in",
                            "pgherd_host_vm_pswpout_total": "swapped out",
                            "pgherd_host_vm_pgmajfault_total": "faults that needed I/O",
                        },
                    ),
                    "suffix: /s",
                ),
            ),
        ),
        Row(
            "Devices",
            (
                each("Bytes written", rate, _DEVICES, "pgherd_disk_write_bytes_total", "Bps"),
                each("Bytes read", rate, _DEVICES, "pgherd_disk_read_bytes_total", "Bps"),
                each("Busy", rate, _DEVICES, "pgherd_disk_io_time_seconds_total", "percentunit"),
                Panel(
                    "What pgherd uses",
                    (
                        Query(rate("pgherd_own_cpu_usage_seconds_total"), "{{host}}, its process"),
                        Query(f"sum by (host) ({rate('pgherd_backend_cpu_usage_seconds_total')})", "{{host}}, sampling backends"),
                        Query(rate("pgherd_platform_cpu_usage_seconds_total"), "{{host}}, {{part}}"),
                    ),
                    "suffix: cores",
                    "And named parts of the platform.",
                ),
            ),
        ),
        Row(
            "node_exporter",
            (
                Panel(
                    "Found by pgherd",
                    (Query(f"max by (host, address, version) ({of_trials('pgherd_node_exporter_info', HOST)})"),),
                    "none",
                    "Scrape it under this address; its nodename is the host's name here.",
                    "table",
                    columns=("host", "address", "version"),
                ),
                Panel("CPU not idle", (Query(_BUSY, "{{nodename}}"),), "suffix: cores"),
                Panel("Network received", (Query(node("node_network_receive_bytes_total"), "{{nodename}} {{device}}"),), "Bps"),
                Panel("Network sent", (Query(node("node_network_transmit_bytes_total"), "{{nodename}} {{device}}"),), "Bps"),
                Panel(
                    "File systems: available",
                    (Query(f"last_over_time(node_filesystem_avail_bytes[$window]) * {_NODE}", "{{nodename}} {{mountpoint}}"),),
                    "bytes",
                ),
                Panel("Interrupts", (Query(node("node_intr_total"), "{{nodename}}"),), "suffix: /s"),
            ),
        ),
    ),
    (DEVICES,),
)
