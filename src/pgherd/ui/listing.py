"""Which runs a reader wants to see, in which order, and how they are put under headings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal, get_args
from urllib.parse import urlencode

from pgherd.model.errors import UsageError
from pgherd.ui.run_index import Summary

PAGE = 100
LARGEST_PAGE = 1000
_LONGEST = 200

Group = Literal["day", "study", "host", "grade"]
NO_GRADE = "none"
GRADES = ("A", "B", "C", NO_GRADE)
STATES = ("running", "finished", "interrupted", "failed", "killed", "unreadable")


@dataclass(frozen=True)
class RunFilter:
    """What is asked for. Empty text: no matter which. ``since`` and ``until`` are days (UTC), both included."""

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
        """Whether it leaves any run out."""
        return any((self.study, self.host, self.grade, self.state, self.text, self.since, self.until))

    def query(self, **changes: object) -> str:
        """The query string for the same with changes; what is as it is by itself is left out."""
        values = {**self.__dict__, **changes}
        plain = RunFilter().__dict__
        return urlencode({name: value for name, value in values.items() if value not in (None, "") and value != plain.get(name)})


@dataclass(frozen=True)
class RunPage:
    """One page of the list: headings with their runs, how many fit in all, and how many pages there are."""

    groups: tuple[tuple[str, tuple[Summary, ...]], ...]
    found: int
    of: int
    page: int
    pages: int


def wanted(query: Mapping[str, str]) -> RunFilter:
    """What a query string asks for.

    Raises:
        UsageError: a value is none of those that there are.
    """

    def word(name: str, known: Sequence[str] = ()) -> str:
        value = query.get(name, "").strip()
        if len(value) > _LONGEST:
            raise UsageError(f"{name} has {len(value)} characters; at most {_LONGEST} are looked for")
        if known and value and value not in known:
            raise UsageError(f"{name} is one of {', '.join(known)}, not '{value}'")
        return value

    groups: tuple[Group, ...] = get_args(Group)
    by = word("group", groups) or "day"
    return RunFilter(
        study=word("study"),
        host=word("host"),
        grade=word("grade", GRADES),
        state=word("state", STATES),
        text=word("text"),
        since=_day("since", word("since")),
        until=_day("until", word("until")),
        group=next(one for one in groups if one == by),
        page=whole("page", word("page"), 1, 1, 10**6),
        size=whole("size", word("size"), PAGE, 1, LARGEST_PAGE),
    )


def whole(name: str, text: str, default: int, least: int, most: int) -> int:
    """A whole number of a query string.

    Raises:
        UsageError: it is none, or lies outside its bounds.
    """
    if not text:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 12 or not least <= int(text) <= most:
        raise UsageError(f"{name} is a whole number from {least} to {most}, not '{text[:40]}'")
    return int(text)


def _day(name: str, text: str) -> date | None:
    if not text:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{name} is a day such as 2026-01-31, not '{text[:40]}'") from None


def listed(runs: Sequence[Summary], asked: RunFilter) -> RunPage:
    """The page that is asked for; a page beyond the last is the last."""
    found = [run for run in runs if _fits(run, asked)]
    if asked.group != "day":
        found.sort(key=lambda run: _heading(run, asked.group) or "~")  # stable: newest first within a heading
    pages = max(1, -(-len(found) // asked.size))
    page = min(asked.page, pages)
    shown = found[(page - 1) * asked.size : page * asked.size]
    groups: dict[str, list[Summary]] = {}
    for run in shown:
        groups.setdefault(_heading(run, asked.group), []).append(run)
    return RunPage(tuple((heading, tuple(inside)) for heading, inside in groups.items()), len(found), len(runs), page, pages)


def choices(runs: Sequence[Summary]) -> dict[str, list[str]]:
    """What can be asked for: the studies and hosts that there are."""
    return {"study": sorted({run.study for run in runs}), "host": sorted({host for run in runs for host in run.hosts})}


def _fits(run: Summary, asked: RunFilter) -> bool:
    if asked.since and run.started < _begin(asked.since):
        return False
    if asked.until and run.started >= _begin(asked.until) + timedelta(days=1).total_seconds():
        return False
    if asked.text and asked.text.casefold() not in f"{run.run} {run.answer} {run.host}".casefold():
        return False
    if asked.host and asked.host not in run.hosts:
        return False
    pairs = ((asked.study, run.study), (asked.grade, run.grade or NO_GRADE), (asked.state, run.state))
    return all(want in ("", have) for want, have in pairs)


def _begin(day: date) -> float:
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
