"""``pgherd doctor --advise``: good practice for databases, checked on this host and on a server by its DSN. Changes nothing."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pgherd.cli.output import answer_console, print_document

if TYPE_CHECKING:
    from pgherd.model.facts import Advice, ServerPractice
    from pgherd.node.protocol import Node

SCHEMA = "pgherd/advise/1"
_STYLES = {"ok": "green", "consider": "yellow", "change": "bold red", "unknown": "dim"}
_ORDER = ("change", "consider", "unknown", "ok")


def advise(dsn: str | None, runs: Path, *, as_json: bool) -> int:
    """Look, judge, and print; returns 0 whatever is advised.

    Raises:
        UsageError: the DSN is none, or its server does not let us in.
    """
    from pgherd.analysis.advice import host_advice, server_advice
    from pgherd.host import practice as host_practice
    from pgherd.host.facts import gather
    from pgherd.node.local import LocalNode
    from pgherd.report.measured_benefit import measured_benefits

    node = LocalNode()
    host = host_practice.look(node, gather(node))
    server = _server(node, dsn) if dsn is not None else None
    found = host_advice(host) + (server_advice(server, host) if server is not None else [])
    known = measured_benefits(runs, host.hostname)
    found = [advice.model_copy(update={"worth": tuple(known.get(advice.check, ()))}) for advice in found]
    if as_json:
        print_document(
            {
                "schema": SCHEMA,
                "answer": answer(found),
                "host": host,
                "server": server,
                "advice": found,
                "counts": {outcome: sum(one.outcome == outcome for one in found) for outcome in _ORDER},
                "warnings": [] if server is not None else ["no server was looked at: give --dsn"],
            }
        )
    else:
        _show(found, runs, asked=server is not None)
    return 0


def answer(found: Sequence[Advice]) -> str:
    """One sentence: how many checks there are, and what came of them."""
    counts = {outcome: sum(one.outcome == outcome for one in found) for outcome in _ORDER}
    return (
        f"{len(found)} checks of good practice: {counts['change']} to change, {counts['consider']} to consider, "
        f"{counts['unknown']} not visible, {counts['ok']} fine. Nothing was changed."
    )


def _server(node: Node, dsn: str) -> ServerPractice:
    import psycopg

    from pgherd.model.errors import UsageError
    from pgherd.postgres import external, practice

    plain = external.normalize_dsn(dsn, "--dsn")
    external.look(plain, option="--dsn")  # says in its own words why it cannot be reached
    with tempfile.TemporaryDirectory(prefix="pgherd-advise-") as directory:
        try:
            return practice.look(node, plain, str(Path(directory, secrets.token_hex(4))))
        except psycopg.Error as error:
            raise UsageError(f"--dsn {plain}: {str(error).strip()}") from None


def _show(found: Sequence[Advice], runs: Path, *, asked: bool) -> None:
    from rich.text import Text

    console = answer_console()
    console.print(answer(found), markup=False)
    for outcome in _ORDER[:3]:
        for one in (advice for advice in found if advice.outcome == outcome):
            console.print()
            console.print(Text.assemble((f"{outcome:<9}", _STYLES[outcome]), (one.check, "bold"), f"  {one.found}"))
            for head, text in (("wanted", one.wanted), ("why", f"{one.why} ({one.source})"), ("do", one.command)):
                if text:
                    console.print(Text(f"         {head}: {text}"), soft_wrap=True)
            if outcome != "unknown":
                said = [f"{worth.text} (run {worth.run})" for worth in one.worth] or [f"not measured on this host (no such run in {runs})"]
                for text in said:
                    console.print(Text(f"         worth: {text}"), soft_wrap=True)
    fine = [f"{one.check} ({one.found})" for one in found if one.outcome == "ok"]
    if fine:
        console.print()
        console.print(Text.assemble(("ok       ", _STYLES["ok"]), ", ".join(fine)))
    if not asked:
        console.print()
        console.print("--dsn DSN adds the checks of a server; it is only read.", markup=False)
