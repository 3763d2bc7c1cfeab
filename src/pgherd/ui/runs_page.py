"""Page with the list of runs: filter, groups and pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal, get_args
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from pgherd.model.errors import UsageError
from pgherd.ui.app_state import state_of
from pgherd.ui.shown_runs import Summary

PAGE = 100
LARGEST_PAGE = 1000
_MAX_TEXT = 200

Group = Literal["day", "study", "host", "grade"]
NO_GRADE = "none"
GRADES = ("A", "B", "C", NO_GRADE)
STATES = ("running", "finished", "interrupted", "failed", "killed", "unreadable")


def runs(request: Request) -> Response:
    """Show all runs, or those that match the filter of the query string."""
    state = state_of(request)
    filters = parse_filter(request.query_params)
    summaries = state.index.runs()
    part = request.headers.get("hx-target") == "runs"
    return state.page(
        "runs_part.html.j2" if part else "runs.html.j2",
        filters=filters,
        shown=select(summaries, filters),
        choices=choices(summaries),
        grades=GRADES,
        states=STATES,
    )


@dataclass(frozen=True)
class RunFilter:
    """Filter, grouping and page of the list. Empty text matches all. ``since`` and ``until`` are days (UTC), both included."""

    study: str = ""
    host: str = ""
    grade: str = ""
    state: str = ""
    text: str = ""
    since: date | None = None
    until: date | None = None
    group: Group = "day"
    page: int = 1
    size: int = PAGE

    @property
    def narrowed(self) -> bool:
        """True if the filter may exclude runs."""
        return any((self.study, self.host, self.grade, self.state, self.text, self.since, self.until))

    def query(self, **changes: object) -> str:
        """Return the query string of this filter with changes, without default values."""
        values = {**self.__dict__, **changes}
        defaults = RunFilter().__dict__
        return urlencode({name: value for name, value in values.items() if value not in (None, "") and value != defaults.get(name)})


@dataclass(frozen=True)
class RunPage:
    """One page of the list: headings with their runs, the number of matching runs and of all, and the number of pages."""

    groups: tuple[tuple[str, tuple[Summary, ...]], ...]
    matching: int
    total: int
    page: int
    pages: int


def parse_filter(query: Mapping[str, str]) -> RunFilter:
    """Read a filter from a query string.

    Raises:
        UsageError: a value is invalid.
    """

    def text(name: str, allowed: Sequence[str] = ()) -> str:
        value = query.get(name, "").strip()
        if len(value) > _MAX_TEXT:
            raise UsageError(f"{name} has {len(value)} characters; the maximum is {_MAX_TEXT}")
        if allowed and value and value not in allowed:
            raise UsageError(f"{name} is one of {', '.join(allowed)}, not '{value}'")
        return value

    groups: tuple[Group, ...] = get_args(Group)
    requested = text("group", groups) or "day"
    return RunFilter(
        study=text("study"),
        host=text("host"),
        grade=text("grade", GRADES),
        state=text("state", STATES),
        text=text("text"),
        since=_day("since", text("since")),
        until=_day("until", text("until")),
        group=next(group for group in groups if group == requested),
        page=parse_integer("page", text("page"), 1, 1, 10**6),
        size=parse_integer("size", text("size"), PAGE, 1, LARGEST_PAGE),
    )


def parse_integer(name: str, text: str, default: int, minimum: int, maximum: int) -> int:
    """Read an integer of a query string.

    Raises:
        UsageError: the text is no integer, or is out of bounds.
    """
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 12 or not minimum <= int(text) <= maximum:
        raise UsageError(f"{name} is a whole number from {minimum} to {maximum}, not '{text[:40]}'")
    return int(text)


def _day(name: str, text: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{name} is a day such as 2026-01-31, not '{text[:40]}'") from None


def select(summaries: Sequence[Summary], filters: RunFilter) -> RunPage:
    """Return the requested page of the matching runs, or the last page if there are fewer."""
    matching = [run for run in summaries if _matches(run, filters)]
    if filters.group != "day":
        matching.sort(key=lambda run: _heading(run, filters.group) or "~")  # stable: newest first within a heading
    pages = max(1, -(-len(matching) // filters.size))
    page = min(filters.page, pages)
    groups: dict[str, list[Summary]] = {}
    for run in matching[(page - 1) * filters.size : page * filters.size]:
        groups.setdefault(_heading(run, filters.group), []).append(run)
    return RunPage(tuple((heading, tuple(group)) for heading, group in groups.items()), len(matching), len(summaries), page, pages)


def choices(summaries: Sequence[Summary]) -> dict[str, list[str]]:
    """Return the studies and hosts that a filter can select."""
    return {"study": sorted({run.study for run in summaries}), "host": sorted({host for run in summaries for host in run.hosts})}


def _matches(run: Summary, filters: RunFilter) -> bool:
    if filters.since and run.started < _start_of(filters.since):
        return False
    if filters.until and run.started >= _start_of(filters.until) + timedelta(days=1).total_seconds():
        return False
    if filters.text and filters.text.casefold() not in f"{run.run} {run.answer} {run.host}".casefold():
        return False
    if filters.host and filters.host not in run.hosts:
        return False
    pairs = ((filters.study, run.study), (filters.grade, run.grade or NO_GRADE), (filters.state, run.state))
    return all(requested in ("", value) for requested, value in pairs)


def _start_of(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()


def _heading(run: Summary, group: Group) -> str:
    if group == "study":
        return run.study
    if group == "host":
        return run.hosts_shown or "no host recorded"
    if group == "grade":
        return f"grade {run.grade}" if run.grade else "no grade"
    try:
        return datetime.fromtimestamp(run.started, UTC).strftime("%A, %d %B %Y")
    except (ValueError, OverflowError, OSError):
        return "no date"
