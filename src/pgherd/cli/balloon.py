"""``pgherd balloon``: build, inspect and demonstrate the pg_balloon extension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pgherd.cli.output import FiniteRange, answer_console, confirm_changes, json_option, print_document, progress_console, yes_option

if TYPE_CHECKING:
    from pgherd.cli.balloon_demo import DemoLog, DemoOptions
    from pgherd.model.run import Swap
    from pgherd.postgres.installations import Installation

_POSTGRES = (
    click.option("--pg-bin", metavar="DIR", help="Directory with postgres, initdb and pgbench."),
    click.option("--pg-version", metavar="MAJOR", help="PostgreSQL major version.  [default: newest installed, else bundled 18]"),
)


def _postgres(function: Any) -> Any:
    for option in reversed(_POSTGRES):
        function = option(function)
    return function


class _Balloon(click.Group):
    """The group of verbs, with the study that changes a memory limit."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "limits"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name != "limits":
            return super().get_command(ctx, cmd_name)
        from pgherd.cli.study_command import StudyCommand
        from pgherd.study.study import study_of

        return StudyCommand(study_of("balloon-limits"))


@click.group("balloon", cls=_Balloon, short_help="Build, inspect and demonstrate the pg_balloon extension.")
def command() -> None:
    """Build, inspect and demonstrate the pg_balloon extension. A server that shares memory with others inflates its balloon to
    return unused memory, and deflates it to use the memory again. See extension/pg_balloon/README.md."""


@command.command("build", short_help="Build the extension and print the settings that load it.")
@_postgres
@click.option("--rebuild", is_flag=True, help="Rebuild even if cached.")
@json_option
def build(pg_bin: str | None, pg_version: str | None, rebuild: bool, as_json: bool) -> int:
    """Build pg_balloon for PostgreSQL 15 to 18 into pgherd's cache, and print the settings that load it from there.

    PostgreSQL's directories are left unchanged. To install into them, use the Makefile of the extension.
    """
    from pgherd.host import paths
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations
    from pgherd.postgres.pg_balloon import ensure_balloon

    node = LocalNode()
    installation = installations.choose(node, pg_bin, pg_version)
    progress = progress_console()
    library = ensure_balloon(
        node, installation, str(paths.cache_dir()), again=rebuild, say=lambda text: progress.print(f"{text} …", markup=False, style="dim")
    )
    if as_json:
        print_document(
            {
                "schema": "pgherd/balloon-build/2",
                "postgres": {"bin": installation.bin, "version": installation.version, "kind": installation.kind},
                "directory": library.directory,
                "library": library.library,
                "sql": library.sql,
                "settings": library.settings,
                "source": library.source,
                "rebuilt": library.built,
            }
        )
        return 0
    console = answer_console()
    origin = "built now" if library.built else "cached"
    console.print(
        f"pg_balloon for PostgreSQL {installation.version} ({installation.kind}), {origin}: {library.library}", markup=False, soft_wrap=True
    )
    console.print("\nAdd to these settings in postgresql.conf, and restart:", markup=False)
    for name, value in library.settings.items():
        console.print(f"    {name} = '{value}'", markup=False, soft_wrap=True)
    console.print("Then set, and reload:\n    pg_balloon.enabled = on", markup=False)
    create = "CREATE EXTENSION pg_balloon;" if library.major >= 18 else f"\\i {library.sql}"
    console.print(f"For its functions, run in one database as superuser in psql:\n    {create}", markup=False, soft_wrap=True)
    return 0


@command.command("status", short_help="Show the state of a server's balloon.")
@click.argument("dsn")
@json_option
def status(dsn: str, as_json: bool) -> int:
    """Show the state of a server's balloon and the reason of its last decision. DSN is postgresql://USER@HOST/DATABASE or
    'host=… user=… dbname=…'. The server is only read. The user must be a member of pg_monitor, or a superuser.
    """
    from pgherd.postgres import external_server, pg_balloon

    balloon = pg_balloon.read_status(external_server.normalize_dsn(dsn, "DSN"))
    if as_json:
        print_document({"schema": "pgherd/balloon-status/2", **balloon.document()})
    else:
        _show_status(balloon)
    return 0 if balloon.loaded and balloon.status.get("usable", True) else 1


def _show_status(balloon: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    console = answer_console()
    if not balloon.loaded or not balloon.status:
        console.print(balloon.advice, markup=False)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in balloon.lines():
        table.add_row(name, Text(text))
    console.print(table)


@command.command("demo", short_help="Show two servers that exchange memory.")
@_postgres
@click.option("--memory", metavar="SIZE", help="Memory of each container.  [default: 512MB]")
@click.option("--overcommit", type=float, default=30.0, metavar="PERCENT", help="Overcommitment, percent.  [default: 30]")
@click.option("--phase-length", metavar="TIME", help="Length of a phase.  [default: 10s]")
@click.option("--phases", type=int, default=4, help="Number of phases.  [default: 4]")
@click.option("--clients", type=int, default=4, help="Clients of the busy server.  [default: 4]")
@click.option("--cores", type=FiniteRange(0, min_open=True), help="Cores this demonstration may use.  [default: all]")
@click.option("--run-as", metavar="USER", help="User that servers run as, when pgherd runs as root.")
@click.option("--dry-run", is_flag=True, help="Show the plan and exit.")
@yes_option
@json_option
def demo(
    pg_bin: str | None,
    pg_version: str | None,
    memory: str | None,
    overcommit: float,
    phase_length: str | None,
    phases: int,
    clients: int,
    cores: float | None,
    run_as: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Show two servers that are busy alternately and exchange memory. Each has shared_buffers of 75 % of its container's memory,
    and the host has less memory than both containers. The idle server inflates its balloon while the other one needs memory.

    Requires cgroups with memory limits. Ctrl-C ends it. Only the loaded database remains, in pgherd's cache. This is a
    demonstration and no measurement.
    """
    from pgherd.cli.balloon_demo import MB, DemoOptions, demo_swap, plan
    from pgherd.model.units import parse_bytes, parse_seconds
    from pgherd.prepare.hosts import describe_swap

    options = DemoOptions(
        memory=512 * MB if memory is None else parse_bytes(memory),
        overcommitted=overcommit,
        phase=10.0 if phase_length is None else parse_seconds(phase_length),
        phases=phases,
        clients=clients,
    )
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations

    installation = installations.choose(LocalNode(), pg_bin, pg_version)
    swap, sentences = demo_swap(LocalNode(), options)
    for sentence in sentences:
        progress_console().print(sentence, markup=False)
    changes = [describe_swap(swap)] if swap and swap.kind != "none" else []
    if dry_run:
        changes += ["two control groups with memory limits", "servers' data in pgherd's cache"]
        document = plan(options, installation.version, changes)
        if as_json:
            print_document({"schema": "pgherd/balloon-demo-plan/2", **document})
        else:
            _show_plan(options, document)
        return 0
    confirm_changes(changes, lambda text: progress_console().print(text, markup=False))
    log, interrupted = _run_demo(options, installation, swap, cores, run_as)
    if as_json:
        print_document({"schema": "pgherd/balloon-demo/2", **log.document()})
    elif log.moments:
        _show_log(log)
    return 130 if interrupted else 0


def _show_plan(options: DemoOptions, document: dict[str, Any]) -> None:
    from pgherd.model.units import format_bytes, format_seconds

    lines = (
        f"2 containers ({format_bytes(options.memory)} each, {format_bytes(options.host)} together) with one PostgreSQL "
        f"{document['postgres']} each.",
        f"Each server: shared_buffers {format_bytes(options.pool)}, one pgbench database of scale {options.scale}.",
        f"{options.phases} phases of {format_seconds(options.phase)}: {options.clients} clients on one server, 1 on the other, in turn.",
        f"Time: {format_seconds(document['seconds'])} under load.",
        f"Disk: about {format_bytes(document['disk_bytes'])} while it runs. Memory: {format_bytes(document['memory_bytes'])}.",
        f"Host changes, undone at the end: {'; '.join(document['host_changes'])}.",
    )
    for line in lines:
        answer_console().print(line, markup=False)


def _run_demo(
    options: DemoOptions, installation: Installation, swap: Swap | None, cores: float | None, run_as: str | None
) -> tuple[DemoLog, bool]:
    """Return the log, and True if Ctrl-C ended the demonstration."""
    import secrets
    import time

    from pgherd.cli.balloon_demo import DemoLog, DemoView, run_demo
    from pgherd.host.facts import gather
    from pgherd.model.run import RunEnvironment
    from pgherd.node import interruption
    from pgherd.node.local import LocalNode
    from pgherd.runner.session import open_session

    node = LocalNode()
    log = DemoLog(options, installation.version)
    environment = RunEnvironment(runtime="cgroup", run_as=run_as, cores=cores or gather(node).cores, memory=options.host, swap=swap)
    name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-balloon-{secrets.token_hex(2)}"
    try:
        with (
            interruption.ended_by_signals(),
            DemoView(progress_console(), options) as view,
            open_session(node, name, environment, view) as opened,
        ):
            run_demo(opened, installation, options, view, view.show, log)
    except KeyboardInterrupt:
        return log, True
    return log, False


def _show_log(log: DemoLog) -> None:
    from rich.table import Table

    from pgherd.model.units import format_bytes

    console = answer_console()
    if not log.finished:
        console.print("Interrupted. Results so far:")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("phase", "busy"):
        table.add_column(name)
    for name in ("tps after 2 s", "tps, second half", "balloon of a", "balloon of b"):
        table.add_column(name, justify="right")
    for row in log.phases():
        rates = [f"{row[name]:,.0f}" if row[name] is not None else "–" for name in ("early_tps", "late_tps")]
        table.add_row(str(row["phase"]), row["busy"], *rates, *(format_bytes(size) for size in row["ballooned"].values()))
    console.print(table)
    console.print("A demonstration on one host, and no measurement.", style="dim")
