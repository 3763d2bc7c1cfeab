"""What each host runs on, compared: what must be equal for numbers to be comparable, and what a reader must at least know of.

pgherd and Dask must be equal everywhere, since objects travel between them. PostgreSQL must be equal where it is measured. Python's
patch level, the kernel and the machine may differ: then that is listed, in the plan and in the report.
"""

from __future__ import annotations

import importlib.util
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pgherd import __version__
from pgherd.model.errors import CapabilityError

REFUSED = ("pgherd", "Python", "Dask")
"""Differences in these end a run before it begins."""

LISTED = ("source", "PostgreSQL", "kernel", "architecture", "CPU", "cores")
"""Differences in these are told. ``source`` is a digest of pgherd's own files: a checkout may differ under the same version."""


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same on all hosts: value → the hosts that have it. ``refused``: it ends a run."""

    what: str
    values: dict[str, tuple[str, ...]]
    refused: bool

    def __str__(self) -> str:
        """``kernel: 6.1.0 on a, b; 6.5.0 on c``."""
        return f"{self.what}: {self.said}"

    @property
    def said(self) -> str:
        """``6.1.0 on a, b; 6.5.0 on c``."""
        return "; ".join(f"{value} on {', '.join(hosts)}" for value, hosts in self.values.items())


def here() -> dict[str, Any]:
    """What this machine runs on, by the names in REFUSED and LISTED. PostgreSQL is every version found, the one used by default first."""
    from pgherd.host import facts
    from pgherd.node.local import LocalNode
    from pgherd.postgres import installations

    node = LocalNode()
    known = facts.gather(node)
    return {
        **software(),
        "source": digest(),
        "PostgreSQL": ", ".join(f"{found.version} ({found.kind})" for found in installations.find_all(node)) or "none",
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "CPU": known.cpu_model or "unknown",
        "cores": f"{known.cores:g}",
    }


def software() -> dict[str, str]:
    """The part that must be equal on driver and hosts: pgherd, Python's minor version and Dask."""
    import importlib.metadata

    try:
        dask = importlib.metadata.version("distributed")
    except importlib.metadata.PackageNotFoundError:
        dask = "none"
    return {"pgherd": __version__, "Python": ".".join(platform.python_version_tuple()[:2]), "Dask": dask}


def digest() -> str:
    """A short digest of all of pgherd that a host is sent, as it lies on this machine."""
    import hashlib

    from pgherd.cluster import packing

    total = hashlib.sha256()
    for name, data in packing.contents().items():
        total.update(f"{name}\0{len(data)}\0".encode() + data)
    return total.hexdigest()[:12]


def compare(found: Mapping[str, Mapping[str, Any]], names: Iterable[str] = (*REFUSED, *LISTED)) -> list[Difference]:
    """The differences between hosts (host → its versions); what a host does not say counts as 'unknown'."""
    differences = []
    for name in names:
        values: dict[str, list[str]] = {}
        for host, versions in found.items():
            values.setdefault(str(versions.get(name, "unknown")), []).append(host)
        if len(values) > 1:
            differences.append(Difference(name, {value: tuple(hosts) for value, hosts in values.items()}, name in REFUSED))
    return differences


LIBRARIES = ("distributed", "cryptography")


def require_extra(purpose: str = "a cluster") -> None:
    """Insist on the extra's libraries; raises CapabilityError that says how to install them."""
    missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise CapabilityError(f"{purpose} needs {' and '.join(missing)}, which is not installed here: pip install 'pgherd[cluster]'")
