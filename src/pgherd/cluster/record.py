"""What is written down of the clusters that were started here: STATE/cluster/NAME/, private to the user.

``cluster.json`` is the record; beside it lie the authority's certificate and key, and the driver's own certificate.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from pydantic import Field, ValidationError

from pgherd.host import paths
from pgherd.model.base import Model
from pgherd.model.errors import UsageError

_FILE = "cluster.json"
SCHEMA = "pgherd/cluster/1"


class AgentRecord(Model):
    """One host: its name (as SSH knows it), and its agent there: pid, start time in clock ticks since boot, directory, Python, and the
    labels that it was given."""

    name: str
    pid: int
    start: int
    directory: str
    python: str
    labels: dict[str, str] = Field(default_factory=dict)


class ClusterRecord(Model):
    """One cluster: its scheduler (address, pid and start time here), its agents, how SSH reaches them, and whether they were to have
    private environments (``private``)."""

    name: str
    id: str
    address: str
    pid: int
    start: int
    hosts: tuple[AgentRecord, ...] = ()
    ssh_config: str | None = None
    private: bool = False
    state: str = SCHEMA


def directory(name: str) -> Path:
    """Where one cluster's files lie; not made yet."""
    return paths.state_dir() / "cluster" / name


def names() -> list[str]:
    """All that are written down."""
    top = paths.state_dir() / "cluster"
    return sorted(path.parent.name for path in top.glob(f"*/{_FILE}")) if top.is_dir() else []


def load(name: str) -> ClusterRecord | None:
    """The record of one cluster, None when there is none; raises UsageError when it cannot be read."""
    if not re.fullmatch(r"[a-z0-9-]+", name):
        return None
    path = directory(name) / _FILE
    try:
        return ClusterRecord.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise UsageError(f"{path} cannot be read ({error}); remove its directory if no such cluster runs") from error


def save(known: ClusterRecord) -> None:
    """Write the record, whole or not at all."""
    path = directory(known.name) / _FILE
    fresh = path.with_suffix(".tmp")
    fresh.write_text(known.model_dump_json(indent=2), encoding="utf-8")
    os.replace(fresh, path)


def make_directory(name: str) -> Path:
    """Make the directory of a cluster, for its owner alone."""
    path = directory(name)
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def drop(name: str) -> None:
    """Forget a cluster, with its certificates."""
    import shutil

    shutil.rmtree(directory(name), ignore_errors=True)
