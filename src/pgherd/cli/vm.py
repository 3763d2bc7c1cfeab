"""``pgherd vm``: build, boot and inspect virtual machine guests."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from pgherd.cli.output import answer_console, json_option, print_document, progress_console
from pgherd.model.text import clean as clean_text

if TYPE_CHECKING:
    from pgherd.runner.deploy.single_guest import SingleGuest
    from pgherd.runtimes.vm.boot_images import BootImages, CachedImage
    from pgherd.runtimes.vm.virtual_machine import RunningGuest

_POSTGRES = (
    click.option("--pg-bin", metavar="DIR", help="Directory with postgres, initdb and pgbench."),
    click.option("--pg-version", metavar="MAJOR", help="PostgreSQL major version.  [default: newest installed, else bundled 18]"),
    click.option("--accel", type=click.Choice(["kvm", "tcg"]), help="QEMU accelerator: kvm or tcg.  [default: kvm if it works]"),
    click.option("--run-as", metavar="USER", help="User that servers run as, when pgherd runs as root."),
)


def _postgres(function: Any) -> Any:
    for option in reversed(_POSTGRES):
        function = option(function)
    return function


@click.group("vm", short_help="Build, boot and inspect virtual machine guests.")
def command() -> None:
    """Build, boot and inspect virtual machine guests. Their images are built from this machine's PostgreSQL and a kernel of its
    distribution, and cached. See docs/howto/vm.md."""


@command.command("build", short_help="Build kernel, initramfs and root image for a PostgreSQL.")
@_postgres
@click.option("--rebuild", is_flag=True, help="Rebuild even if cached, and test KVM again.")
@json_option
def build(pg_bin: str | None, pg_version: str | None, accel: str | None, run_as: str | None, rebuild: bool, as_json: bool) -> int:
    """Build kernel, initramfs and root image for guests with a PostgreSQL, unless cached. Nothing is installed on this machine."""
    from pgherd.host import paths
    from pgherd.host.journal import Journal
    from pgherd.host.server_user import server_account
    from pgherd.node import interruption
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations
    from pgherd.runtimes.vm import boot_images

    node, cache = LocalNode(), str(paths.cache_dir())
    user = server_account(run_as)
    installation = installations.choose(node, pg_bin, pg_version)
    with interruption.ended_by_signals():
        journal = Journal.open(node, paths.state_dir(), "vm-build")
        try:
            scratch = boot_images.scratch_tree(node, journal)
            usable = installations.reachable_copy(node, installation, user, cache)
            built = boot_images.build(node, usable, user, cache, scratch, accelerator=accel, again=rebuild, say=_progress)
        finally:
            journal.end(_progress)
    if as_json:
        print_document({"schema": "pgherd/vm-build/2", **_images_document(built)})
    else:
        _show_images(built)
    return 0


@command.command("boot", short_help="Boot a guest with a pgbench database.")
@_postgres
@click.option("--scale", type=click.IntRange(min=0), default=1, help="pgbench scale; 0: no server.  [default: 1]")
@click.option("--vcpus", type=click.IntRange(min=1), default=1, help="vCPUs.  [default: 1]")
@click.option("--memory", metavar="SIZE", default="512MB", help="Memory.  [default: 512MB]")
@click.option("--machine", type=click.Choice(["q35", "microvm"]), default="q35", help="QEMU machine type.  [default: q35]")
@click.option("--huge-pages", metavar="SIZE", help="Huge page size: 2MB or 1GB.")
@click.option("--pin-vcpus", is_flag=True, help="Pin vCPUs.")
@click.option("--ksm", is_flag=True, help="Merge pages (KSM).")
@click.option("--free-page-reporting/--no-free-page-reporting", "reporting", default=True, help="Free page reporting.  [default: on]")
@click.option("--duration", metavar="TIME", help="Shut down after this time.  [default: on Ctrl-C]")
@click.option("--boot-timeout", metavar="TIME", default="2m", help="Time allowed for booting.  [default: 2m]")
@json_option
def boot(
    pg_bin: str | None,
    pg_version: str | None,
    accel: str | None,
    run_as: str | None,
    scale: int,
    vcpus: int,
    memory: str,
    machine: str,
    huge_pages: str | None,
    pin_vcpus: bool,
    ksm: bool,
    reporting: bool,
    duration: str | None,
    boot_timeout: str,
    as_json: bool,
) -> int:
    """Boot a guest with a server and a pgbench database, and print its address. Ctrl-C shuts it down, and only cached images
    remain. With --json the document is printed when the server accepts connections.
    """
    from pgherd.model.deployment import VmOptions
    from pgherd.model.units import Size, parse_bytes, parse_seconds
    from pgherd.node import interruption
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations
    from pgherd.prepare.guests import RequestedGuests, requested_machine, require_pinnable
    from pgherd.runner.deploy.single_guest import GuestRequest, boot_single_guest
    from pgherd.runtimes.vm.runtime import BootOptions

    pages = None if huge_pages is None else Size(huge_pages)
    machine_options = requested_machine(RequestedGuests(huge_pages=pages, pin_vcpus=pin_vcpus, ksm=ksm), "vm")
    require_pinnable(machine_options, vcpus, len(os.sched_getaffinity(0)))
    request = GuestRequest(
        scale=scale,
        vcpus=vcpus,
        memory=parse_bytes(memory),
        hypervisor=machine_options or VmOptions(),
        reporting=reporting and huge_pages is None,
        boot=BootOptions(accel, "microvm" if machine == "microvm" else "q35", console_shell=True, timeout_s=parse_seconds(boot_timeout)),
    )
    seconds = None if duration is None else parse_seconds(duration)
    node = LocalNode()
    installation = installations.choose(node, pg_bin, pg_version)
    with interruption.ended_by_signals(), boot_single_guest(node, installation, request, run_as=run_as, say=_progress) as guest:
        if as_json:
            print_document({"schema": "pgherd/vm-boot/2", **_guest_document(guest)})
            sys.stdout.flush()
        else:
            _show_guest(guest, seconds)
        return _wait(guest, seconds)


def _wait(guest: SingleGuest, seconds: float | None) -> int:
    """Wait for Ctrl-C or the end of the time. Raises TrialError if the guest ends before."""
    import time

    from pgherd.model.errors import TrialError

    deadline = None if seconds is None else time.monotonic() + seconds
    try:
        while deadline is None or time.monotonic() < deadline:
            if not guest.machine.running:
                raise TrialError(f"guest {guest.machine.name} {guest.machine.ending()}; {guest.machine.last_words()}")
            time.sleep(0.2)
    except KeyboardInterrupt:
        pass
    return 0


@command.command("shell", short_help="Open a shell in a guest of 'vm boot'.")
@click.argument("name", required=False)
@click.option("-c", "--command", "text", metavar="TEXT", help="Run one command.")
@json_option
def shell(name: str | None, text: str | None, as_json: bool) -> int:
    """Open a root shell on the console of a guest of 'pgherd vm boot'. NAME is optional for a single guest. Ctrl-] leaves it. With
    -c the exit code is that of the command.
    """
    from pgherd.model.errors import UsageError
    from pgherd.node.local import LocalNode
    from pgherd.runtimes.vm import virtual_machine

    guests = [guest for guest in virtual_machine.running_guests(LocalNode()) if guest.console is not None]
    matching = [guest for guest in guests if name in (None, guest.name)]
    if len(matching) != 1:
        names = ", ".join(guest.name for guest in guests) or "none; start one with 'pgherd vm boot' in another terminal"
        problem = f"no guest with a console has the name '{name}'" if name is not None else "name the guest" if guests else "no guest runs"
        raise UsageError(f"{problem}. Guests with a console: {names}")
    path = matching[0].console or ""
    if text is not None:
        code, output = virtual_machine.run_on_console(path, text)
        if as_json:
            print_document({"schema": "pgherd/vm-shell/2", "guest": matching[0].name, "command": text, "exit_code": code, "output": output})
        else:
            click.echo(clean_text(output.replace("\r\n", "\n")) if sys.stdout.isatty() else output, nl=False)
        return code
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the console requires a terminal; run one command with -c TEXT")
    click.echo(f"Console of guest {matching[0].name}. Ctrl-] leaves it.", err=True)
    virtual_machine.attach_console(path, sys.stdin.fileno(), sys.stdout.fileno())
    click.echo("", err=True)
    return 0


@command.command("list", short_help="List cached images and running guests.")
@json_option
def list_(as_json: bool) -> int:
    """List cached images with their sizes, and the guests that run on this machine."""
    from dataclasses import asdict

    from pgherd.host import paths
    from pgherd.node.local import LocalNode
    from pgherd.runtimes.vm import boot_images, virtual_machine

    cached = boot_images.list_all(str(paths.cache_dir()))
    guests = virtual_machine.running_guests(LocalNode())
    if as_json:
        print_document(
            {"schema": "pgherd/vm-list/2", "cached": [asdict(image) for image in cached], "running": [asdict(guest) for guest in guests]}
        )
    else:
        _show_cached(cached)
        _show_running(guests)
    return 0


@command.command("clean", short_help="Remove cached images.")
@click.option("--kernels", is_flag=True, help="Also remove downloaded kernels.")
@json_option
def clean(kernels: bool, as_json: bool) -> int:
    """Remove cached root images and initramfs files, unless a guest or run uses them. Leftovers of killed guests: 'pgherd clean'."""
    from dataclasses import asdict

    from pgherd.host import journal, paths
    from pgherd.model.units import format_bytes
    from pgherd.node.local import LocalNode
    from pgherd.runtimes.vm import boot_images, virtual_machine

    node = LocalNode()
    cache = str(paths.cache_dir())
    used = [path for guest in virtual_machine.running_guests(node) for path in guest.files]
    if journal.running(node, paths.state_dir()):  # a run may boot a guest from any of them
        used += [image.path for image in boot_images.list_all(cache)]
    removed, kept = boot_images.clean(cache, used, kernels=kernels)
    if as_json:
        print_document(
            {"schema": "pgherd/vm-clean/2", "removed": [asdict(image) for image in removed], "kept": [asdict(image) for image in kept]}
        )
        return 0
    console = answer_console()
    for image in removed:
        console.print(f"removed {image.kind} {image.path} ({format_bytes(image.bytes)})", markup=False, soft_wrap=True)
    for image in kept:
        reason = "in use" if image.path in used else "--kernels removes it"
        console.print(f"kept {image.kind} {image.path} ({format_bytes(image.bytes)}): {reason}", markup=False, soft_wrap=True)
    if not removed and not kept:
        console.print("There are no cached images.")
    return 0


def _progress(text: str) -> None:
    progress_console().print(f"{text} …", markup=False, style="dim")


def _images_document(built: BootImages) -> dict[str, Any]:
    from dataclasses import asdict

    hypervisor = asdict(built.hypervisor)
    hypervisor["reason"] = hypervisor.pop("why")
    kernel = {"image": built.boot, "release": built.kernel.release, "origin": built.kernel.origin}
    return {
        "kernel": kernel,
        "initramfs": built.initrd,
        "root_image": asdict(built.root),
        "hypervisor": {**hypervisor, "functional_only": built.hypervisor.functional_only},
        "seconds": built.seconds,
    }


def _show_images(built: BootImages) -> None:
    from pgherd.model.units import format_bytes, format_seconds

    origin = "built now" if built.root.built else "cached"
    time = f", {format_seconds(built.seconds['root image'])}" if built.root.built else ""
    rows = [
        ("kernel", f"{built.kernel.release} ({built.kernel.origin}): {built.boot}"),
        ("initramfs", built.initrd),
        ("root image", f"PostgreSQL {built.root.version}, {format_bytes(built.root.bytes)} ({origin}{time}): {built.root.path}"),
        ("hypervisor", built.hypervisor.sentence()),
    ]
    _print_rows(rows)


def _guest_document(booted: SingleGuest) -> dict[str, Any]:
    instance, machine = booted.instance, booted.machine
    server = None
    if instance is not None and instance.access is not None:
        server = {
            "host": instance.access.host,
            "port": instance.access.port,
            "user": instance.user,
            "database": booted.database,
            "password_file": instance.access.password_file,
        }
    return {
        "guest": machine.name,
        "pid": machine.pid,
        "vcpus": machine.guest.vcpus,
        "memory": machine.guest.memory,
        "machine": machine.guest.machine,
        "huge_page": machine.guest.huge_page if machine.guest.backing == "huge" else None,
        "ksm": machine.guest.merge,
        "free_page_reporting": machine.guest.reporting,
        "server": server,
        "seconds": booted.seconds,
        "images": _images_document(booted.images),
    }


def _show_guest(booted: SingleGuest, seconds: float | None) -> None:
    from pgherd.model.units import format_bytes, format_seconds

    guest, instance = booted.machine.guest, booted.instance
    rows = [
        (
            "guest",
            f"{guest.name}: {guest.vcpus} vCPU, {format_bytes(guest.memory)}, {guest.machine}, kernel {booted.images.kernel.release}",
        ),
        ("hypervisor", booted.images.hypervisor.sentence()),
        (
            "boot time",
            f"{format_seconds(booted.seconds['booting'])}; template to first query {format_seconds(booted.seconds['ready'])}",
        ),
    ]
    if instance is not None and instance.access is not None:
        access = instance.access
        words = ["-h", access.host, "-p", str(access.port), "-U", instance.user, str(booted.database)]
        psql = shlex.join([instance.installation.tool("psql"), *words])
        rows.append(("server", f"PGPASSFILE={shlex.quote(access.password_file)} {psql}"))
    rows.append(("shell", f"pgherd vm shell {guest.name}"))
    rows.append(("end", "on Ctrl-C" if seconds is None else f"after {format_seconds(seconds)}, or on Ctrl-C"))
    _print_rows(rows)


def _print_rows(rows: list[tuple[str, str]]) -> None:
    console = answer_console()
    widest = max(len(name) for name, _ in rows)
    for name, text in rows:
        console.print(f"{name.ljust(widest)}  {text}", markup=False, soft_wrap=True)


def _show_cached(cached: list[CachedImage]) -> None:
    from pgherd.model.units import format_bytes

    if not cached:
        answer_console().print("There are no cached images; 'pgherd vm build' builds them.")
        return
    _print_rows(
        [(image.kind, f"{format_bytes(image.bytes):>7}  {image.path}{f' ({image.note})' if image.note else ''}") for image in cached]
    )


def _show_running(guests: list[RunningGuest]) -> None:
    from pgherd.model.units import format_bytes

    console = answer_console()
    if not guests:
        console.print("No guest runs.")
    for guest in guests:
        server = f", server on port {guest.port} of 127.0.0.1" if guest.port else ""
        size = f"{format_bytes(guest.memory)} of memory, {format_bytes(guest.resident)} resident, {format_bytes(guest.swapped)} swapped"
        console.print(
            f"guest {guest.name} (process {guest.pid}, {guest.accelerator}): {guest.vcpus} vCPU, {size}{server}",
            markup=False,
            soft_wrap=True,
        )
