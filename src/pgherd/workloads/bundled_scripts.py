"""Bundled pgbench scripts: a source ``WORKLOAD:NAME`` is a transaction of one of pgherd's workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.model.trial import State
from pgherd.workloads import random_block
from pgherd.workloads.orders import workload as orders
from pgherd.workloads.orders.loading import shipped as sql_file
from pgherd.workloads.orders.workload import NOTICE, ORDERS

NOTICES: Mapping[str, str] = {ORDERS.name: NOTICE}
"""Mandatory notice in reports, by workload."""


@dataclass(frozen=True)
class ScriptMix:
    """Scripts of a bundled workload, with their defaults.

    ``variables`` are pgbench's (-D). ``state`` and ``scale`` are the default start state of the servers and the default
    scale. ``notice`` is mandatory in every report.
    """

    scripts: tuple[Script, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    read_only: bool = False
    scale: int = 1
    state: State = "warm"
    notice: str = ""


def mix(workload: str, *, think: float | None = None, zipf: float | None = None, updates: int | None = None) -> ScriptMix | None:
    """Return the scripts of a bundled workload, or None for other workloads.

    Args:
        workload: Name of the workload.
        think: orders: keying and think times, as a multiple of the specification's. None: no client waits.
        zipf: random-block: parameter of a Zipfian choice of rows. None: uniform.
        updates: random-block: percentage of transactions that update.

    Raises:
        UsageError: The workload does not have an option, or the value is out of range.
    """
    if think is not None and workload != "orders":
        raise UsageError(f"--think-time is for --workload orders only; the workload is {workload}")
    if (zipf is not None or updates is not None) and workload != "random-block":
        option = "--update-percent" if zipf is None else "--zipf"
        raise UsageError(f"{option} is for --workload random-block only; the workload is {workload}")
    if workload == "orders":
        if think is not None and think < 0:
            raise UsageError(f"--think-time {think:g}: give a multiple of the specification's times, such as 1, or 0 for none")
        variables = {"base": "0"} | ({"think": f"{think:g}"} if think else {})
        return ScriptMix(orders.script_mix(think=bool(think)), variables, False, ORDERS.default_scale, "fresh", NOTICE)
    if workload == "random-block":
        share = random_block.UPDATES if updates is None else updates
        scripts, values = random_block.mix(share, zipf)
        return ScriptMix(scripts, values, share == 0, random_block.RANDOM_BLOCK.default_scale)
    return None


def load_sql(workload: str) -> str | None:
    """Return the SQL for psql, with the variable ``scale``, that fills a database of a bundled workload, or None.

    The loader of orders is faster. It generates the same rows except for the letters in strings.
    """
    if workload == ORDERS.name:
        return "\n".join(sql_file(name) for name in ("schema.sql", "functions.sql", "fill.sql", "keys.sql"))
    return random_block.load_sql() if workload == random_block.RANDOM_BLOCK.name else None


def text(source: str) -> str | None:
    """Return the text of a script ``WORKLOAD:NAME``, or None for a file or a built-in script of pgbench."""
    for prefix, text_of in ((orders.PREFIX, orders.script_text), (random_block.PREFIX, random_block.text)):
        if source.startswith(prefix):
            return text_of(source.removeprefix(prefix))
    return None
