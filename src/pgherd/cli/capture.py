"""``pgherd capture``: turn the load of a server into scripts and a generator, and compare a copy with its source."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from pgherd.cli.output import answer_console, json_option, print_document, progress_console
from pgherd.model.errors import UsageError
from pgherd.model.units import parse_seconds

if TYPE_CHECKING:
    from pgherd.capture.fingerprint import Fingerprint, QuantityComparison
    from pgherd.capture.model import Source
    from pgherd.capture.scripts import Mix

SCHEMA = "pgherd/capture/2"
_FILE = "capture.json"
_MAX_FILE_BYTES = 16 * 2**20
_SHOWN = 20


def _seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    try:
        seconds = parse_seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if seconds < 1:
        raise click.BadParameter(f"'{value}' is less than 1 s")
    return seconds


@click.command("capture")
@click.argument("dsn", metavar="DSN")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="New directory for scripts and init.sql.")
@click.option(
    "--compare",
    "captured",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="Compare the load on DSN with this capture.",
)
@click.option(
    "--duration", default="20s", show_default=True, callback=_seconds, metavar="TIME", help="Time for which the load is observed."
)
@click.option(
    "--values",
    type=click.Choice(["none", "common", "all"]),
    default="none",
    show_default=True,
    help="Data values in the copy: none, most common, or also histograms.",
)
@click.option("--pg-bin", metavar="DIR", help="Directory with pg_dump of the server's version or later.")
@json_option
def command(
    dsn: str,
    out: Path | None,
    captured: Path | None,
    duration: float,
    values: Literal["none", "common", "all"],
    pg_bin: str | None,
    as_json: bool,
) -> int:
    """Turn the load of a server into pgbench scripts, and generate data of the same shape. The server is only read.

    The load is the one in pg_stat_statements during --duration. --compare observes a copy under load, and reports which quantities
    differ by more than 10 %.

    \b
    pgherd capture 'host=db1 dbname=app' --out app
    pgherd capture 'host=copy dbname=app' --compare app
    """
    if (out is None) == (captured is None):
        raise UsageError("give either --out DIR for a new capture, or --compare DIR to compare with one")
    from pgherd.postgres import external_server

    plain = external_server.normalize_dsn(dsn, "DSN")
    if captured is not None:
        return _compare(plain, captured, duration, as_json)
    assert out is not None
    _require_new(out)
    return _capture(plain, out, duration, values, pg_bin, as_json)


def _require_new(out: Path) -> None:
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"--out {out} is not empty; name a new directory")


def _capture(plain: str, out: Path, duration: float, values: Literal["none", "common", "all"], pg_bin: str | None, as_json: bool) -> int:
    import psycopg

    from pgherd.capture.columns import Shapes
    from pgherd.capture.fingerprint import source_fingerprint
    from pgherd.capture.plans import counters
    from pgherd.capture.schema import choose_pg_dump, dump_schema, init_script
    from pgherd.capture.scripts import make_mix
    from pgherd.capture.source import read_source
    from pgherd.host import paths
    from pgherd.node import interruption
    from pgherd.node.local import LocalNode
    from pgherd.postgres import external_server, installations

    node, progress = LocalNode(), progress_console()
    connection = external_server.connect_read_only(plain, option="DSN")
    installation = choose_pg_dump(node, connection.info.server_version // 10000, pg_bin)
    account = installations.user_for(installation.tool("pg_dump"))
    temporary = paths.temporary_tree(node, "capture", account, progress.print)  # the account enters it, but cannot list it
    with interruption.ended_by_signals(), temporary as directory:  # it has the password
        server = external_server.ExternalServer(node, plain, name="source", passfile=str(directory / "passfile"), account=account)
        if server.pooler is not None and server.pooler.shared:
            raise UsageError(
                f"DSN {plain}: {server.pooler.name} shares sessions between clients, where prepared statements stay behind; name the "
                "server itself"
            )
        progress.print(f"observing the load for {duration:.0f} s")
        try:
            source = read_source(connection, seconds=duration, values=values)
        except psycopg.Error as error:
            raise UsageError(f"DSN {plain}: {' '.join(str(error).split())}") from None
        progress.print(f"reading the schema with pg_dump {installation.version}")
        schema = dump_schema(node, installation, server.address(), account)
    shapes = Shapes(source.tables, counters(source.functions))
    mix = make_mix(source, shapes)
    if not mix.scripts:
        raise UsageError(f"no statement of the {duration:.0f} s can be reproduced: {'; '.join(mix.lost) or 'none ran'}")
    text, lost = init_script(schema, shapes, source.search_path)
    fingerprint = source_fingerprint(source, mix.scripts)
    document = {
        "schema": SCHEMA,
        "database": source.database,
        "version": source.version,
        "values": values,
        "search_path": source.schemas,
        "rate": mix.rate,
        "scripts": [{"file": script.name, "weight": script.weight, "statements": script.statements} for script in mix.scripts],
        "lost": [*mix.lost, *lost, *source.notes, *_always_lost(values)],
        "fingerprint": fingerprint,
        "total": vars(source.total),
        "command": _density(out, mix, source.search_path),
    }
    _write(out, text, mix, document)
    if as_json:
        print_document(document)
    else:
        _show(source, mix, document, out)
    return 0


def _always_lost(values: str) -> list[str]:
    return [
        "access pattern: rows are selected uniformly, because the statistics do not show which rows are hot",
        "constants: normalized texts do not distinguish constants from parameters, so both are drawn",
        *(["values: the data have the source's sizes and distinct counts, but no value of it"] if values == "none" else []),
        "correlation between columns without a key or foreign key, bloat, and sequence positions",
    ]


def _density(out: Path, mix: Mix, search_path: str) -> str:
    scripts = [word for script in mix.scripts for word in ("--script", f"{out / script.name}@{script.weight}")]
    # The setting of the database is not in the copies that density makes of it.
    settings = ["--set", f"search_path={search_path}"] if search_path else []
    words = ["pgherd", "density", "--init-script", str(out / "init.sql"), *scripts, *settings, "--rate", _rate(mix.rate)]
    return shlex.join(words)


def _rate(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def _write(out: Path, init: str, mix: Mix, document: dict[str, Any]) -> None:
    from pgherd.capture.fingerprint import Fingerprint
    from pgherd.node.files import Directory

    plain = {key: value.model_dump(mode="json") if isinstance(value, Fingerprint) else value for key, value in document.items()}
    out.mkdir(parents=True, exist_ok=True)
    with Directory.open(out.resolve()) as directory:  # other users cannot read its files: function bodies and values may be secret
        directory.write("init.sql", init.encode())
        for script in mix.scripts:
            directory.write(script.name, script.text.encode())
        directory.write(_FILE, (json.dumps(plain, indent=2) + "\n").encode())


def _show(source: Source, mix: Mix, document: dict[str, Any], out: Path) -> None:
    console = answer_console()
    statements = sum(len(script.statements) for script in mix.scripts)
    calls = sum(s.counters.calls for s in source.statements if s.number in {n for script in mix.scripts for n in script.statements})
    console.print(
        f"{out}: scripts for {100 * calls / max(source.total.calls, 1):.0f} % of calls (scripts: {len(mix.scripts)}, statements: "
        f"{statements}, tables: {len(source.tables)}), {_rate(mix.rate)} transactions per second.",
        markup=False,
        soft_wrap=True,
    )
    console.print("Not reproduced:")
    for line in document["lost"][:_SHOWN]:
        console.print(f"  {line}", markup=False, soft_wrap=True)
    if len(document["lost"]) > _SHOWN:
        console.print(f"  and {len(document['lost']) - _SHOWN} more in {out / _FILE}", markup=False)
    console.print(f"Run it:\n  {document['command']}", markup=False, soft_wrap=True)


# ---- comparison


def _compare(plain: str, captured: Path, duration: float, as_json: bool) -> int:
    import psycopg

    from pgherd.capture.fingerprint import TOLERANCE, compare, copy_fingerprint
    from pgherd.capture.source import read_statistics
    from pgherd.postgres import external_server

    source = _read_fingerprint(captured)
    progress_console().print(f"observing the load for {duration:.0f} s")
    try:
        copy = copy_fingerprint(source, *read_statistics(external_server.connect_read_only(plain, option="DSN"), seconds=duration))
    except psycopg.Error as error:
        raise UsageError(f"DSN {plain}: {' '.join(str(error).split())}") from None
    if not any(one.number for one in copy.statements):
        raise UsageError(f"DSN {plain}: no statement of {captured} ran in {duration:.0f} s; start its scripts first")
    rows = compare(source, copy)
    failed = [row for row in rows if row.result == "fail"]
    compared = [row for row in rows if row.result != "not compared"]
    unknown = sum(row.result == "unknown" for row in rows)
    answer = (
        f"{sum(row.result == 'pass' for row in rows)} of {len(compared)} quantities of the copy are within {TOLERANCE:.0%} of the source, "
        f"{len(failed)} are not, {unknown} are unknown."
    )
    if as_json:
        comparisons = [row.model_dump(mode="json", by_alias=True) for row in rows]
        print_document({"schema": "pgherd/capture-comparison/2", "answer": answer, "comparisons": comparisons, "fingerprint": copy})
    else:
        _show_comparison(rows, answer)
    return 1 if failed or unknown else 0


def _read_fingerprint(captured: Path) -> Fingerprint:
    from pydantic import ValidationError

    from pgherd.capture.fingerprint import Fingerprint
    from pgherd.node.files import UnsafeFileError, read_input

    path = captured / _FILE
    try:
        document = json.loads(read_input(path, _MAX_FILE_BYTES))
        return Fingerprint.model_validate(document["fingerprint"])
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}; --compare requires the directory of a capture") from None
    except (ValueError, KeyError, TypeError, ValidationError, UnsafeFileError, RecursionError):
        raise UsageError(f"{path} is not a file of pgherd capture; make a new capture") from None


def _show_comparison(rows: list[QuantityComparison], answer: str) -> None:
    from rich.table import Table

    console = answer_console()
    console.print(answer, markup=False)
    table = Table(box=None, pad_edge=False)
    for name in ("quantity", "statement", "source", "copy", "ratio", "unit", "n", "result"):
        table.add_column(name, justify="right" if name in ("source", "copy", "ratio", "n", "statement") else "left", no_wrap=True)
    for row in rows:
        ratio = "–" if row.ratio is None else f"{row.ratio:.3f}"
        if row.low is not None and row.high is not None:
            ratio += f" ({row.low:.3f} to {row.high:.3f})"
        statement = "all" if row.statement is None else str(row.statement)
        table.add_row(row.quantity, statement, f"{row.source:.4g}", f"{row.copy_:.4g}", ratio, row.unit, f"{row.n:,}", row.result)
    console.print(table)
    console.print("The ratio of calls has a 95 % interval. The others have none, because one window does not show their variance.")
