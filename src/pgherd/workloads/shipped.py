"""Transactions that pgherd itself brings along for pgbench: a script's source ``WORKLOAD:NAME`` names one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.model.trial import State
from pgherd.workloads import random_block
from pgherd.workloads.orders import transactions
from pgherd.workloads.orders.loading import shipped
from pgherd.workloads.orders.workload import NOTICE, ORDERS

NOTICES: Mapping[str, str] = {ORDERS.name: NOTICE}
"""Workload → what every report on it must say."""


@dataclass(frozen=True)
class Mix:
    """What loads a database of one of pgherd's own workloads.

    ``variables`` are pgbench's (-D); ``state`` is that of the servers at the start of each trial if the user does not
    say; ``scale`` the workload's own if the user gives none; ``notice`` is what every report on it must say.
    """

    scripts: tuple[Script, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False
    scale: int = 1
    state: State = "warm"
    notice: str = ""


def mix(workload: str, *, think: float | None = None, zipf: float | None = None, updates: int | None = None) -> Mix | None:
    """The mix of one of pgherd's own workloads; None for any other.

    Args:
        workload: its name.
        think: orders: keying and think times as a multiple of the specification's; none: no client waits.
        zipf: random-block: the parameter of a Zipfian choice of rows; none: all alike.
        updates: random-block: per cent of the transactions that update.

    Raises:
        UsageError: an option that the workload does not have, or a value that it does not take.
    """
    if think is not None and workload != "orders":
        raise UsageError(f"--think is for --workload orders only; the workload is {workload}")
    if (zipf is not None or updates is not None) and workload != "random-block":
        option = "--updates" if zipf is None else "--zipf"
        raise UsageError(f"{option} is for --workload random-block only; the workload is {workload}")
    if workload == "orders":
        if think is not None and think < 0:
            raise UsageError(f"--think {think:g}: give a multiple of the specification's times, such as 1, or 0 for none")
        variables = {"base": "0"} | ({"think": f"{think:g}"} if think else {})
        return Mix(transactions.mix(think=bool(think)), variables, False, ORDERS.default_scale, "fresh", NOTICE)
    if workload == "random-block":
        share = random_block.UPDATES if updates is None else updates
        scripts, values = random_block.mix(share, zipf)
        return Mix(scripts, values, share == 0, random_block.RANDOM_BLOCK.default_scale)
    return None


def load_sql(workload: str) -> str | None:
    """SQL for psql, with the variable ``scale``, that fills a database of one of pgherd's own workloads; None for any other.

    The loader of orders is faster, and makes the same but for the letters.
    """
    if workload == ORDERS.name:
        return "\n".join(shipped(name) for name in ("schema.sql", "functions.sql", "fill.sql", "keys.sql"))
    return random_block.load_sql() if workload == random_block.RANDOM_BLOCK.name else None


def text(source: str) -> str | None:
    """The text of a script ``WORKLOAD:NAME``; None where the source is a file or a builtin of pgbench."""
    for prefix, of in ((transactions.PREFIX, transactions.text), (random_block.PREFIX, random_block.text)):
        if source.startswith(prefix):
            return of(source.removeprefix(prefix))
    return None
