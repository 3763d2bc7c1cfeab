"""Pages from templates: ours and the report's macros, everything escaped."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined

from pgherd import __version__
from pgherd.model.units import format_bytes, format_seconds
from pgherd.report import formatting
from pgherd.report.formatting import clean
from pgherd.ui import assets


@cache
def environment() -> Environment:
    """The template environment. ``report/NAME`` are the report's own templates."""
    loader = ChoiceLoader([PackageLoader("pgherd.ui"), PrefixLoader({"report": PackageLoader("pgherd.report")})])
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {
        "quoted": lambda text: quote(str(text), safe=""),
        "clean": clean,
        "bytes": format_bytes,
        "duration": format_seconds,
        "clock": clock,
        "day_and_clock": day_and_clock,
        "plural": plural,
    }
    made.globals |= {"version": __version__, "asset": assets.address, "label": formatting.label, "point_text": formatting.point_text}
    return made


def render(template: str, context: Mapping[str, Any]) -> str:
    """One page or a part of one."""
    return environment().get_template(template).render(context)


def clock(seconds: float | None) -> str:
    """``14:03:27`` (UTC)."""
    return _instant(seconds, "%H:%M:%S")


def day_and_clock(seconds: float | None) -> str:
    """``2026-01-31 14:03`` (UTC)."""
    return _instant(seconds, "%Y-%m-%d %H:%M")


def plural(count: int, what: str) -> str:
    """``1 trial``, ``3 trials``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def _instant(seconds: float | None, form: str) -> str:
    try:
        return formatting.MISSING if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime(form)
    except (ValueError, OverflowError, OSError):
        return formatting.MISSING
