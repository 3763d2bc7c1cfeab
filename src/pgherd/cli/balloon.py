"""``pgherd balloon``: build pg_balloon, look at one, and see two servers trade memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pgherd.cli.output import answer_console, confirm_changes, json_option, print_document, progress_console, yes_option

if TYPE_CHECKING:
    from pgherd.cli.balloon_demo import DemoLog, DemoOptions
    from pgherd.model.run import Swap
    from pgherd.postgres.installations import Installation

_POSTGRES = (
    click.option("--pg-bin", metavar="DIR", help="Directory of postgres, initdb and pgbench."),
    click.option("--pg-version", metavar="MAJOR", help="A PostgreSQL by its major version: this machine's, else the embedded 18."),
)


def _postgres(function: Any) -> Any:
    for option in reversed(_POSTGRES):
        function = option(function)
    return function


@click.group("balloon", short_help="The memory balloon inside PostgreSQL: build it, look at one, see it work.")
def command() -> None:
    """The memory balloon inside PostgreSQL (experiment E8): a server that shares memory with others gives back what it does not
    use, and takes it again when it does. See extension/pg_balloon/README.md."""


@command.command("build", short_help="Build the extension for a PostgreSQL, and tell how to load it.")
@_postgres
@click.option("--again", is_flag=True, help="Build it anew although it is in the cache.")
@json_option
def build(pg_bin: str | None, pg_version: str | None, again: bool, as_json: bool) -> int:
    """Build pg_balloon for a PostgreSQL 15 to 18 into pgherd's cache, and tell the settings that load it from there.

    Nothing is installed into PostgreSQL's own directories. For that use the extension's own Makefile.
    """
    from pgherd.host import paths
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations
    from pgherd.postgres.balloon_build import ensure_balloon

    node = LocalNode()
    chosen = installations.choose(node, pg_bin, pg_version)
    progress = progress_console()
    library = ensure_balloon(
        node, chosen, str(paths.cache_dir()), again=again, say=lambda text: progress.print(f"{text} …", markup=False, style="dim")
    )
    if as_json:
        print_document(
            {
                "schema": "pgherd/balloon-build/1",
                "postgres": {"bin": chosen.bin, "version": chosen.version, "kind": chosen.kind},
                "directory": library.directory,
                "library": library.library,
                "sql": library.sql,
                "settings": library.settings,
                "source": library.source,
                "built": library.built,
            }
        )
        return 0
    console = answer_console()
    how = "built now" if library.built else "in the cache already"
    console.print(f"pg_balloon for PostgreSQL {chosen.version} ({chosen.kind}), {how}: {library.library}", markup=False, soft_wrap=True)
    console.print("\nIn postgresql.conf, with a restart (add to what these settings hold already):", markup=False)
    for name, value in library.settings.items():
        console.print(f"    {name} = '{value}'", markup=False, soft_wrap=True)
    console.print("Then, with a reload:\n    pg_balloon.enabled = on", markup=False)
    made = "CREATE EXTENSION pg_balloon;" if library.major >= 18 else f"\\i {library.sql}"
    console.print(f"For its functions, in one database, as superuser in psql:\n    {made}", markup=False, soft_wrap=True)
    return 0


@command.command("status", short_help="What the balloon of a running server does.")
@click.argument("dsn")
@json_option
def status(dsn: str, as_json: bool) -> int:
    """What the balloon of a running server does, and why. DSN is how to reach it: postgresql://USER@HOST/DATABASE, or
    'host=… user=… dbname=…'. Nothing on the server is changed. The user must be a member of pg_monitor, or a superuser.
    """
    from pgherd.postgres import balloon_status, external

    found = balloon_status.look(external.normalize_dsn(dsn, "DSN"))
    if as_json:
        print_document({"schema": "pgherd/balloon-status/1", **found.document()})
    else:
        _show_status(found)
    return 0 if found.loaded and found.status.get("usable", True) else 1


def _show_status(found: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    console = answer_console()
    if not found.loaded or not found.status:
        console.print(found.advice, markup=False)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in found.lines():
        table.add_row(name, Text(text))
    console.print(table)


@command.command("demo", short_help="Two servers trade memory while you look.")
@_postgres
@click.option("--memory", metavar="SIZE", help="Memory of each container.  [default: 512MB]")
@click.option(
    "--overcommitted", type=float, default=30.0, metavar="PERCENT", help="Of both containers' memory that is not there.  [default: 30]"
)
@click.option("--phase", "phase", metavar="TIME", help="How long one of them is busy.  [default: 10s]")
@click.option("--phases", type=int, default=4, help="How often they change turns.  [default: 4]")
@click.option("--clients", type=int, default=4, help="Clients of the busy one.  [default: 4]")
@click.option("--cores", type=float, help="Cores of this host that it may use.  [default: all]")
@click.option("--run-as", metavar="ACCOUNT", help="As root: the account that servers run as.")
@yes_option
@json_option
def demo(
    pg_bin: str | None,
    pg_version: str | None,
    memory: str | None,
    overcommitted: float,
    phase: str | None,
    phases: int,
    clients: int,
    cores: float | None,
    run_as: str | None,
    as_json: bool,
) -> int:
    """Two servers with pools of 75 % of their containers' memory, of which a part is not there, are busy in turn. Each gives
    memory back while the other needs it. It needs control groups with memory limits; Ctrl-C ends it, and nothing is left
    but the loaded database in pgherd's cache.

    It shows the mechanism; it is no measurement.
    """
    from pgherd.cli.balloon_demo import MB, DemoOptions, demo_swap
    from pgherd.model.units import parse_bytes, parse_seconds
    from pgherd.prepare.swap import described

    asked = DemoOptions(
        memory=512 * MB if memory is None else parse_bytes(memory),
        overcommitted=overcommitted,
        phase=10.0 if phase is None else parse_seconds(phase),
        phases=phases,
        clients=clients,
    )
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations

    chosen = installations.choose(LocalNode(), pg_bin, pg_version)
    swap, said = demo_swap(LocalNode(), asked)
    for sentence in said:
        progress_console().print(sentence, markup=False)
    confirm_changes([described(swap)] if swap and swap.kind != "none" else [], lambda text: progress_console().print(text, markup=False))
    told, interrupted = _play(asked, chosen, swap, cores, run_as)
    if as_json:
        print_document({"schema": "pgherd/balloon-demo/1", **told.document()})
    elif told.moments:
        _show_told(told)
    return 130 if interrupted else 0


def _play(asked: DemoOptions, chosen: Installation, swap: Swap | None, cores: float | None, run_as: str | None) -> tuple[DemoLog, bool]:
    """What was seen, and whether Ctrl-C ended it."""
    import secrets
    import time

    from pgherd.cli.balloon_demo import DemoLog, play
    from pgherd.cli.balloon_demo_view import DemoView
    from pgherd.host.facts import gather
    from pgherd.model.run import Surroundings
    from pgherd.node import interruption
    from pgherd.node.local import LocalNode
    from pgherd.runner.session import session

    node = LocalNode()
    told = DemoLog(asked, chosen.version)
    surroundings = Surroundings(runtime="cgroup", run_as=run_as, cores=cores or gather(node).cores, memory=asked.host, swap=swap)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-balloon-{secrets.token_hex(2)}"
    try:
        with (
            interruption.ended_by_signals(),
            DemoView(progress_console(), asked) as screen,
            session(node, name, surroundings, screen) as opened,
        ):
            play(opened, chosen, asked, screen, screen.show, told)
    except KeyboardInterrupt:
        return told, True
    return told, False


def _show_told(told: DemoLog) -> None:
    from rich.table import Table

    from pgherd.model.units import format_bytes

    console = answer_console()
    if not told.finished:
        console.print("Interrupted; this is what was seen until then.")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("phase", "busy"):
        table.add_column(name)
    for name in ("tps after 2 s", "tps, second half", "balloon of a", "balloon of b"):
        table.add_column(name, justify="right")
    for row in told.phases():
        rates = [f"{row[name]:,.0f}" if row[name] is not None else "–" for name in ("early_tps", "late_tps")]
        table.add_row(str(row["phase"]), row["busy"], *rates, *(format_bytes(size) for size in row["ballooned"].values()))
    console.print(table)
    console.print("This shows the mechanism on one host, once; it compares nothing.", style="dim")
