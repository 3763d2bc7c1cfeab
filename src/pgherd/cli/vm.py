"""``pgherd vm``: what virtual machines boot from, and one to look inside."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from pgherd.cli.output import answer_console, json_option, print_document, progress_console

if TYPE_CHECKING:
    from pgherd.runner.deploy.guest_visit import Visit
    from pgherd.runtimes.vm.images import Images, Kept
    from pgherd.runtimes.vm.running import Running

_POSTGRES = (
    click.option("--pg-bin", metavar="DIR", help="Directory of postgres, initdb and pgbench."),
    click.option("--pg-version", metavar="MAJOR", help="A PostgreSQL by its major version: this machine's, else the embedded 18."),
    click.option("--accelerator", type=click.Choice(["kvm", "tcg"]), help="By what guests run.  [default: KVM where it works]"),
    click.option("--run-as", metavar="ACCOUNT", help="As root: the account that servers run as."),
)


def _postgres(function: Any) -> Any:
    for option in reversed(_POSTGRES):
        function = option(function)
    return function


@click.group("vm", short_help="Virtual machines: make what they boot from, boot one, look inside.")
def command() -> None:
    """Virtual machines that hold databases: what they boot from is made from this machine's own PostgreSQL and its distribution's
    kernel, and kept in the cache. See docs/howto/vm.md."""


@command.command("build", short_help="Make kernel, first file system and root image for a PostgreSQL.")
@_postgres
@click.option("--again", is_flag=True, help="Make the root image anew although it is in the cache, and try KVM again.")
@json_option
def build(pg_bin: str | None, pg_version: str | None, accelerator: str | None, run_as: str | None, again: bool, as_json: bool) -> int:
    """Make what guests of a PostgreSQL boot from, as far as the cache does not have it. Nothing is installed on this machine."""
    from pgherd.host import paths
    from pgherd.host.account import server_account
    from pgherd.host.journal import Journal
    from pgherd.node import interruption
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations
    from pgherd.runtimes.vm import images

    node, cache = LocalNode(), str(paths.cache_dir())
    account = server_account(run_as)
    chosen = installations.choose(node, pg_bin, pg_version)
    with interruption.ended_by_signals():
        journal = Journal.open(node, paths.state_dir(), "vm-build")
        try:
            scratch = images.scratch_tree(node, journal)
            usable = installations.reachable_copy(node, chosen, account, cache)
            made = images.build(node, usable, account, cache, scratch, accelerator=accelerator, again=again, say=_say)
        finally:
            journal.end(_say)
    if as_json:
        print_document({"schema": "pgherd/vm-build/1", **_images_document(made)})
    else:
        _show_images(made)
    return 0


@command.command("boot", short_help="Boot a guest with a pgbench database in it.")
@_postgres
@click.option("--scale", type=click.IntRange(min=0), default=1, help="Scale of the pgbench database; 0: no server.  [default: 1]")
@click.option("--vcpus", type=click.IntRange(min=1), default=1, help="vCPUs of the guest.  [default: 1]")
@click.option("--memory", metavar="SIZE", default="512MB", help="Memory of the guest.  [default: 512MB]")
@click.option("--machine", type=click.Choice(["q35", "microvm"]), default="q35", help="QEMU's machine.  [default: q35]")
@click.option("--guest-pages", metavar="SIZE", help="Its memory lies on reserved huge pages (2MB, 1GB).")
@click.option("--pin-vcpus", is_flag=True, help="Each vCPU runs on a CPU of its own.")
@click.option("--ksm", is_flag=True, help="The host merges equal pages of its memory.")
@click.option("--free-page-reporting/--no-free-page-reporting", "reporting", default=True, help="It gives free pages back.  [default: on]")
@click.option("--for", "lasting", metavar="TIME", help="End by itself after this time.  [default: with Ctrl-C]")
@click.option("--patience", metavar="TIME", default="2m", help="How long the guest may take to come up.  [default: 2m]")
@json_option
def boot(
    pg_bin: str | None,
    pg_version: str | None,
    accelerator: str | None,
    run_as: str | None,
    scale: int,
    vcpus: int,
    memory: str,
    machine: str,
    guest_pages: str | None,
    pin_vcpus: bool,
    ksm: bool,
    reporting: bool,
    lasting: str | None,
    patience: str,
    as_json: bool,
) -> int:
    """Boot a guest with a server and a pgbench database, and tell how to reach it. Ctrl-C ends it, and nothing is left but what the cache
    keeps. With --json the document is printed as soon as the server answers.
    """
    from pgherd.model.deployment import GuestMachine
    from pgherd.model.units import parse_bytes, parse_seconds
    from pgherd.node import interruption
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations
    from pgherd.prepare.vm_options import asked_machine
    from pgherd.runner.deploy.guest_visit import Wanted, visit
    from pgherd.study.database_options import DatabaseRequest

    beneath = DatabaseRequest(vm_huge_pages=guest_pages, vm_pin_vcpus=pin_vcpus, vm_ksm=ksm)
    wanted = Wanted(
        scale=scale,
        vcpus=vcpus,
        memory=parse_bytes(memory),
        machine="microvm" if machine == "microvm" else "q35",
        accelerator=accelerator,
        patience=parse_seconds(patience),
        hypervisor=asked_machine(beneath, "vm", vcpus, len(os.sched_getaffinity(0))) or GuestMachine(),
        reporting=reporting and guest_pages is None,
    )
    until = None if lasting is None else parse_seconds(lasting)
    node = LocalNode()
    chosen = installations.choose(node, pg_bin, pg_version)
    with interruption.ended_by_signals(), visit(node, chosen, wanted, run_as=run_as, say=_say) as found:
        if as_json:
            print_document({"schema": "pgherd/vm-boot/1", **_visit_document(found)})
            sys.stdout.flush()
        else:
            _show_visit(found, until)
        return _stay(found, until)


def _stay(found: Visit, seconds: float | None) -> int:
    """Until Ctrl-C, the end of the time, or the guest's own end; Ctrl-C is the plain way to end it."""
    import time

    from pgherd.model.errors import TrialError

    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        while deadline is None or time.monotonic() < deadline:
            if not found.machine.running:
                raise TrialError(f"guest {found.machine.name} {found.machine.ending()}; {found.machine.last_words()}")
            time.sleep(0.2)
    except KeyboardInterrupt:
        pass
    return 0


@command.command("shell", short_help="A shell inside a guest that 'vm boot' has booted.")
@click.argument("name", required=False)
@click.option("-c", "--command", "text", metavar="TEXT", help="Run this in the guest, and print what it says.")
@json_option
def shell(name: str | None, text: str | None, as_json: bool) -> int:
    """The console of a guest that 'pgherd vm boot' has booted, with a shell of the guest's root; NAME may be left out where only one runs.
    Ctrl-] leaves it. With -c the exit code is the command's.
    """
    from pgherd.model.errors import UsageError
    from pgherd.node.local import LocalNode
    from pgherd.runtimes.vm import running

    guests = [guest for guest in running.find_all(LocalNode()) if guest.console is not None]
    chosen = [guest for guest in guests if name in (None, guest.name)]
    if len(chosen) != 1:
        names = ", ".join(guest.name for guest in guests) or "none; 'pgherd vm boot' in another terminal boots one"
        wrong = f"no guest with a console is called '{name}'" if name is not None else "name the guest" if guests else "no guest runs"
        raise UsageError(f"{wrong}. With a console run: {names}")
    path = chosen[0].console or ""
    if text is not None:
        code, said = running.command(path, text)
        if as_json:
            print_document({"schema": "pgherd/vm-shell/1", "guest": chosen[0].name, "command": text, "exit_code": code, "output": said})
        else:
            click.echo(said, nl=False)
        return code
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("there is no terminal to connect with the guest's console; run one command with -c TEXT")
    click.echo(f"The console of guest {chosen[0].name}; Ctrl-] leaves it.", err=True)
    running.attach(path, sys.stdin.fileno(), sys.stdout.fileno())
    click.echo("", err=True)
    return 0


@command.command("list", short_help="What the cache keeps for guests, and which run.")
@json_option
def list_(as_json: bool) -> int:
    """What the cache keeps for guests, with sizes, and the guests that run on this machine."""
    from dataclasses import asdict

    from pgherd.host import paths
    from pgherd.node.local import LocalNode
    from pgherd.runtimes.vm import images, running

    kept = images.list_all(str(paths.cache_dir()))
    guests = running.find_all(LocalNode())
    if as_json:
        print_document(
            {"schema": "pgherd/vm-list/1", "kept": [asdict(one) for one in kept], "running": [asdict(guest) for guest in guests]}
        )
    else:
        _show_kept(kept)
        _show_running(guests)
    return 0


@command.command("clean", short_help="Remove from the cache what guests boot from.")
@click.option("--kernels", is_flag=True, help="Also kernels that were fetched, which takes another download to undo.")
@json_option
def clean(kernels: bool, as_json: bool) -> int:
    """Remove root images and first file systems from the cache, except those of guests that run. What a killed pgherd left of a guest is
    removed by 'pgherd clean'."""
    from dataclasses import asdict

    from pgherd.host import paths
    from pgherd.model.units import format_bytes
    from pgherd.node.local import LocalNode
    from pgherd.runtimes.vm import images, running

    used = [path for guest in running.find_all(LocalNode()) for path in guest.files]
    removed, left = images.clean(str(paths.cache_dir()), used, kernels=kernels)
    if as_json:
        print_document({"schema": "pgherd/vm-clean/1", "removed": [asdict(one) for one in removed], "left": [asdict(one) for one in left]})
        return 0
    console = answer_console()
    for one in removed:
        console.print(f"removed {one.kind} {one.path} ({format_bytes(one.bytes)})", markup=False, soft_wrap=True)
    for one in left:
        why = "it is in use" if one.path in used else "--kernels removes it"
        console.print(f"left {one.kind} {one.path} ({format_bytes(one.bytes)}): {why}", markup=False, soft_wrap=True)
    if not removed and not left:
        console.print("The cache keeps nothing for guests.")
    return 0


def _say(text: str) -> None:
    progress_console().print(f"{text} …", markup=False, style="dim")


def _images_document(made: Images) -> dict[str, Any]:
    from dataclasses import asdict

    kernel = {"image": made.boot, "release": made.kernel.release, "origin": made.kernel.origin}
    return {
        "kernel": kernel,
        "first_file_system": made.initrd,
        "root_image": asdict(made.root),
        "hypervisor": {**asdict(made.hypervisor), "functional_only": made.hypervisor.functional_only},
        "seconds": made.seconds,
    }


def _show_images(made: Images) -> None:
    from pgherd.model.units import format_bytes, format_seconds

    how = "made now" if made.root.built else "in the cache already"
    taken = f", {format_seconds(made.seconds['root image'])}" if made.root.built else ""
    rows = [
        ("kernel", f"{made.kernel.release} ({made.kernel.origin}): {made.boot}"),
        ("first file system", made.initrd),
        ("root image", f"PostgreSQL {made.root.version}, {format_bytes(made.root.bytes)} ({how}{taken}): {made.root.path}"),
        ("guests run by", made.hypervisor.sentence()),
    ]
    _print_rows(rows)


def _visit_document(found: Visit) -> dict[str, Any]:
    instance, machine = found.instance, found.machine
    reached = None
    if instance is not None and instance.access is not None:
        reached = {
            "host": instance.access.host,
            "port": instance.access.port,
            "user": instance.user,
            "database": found.database,
            "password_file": instance.access.password_file,
        }
    return {
        "guest": machine.name,
        "pid": machine.pid,
        "vcpus": machine.guest.vcpus,
        "memory": machine.guest.memory,
        "machine": machine.guest.machine,
        "huge_page": machine.guest.huge_page if machine.guest.backing == "huge" else None,
        "merge": machine.guest.merge,
        "free_page_reporting": machine.guest.reporting,
        "server": reached,
        "seconds": found.seconds,
        "images": _images_document(found.images),
    }


def _show_visit(found: Visit, until: float | None) -> None:
    from pgherd.model.units import format_bytes, format_seconds

    guest, instance = found.machine.guest, found.instance
    rows = [
        ("guest", f"{guest.name}: {guest.vcpus} vCPU, {format_bytes(guest.memory)}, {guest.machine}, kernel {found.images.kernel.release}"),
        ("runs by", found.images.hypervisor.sentence()),
        (
            "came up in",
            f"{format_seconds(found.seconds['booting'])}; golden copy to first answer {format_seconds(found.seconds['ready'])}",
        ),
    ]
    if instance is not None and instance.access is not None:
        access = instance.access
        words = (
            f"PGPASSFILE={access.password_file} {instance.installation.tool('psql')} -h {access.host} -p {access.port} -U {instance.user}"
        )
        rows.append(("server", f"{words} {found.database}"))
    rows.append(("inside", f"pgherd vm shell {guest.name}"))
    rows.append(("ends", "with Ctrl-C" if until is None else f"after {format_seconds(until)}, or with Ctrl-C"))
    _print_rows(rows)


def _print_rows(rows: list[tuple[str, str]]) -> None:
    console = answer_console()
    widest = max(len(name) for name, _ in rows)
    for name, text in rows:
        console.print(f"{name.ljust(widest)}  {text}", markup=False, soft_wrap=True)


def _show_kept(kept: list[Kept]) -> None:
    from pgherd.model.units import format_bytes

    if not kept:
        answer_console().print("The cache keeps nothing for guests; 'pgherd vm build' makes it.")
        return
    _print_rows([(one.kind, f"{format_bytes(one.bytes):>7}  {one.path}{f' ({one.note})' if one.note else ''}") for one in kept])


def _show_running(guests: list[Running]) -> None:
    from pgherd.model.units import format_bytes

    console = answer_console()
    if not guests:
        console.print("No guest runs.")
    for guest in guests:
        where = f", server on port {guest.port} of 127.0.0.1" if guest.port else ""
        size = f"{format_bytes(guest.memory)} of memory, {format_bytes(guest.resident)} resident, {format_bytes(guest.swapped)} swapped"
        console.print(
            f"guest {guest.name} (process {guest.pid}, {guest.accelerator}): {guest.vcpus} vCPU, {size}{where}",
            markup=False,
            soft_wrap=True,
        )
