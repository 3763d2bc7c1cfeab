"""Pages of the plans that ``pgherd place --output`` wrote to the directory of the runs: the list, and a plan with the effect of moves.

A move is part of the address and changes no file.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from pgherd.analysis.database_moves import broken_constraints, effect, placed_hosts
from pgherd.analysis.demand import Array
from pgherd.analysis.host_prediction import host_rows, latency_classes
from pgherd.analysis.packing import Hosts
from pgherd.model.errors import PgherdError, UsageError
from pgherd.model.text import clean
from pgherd.report import plan_page
from pgherd.report.html_model import Table
from pgherd.report.stored_plan import StoredPlan, read_plan
from pgherd.ui.app_state import state_of
from pgherd.ui.compare_page import picture
from pgherd.ui.run_page import SANDBOX, inside

MAX_MOVES = 20
_MAX_PLANS = 500
_MAX_LISTED = 1000
"""Most names that a field offers. Others can be typed."""
_NAME = re.compile(r"[\w.+-][\w.+ -]{0,99}")
_INPUT = ("input.json", "plan.json", "demand.npy")
_FILES = {
    "plan.html": "text/html",
    "plan.json": "application/json",
    "placement.csv": "text/csv",
    "hosts.csv": "text/csv",
    "hosts.yaml": "text/plain",
}


def plans(request: Request) -> Response:
    """List the plans in the directory of the runs, newest first."""
    state = state_of(request)
    return state.page("placement_plans.html.j2", plans=_names(state.root))


def plan(request: Request) -> Response:
    """Show a plan, and the effect of the moves in the query string."""
    directory = _directory(request)
    shown, moves = _shown(directory, _stamp(directory)), _moves(request.query_params)
    fleet = shown.stored.fleet
    found = effect(fleet, shown.hosts, moves) if moves else None
    drawn = [] if found is None else [_drawn(use, found.hosts, fleet.demand.slots, f"{when} the moves")
                                      for when, use in (("before", found.before), ("after", found.after))]  # fmt: skip
    return state_of(request).page(
        "placement.html.j2",
        plan=directory.name,
        answer=shown.stored.answer,
        warnings=shown.stored.warnings,
        broken=shown.broken if found is None else list(map(clean, found.broken)),
        databases=fleet.demand.names[:_MAX_LISTED],
        hosts=list(fleet.hosts)[:_MAX_LISTED],
        slots=len(fleet.demand.slots),
        counts=(len(fleet.demand.names), len(fleet.hosts)),
        moves=[] if found is None else found.moves,
        most_moves=MAX_MOVES,
        changed=None if found is None else plan_page.table("hosts", found.rows),
        drawn=drawn,
        table=shown.table,
        figure=shown.figure,
        files=[name for name in _FILES if inside(directory / name, directory)],
    )


def file(request: Request) -> Response:
    """Return a file of a plan. Raises HTTPException (404) for other files."""
    directory, name = _directory(request), request.path_params["name"]
    if name not in _FILES or not inside(directory / name, directory):
        raise HTTPException(404, "The plan has no such file.")
    return FileResponse(directory / name, media_type=_FILES[name], headers={"Content-Security-Policy": SANDBOX})


def _names(root: Path) -> list[str]:
    found = []
    with contextlib.suppress(OSError), os.scandir(root) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if _NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                    found.append((os.stat(f"{entry.path}/input.json", follow_symlinks=False).st_mtime, entry.name))
    return [name for _, name in sorted(found, reverse=True)][:_MAX_PLANS]


def _directory(request: Request) -> Path:
    """Return the directory of the plan that the address names. Raises HTTPException (404) if there is none."""
    root, name = state_of(request).root, request.path_params["plan"]
    if name not in _names(root):
        raise HTTPException(404, "There is no plan of that name here.")
    return Path(root / name)


def _stamp(directory: Path) -> tuple[int, ...]:
    """Return numbers that change if a file of the plan changes."""
    stamp: list[int] = []
    for name in _INPUT:
        with contextlib.suppress(OSError):
            status = os.stat(directory / name, follow_symlinks=False)
            stamp += [status.st_mtime_ns, status.st_size]
    return tuple(stamp)


def _moves(query: QueryParams) -> list[tuple[str, str]]:
    """Return the moves, each a database and a host. Raises UsageError for another form."""
    databases, hosts = query.getlist("database"), query.getlist("host")
    if len(databases) != len(hosts) or len(databases) > MAX_MOVES:
        raise UsageError(f"an address has up to {MAX_MOVES} moves, each a database and a host; start again from the plan")
    return list(zip(databases, hosts, strict=True))


@dataclass(frozen=True, eq=False)
class _ShownPlan:
    """A plan with its contents of a page. Requests share it, so ``hosts`` is never changed."""

    stored: StoredPlan
    hosts: Hosts
    broken: list[str]
    table: Table
    figure: tuple[str, str]


@lru_cache(maxsize=2)
def _shown(directory: Path, stamp: tuple[int, ...]) -> _ShownPlan:
    """Read a plan. ``stamp`` is part of the key of the cache."""
    stored = read_plan(directory)
    fleet = stored.fleet
    try:
        hosts = placed_hosts(fleet)
    except UsageError as error:
        raise PgherdError(f"the plan cannot be read: {error}") from None
    options, latency = fleet.options, latency_classes(fleet.demand, fleet.classes, hosts)
    rows = host_rows(fleet.demand, fleet.classes, hosts, latency, headroom=options.headroom, growth=options.growth)
    use = hosts.used.reshape(len(fleet.hosts), -1, len(fleet.demand.slots)).max(axis=1)
    broken = list(map(clean, broken_constraints(fleet, hosts)))
    table = plan_page.table("hosts", rows[: plan_page.MAX_TABLE])
    return _ShownPlan(stored, hosts, broken, table, _drawn(use, list(fleet.hosts), fleet.demand.slots, "as planned"))


def _drawn(use: Array, hosts: list[str], slots: tuple[str, ...], name: str) -> tuple[str, str]:
    """Return the title of a heat map, and its picture as an address."""
    from pgherd.report import drawing  # imports altair, which is slow

    figure = plan_page.heat_map(use, hosts, slots, name)
    return figure.title, picture(drawing.svg(figure, prefix="use"))
