"""Templates and static files of the pages.

The path of a static file contains a digest of its content, so a browser may cache it without limit. The charts library (Vega) is
bundled from the vl-convert package, which also renders the figures of the report. Bundling takes a second, so the result is cached.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib import metadata, resources
from typing import Any
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader, PrefixLoader, StrictUndefined

from pgherd import __version__
from pgherd.host import paths
from pgherd.model.text import clean
from pgherd.model.units import format_bytes, format_rate, format_seconds
from pgherd.report import formatting

VEGA = "vega.js"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FILES = ("style.css", "ui.js", "explore.js", "htmx.min.js", "icon.svg")
_BUNDLING = threading.Lock()
_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def environment() -> Environment:
    """Return the template environment. It escapes everything. ``report/NAME`` are templates of the report."""
    loader = ChoiceLoader([PackageLoader("pgherd.ui"), PrefixLoader({"report": PackageLoader("pgherd.report")})])
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    templates.filters |= {
        "quoted": lambda text: quote(str(text), safe=""),
        "clean": clean,
        "bytes": format_bytes,
        "rate": format_rate,
        "duration": format_seconds,
        "clock": clock,
        "day_and_clock": day_and_clock,
        "plural": plural,
    }
    templates.globals |= {"version": __version__, "asset": asset_path, "label": formatting.label, "point_text": formatting.point_text}
    return templates


def render(template: str, context: Mapping[str, Any]) -> str:
    """Render a page or a part of one."""
    return environment().get_template(template).render(context)


def clock(seconds: float | None) -> str:
    """Return ``14:03:27`` (UTC)."""
    return _instant(seconds, "%H:%M:%S")


def day_and_clock(seconds: float | None) -> str:
    """Return ``2026-01-31 14:03`` (UTC)."""
    return _instant(seconds, "%Y-%m-%d %H:%M")


def plural(count: int, noun: str) -> str:
    """Return ``1 trial``, ``3 trials``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _instant(seconds: float | None, pattern: str) -> str:
    try:
        return formatting.MISSING if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime(pattern)
    except (ValueError, OverflowError, OSError):
        return formatting.MISSING


@dataclass(frozen=True)
class Asset:
    """Content of a static file."""

    data: bytes
    media_type: str


def asset_names() -> tuple[str, ...]:
    """Return the names of all static files."""
    return (*_FILES, VEGA)


def asset(name: str) -> Asset | None:
    """Return a static file, or None if there is none of that name."""
    if name == VEGA:
        return Asset(vega(), _TYPES["js"])
    if name not in _FILES:
        return None
    return Asset(_read(name), _TYPES[name.rpartition(".")[2]])


@cache
def asset_path(name: str) -> str:
    """Return the path of a static file: ``/static/DIGEST/NAME``."""
    digest = hashlib.sha256(_bundle_version().encode() if name == VEGA else _read(name)).hexdigest()[:12]
    return f"/static/{digest}/{name}"


@cache
def _read(name: str) -> bytes:
    directory = resources.files("pgherd.ui") / "static"
    if name == "style.css":
        report = resources.files("pgherd.report") / "templates" / "style.css"
        return report.read_bytes() + b"\n" + (directory / name).read_bytes()
    return (directory / name).read_bytes()


def vega() -> bytes:
    """Return the charts library as one script. Without a writable cache it is bundled once per process."""
    with _BUNDLING:
        return _vega()


@cache
def _vega() -> bytes:
    cached = paths.cache_dir() / "ui" / f"vega-{hashlib.sha256(_bundle_version().encode()).hexdigest()[:16]}.js"
    with contextlib.suppress(OSError):
        if cached.stat().st_uid == os.geteuid():
            return cached.read_bytes()
    import vl_convert

    bundle: bytes = vl_convert.javascript_bundle(_SNIPPET).encode()
    with contextlib.suppress(OSError):
        paths.make_cache_dir()
        cached.parent.mkdir(exist_ok=True, mode=0o711)
        temporary = cached.with_name(f"{cached.name}.{os.getpid()}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with open(descriptor, "wb") as file:
            file.write(bundle)
        temporary.replace(cached)
    return bundle


def _bundle_version() -> str:
    return f"{metadata.version('vl-convert-python')} {_SNIPPET}"
