"""Software of each host, compared: required equalities, and differences that are listed.

pgherd and Dask must be equal everywhere, because objects travel between them. PostgreSQL must be equal where it is
measured. Python's patch level, the kernel and the machine may differ; the plan and the report list such differences.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pgherd import __version__

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
        **software(),
        "source": digest(),
        "PostgreSQL": ", ".join(f"{installation.version} ({installation.kind})" for installation in installations.find_all(node)) or "none",
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "CPU": host_facts.cpu_model or "unknown",
        "cores": f"{host_facts.cores:g}",
    }


def software() -> dict[str, str]:
    """Return what must be equal on driver and hosts: pgherd, Python's minor version and Dask."""
    import importlib.metadata

    dask = importlib.metadata.version("distributed")
    return {"pgherd": __version__, "Python": ".".join(platform.python_version_tuple()[:2]), "Dask": dask}


def digest() -> str:
    """Return a short digest of all files of pgherd that a host receives."""
    import hashlib

    from pgherd.cluster import bundle

    total = hashlib.sha256()
    for name, data in bundle.contents().items():
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
