"""``pgherd advise``: check host and server against recommended settings. Both are left unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgherd.cli.output import answer_console, json_option, print_document, progress_console, runs_option

if TYPE_CHECKING:
    from pgherd.model.host_facts import Advice, ServerFacts
    from pgherd.node.protocol import Node

SCHEMA = "pgherd/advise/2"
_STYLES = {"ok": "green", "consider": "yellow", "change": "bold red", "unknown": "dim"}
_OUTCOMES = ("change", "consider", "unknown", "ok")


@click.command("advise")
@click.option("--dsn", metavar="DSN", help="Also check this server; read only.")
@runs_option
@json_option
def command(dsn: str | None, runs: Path, as_json: bool) -> int:
    """Check host and server against recommended settings: what to change, why, the command, and the measured benefit from
    runs on this host. Nothing is changed, and the exit code is 0 for every result.

    \b
    pgherd advise
    pgherd advise --dsn 'host=db1 dbname=app'
    """
    from pgherd.analysis.advice import host_advice, server_advice
    from pgherd.host.facts import gather, read_advice_facts
    from pgherd.node.local import LocalNode
    from pgherd.report.measured_benefit import measured_benefits

    node = LocalNode()
    host = read_advice_facts(node, gather(node))
    server = _server_facts(node, dsn) if dsn is not None else None
    checks = host_advice(host) + (server_advice(server, host) if server is not None else [])
    benefits = measured_benefits(runs, host.hostname)
    checks = [check.model_copy(update={"measured_benefit": tuple(benefits.get(check.check, ()))}) for check in checks]
    if as_json:
        print_document(
            {
                "schema": SCHEMA,
                "answer": answer(checks),
                "host": host,
                "server": server,
                "advice": checks,
                "counts": _counts(checks),
                "warnings": [] if server is not None else ["no server was checked: give --dsn"],
            }
        )
    else:
        _show(checks, runs, with_server=server is not None)
    return 0


def answer(checks: Sequence[Advice]) -> str:
    """Return one sentence with the number of checks and of each outcome."""
    counts = _counts(checks)
    return (
        f"{len(checks)} recommended settings checked: {counts['change']} to change, {counts['consider']} to consider, "
        f"{counts['unknown']} not visible, {counts['ok']} ok. Nothing was changed."
    )


def _counts(checks: Sequence[Advice]) -> dict[str, int]:
    return {outcome: sum(check.outcome == outcome for check in checks) for outcome in _OUTCOMES}


def _server_facts(node: Node, dsn: str) -> ServerFacts:
    """Read the facts of a server. Raises UsageError if the DSN is invalid or the server refuses the connection."""
    import psycopg

    from pgherd.host import paths
    from pgherd.model.errors import UsageError
    from pgherd.node import interruption
    from pgherd.postgres import advice_facts, external_server

    plain = external_server.normalize_dsn(dsn, "--dsn")
    found = external_server.read_database_info(plain, option="--dsn", node=node)  # its error messages name the option
    temporary = paths.temporary_tree(node, "advise", None, progress_console().print)
    with interruption.ended_by_signals(), temporary as directory:  # it has the password
        try:
            return advice_facts.read_server_facts(node, plain, str(directory / "passfile"), local=found.pid > 0)
        except psycopg.Error as error:
            raise UsageError(f"--dsn {plain}: {str(error).strip()}") from None


def _show(checks: Sequence[Advice], runs: Path, *, with_server: bool) -> None:
    from rich.text import Text

    console = answer_console()
    console.print(answer(checks), markup=False)
    for outcome in _OUTCOMES[:3]:
        for check in (check for check in checks if check.outcome == outcome):
            console.print()
            console.print(Text.assemble((f"{outcome:<9}", _STYLES[outcome]), (check.check, "bold"), f"  {check.observed}"))
            for head, text in (
                ("recommended", check.recommended),
                ("reason", f"{check.rationale} ({check.source})"),
                ("command", check.fix),
            ):
                if text:
                    console.print(Text(f"         {head}: {text}"), soft_wrap=True)
            if outcome != "unknown":
                measured = [f"{benefit.text} (run {benefit.run})" for benefit in check.measured_benefit] or [
                    f"not measured on this host (no such run in {runs})"
                ]
                for text in measured:
                    console.print(Text(f"         benefit: {text}"), soft_wrap=True)
    passed = [f"{check.check} ({check.observed})" for check in checks if check.outcome == "ok"]
    if passed:
        console.print()
        console.print(Text.assemble(("ok       ", _STYLES["ok"]), ", ".join(passed)))
    if not with_server:
        console.print()
        console.print("--dsn DSN also checks a server; read only.", markup=False)
