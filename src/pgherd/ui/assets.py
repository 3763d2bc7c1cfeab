"""Static files: style sheet, scripts, charts library. All are local, and addressed by a digest of what is in them.

The address of a file changes with its content, so that a browser may keep it for good. The charts library (Vega) comes out of the
vl-convert package, which the report's figures are drawn with anyway; it takes a second to put together and is kept in the cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources

from pgherd.host import paths

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_OWN = ("ui.js", "explore.js", "htmx.min.js", "icon.svg")
VEGA = "vega.js"
_BUNDLING = threading.Lock()

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@dataclass(frozen=True)
class Asset:
    """A file as it is sent."""

    data: bytes
    media_type: str


def names() -> tuple[str, ...]:
    """All static files."""
    return ("style.css", *_OWN, VEGA)


def asset(name: str) -> Asset | None:
    """The file of that name; None where there is none."""
    if name == VEGA:
        return Asset(vega(), _TYPES["js"])
    if name not in names():
        return None
    return Asset(_read(name), _TYPES[name.rpartition(".")[2]])


@cache
def address(name: str) -> str:
    """Where a page finds it: ``/static/DIGEST/NAME``."""
    digest = hashlib.sha256(_bundle_version().encode() if name == VEGA else _read(name)).hexdigest()[:12]
    return f"/static/{digest}/{name}"


@cache
def _read(name: str) -> bytes:
    own = resources.files("pgherd.ui") / "static"
    if name == "style.css":
        report = resources.files("pgherd.report") / "templates" / "style.css"
        return report.read_bytes() + b"\n" + (own / name).read_bytes()
    return (own / name).read_bytes()


def vega() -> bytes:
    """The charts library as one script. Raises nothing: what cannot be kept is put together again at the next start."""
    with _BUNDLING:
        return _vega()


@cache
def _vega() -> bytes:
    kept = paths.cache_dir() / "ui" / f"vega-{hashlib.sha256(_bundle_version().encode()).hexdigest()[:16]}.js"
    with contextlib.suppress(OSError):
        if kept.stat().st_uid == os.geteuid():
            return kept.read_bytes()
    import vl_convert

    made: bytes = vl_convert.javascript_bundle(_SNIPPET).encode()
    with contextlib.suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
        temporary = kept.with_name(f"{kept.name}.{os.getpid()}.tmp")
        number = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        with open(number, "wb") as file:
            file.write(made)
        temporary.replace(kept)
    return made


def _bundle_version() -> str:
    return f"{metadata.version('vl-convert-python')} {_SNIPPET}"
