"""Records of the clusters that were started here: STATE/cluster/NAME/, private to the user.

``cluster.json`` is the record. The directory also holds the authority's certificate and key, and the driver's
certificate.
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
    """Host of a cluster: its name for SSH, and its agent: pid, start time in clock ticks since boot, directory, Python
    and labels.
    """

    name: str
    pid: int
    start: int
    directory: str
    python: str
    labels: dict[str, str] = Field(default_factory=dict)


class ClusterRecord(Model):
    """Cluster: its scheduler (address, pid, start time and boot of this machine), its agents, and the configuration of SSH.

    ``private`` records that hosts should have private environments.
    """

    name: str
    id: str
    address: str
    pid: int
    start: int
    boot: str = ""
    hosts: tuple[AgentRecord, ...] = ()
    ssh_config: str | None = None
    private: bool = False
    state: str = SCHEMA


def directory(name: str) -> Path:
    """Return the directory of a cluster's files, which may not exist."""
    return paths.state_dir() / "cluster" / name


def names() -> list[str]:
    """Return the names of all recorded clusters."""
    top = paths.state_dir() / "cluster"
    return sorted(path.parent.name for path in top.glob(f"*/{_FILE}")) if top.is_dir() else []


def load(name: str) -> ClusterRecord | None:
    """Return the record of a cluster, or None. Raises UsageError if it cannot be read."""
    if not re.fullmatch(r"[a-z0-9-]+", name):
        return None
    path = directory(name) / _FILE
    try:
        return ClusterRecord.model_validate_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise UsageError(f"{path} cannot be read ({error}); remove its directory if no such cluster runs") from error


def save(cluster: ClusterRecord) -> None:
    """Write the record atomically."""
    path = directory(cluster.name) / _FILE
    fresh = path.with_suffix(".tmp")
    fresh.write_text(cluster.model_dump_json(indent=2), encoding="utf-8")
    os.replace(fresh, path)


def make_directory(name: str) -> Path:
    """Create the directory of a cluster, private to its owner."""
    path = directory(name)
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def drop(name: str) -> None:
    """Delete the record of a cluster, with its certificates."""
    import shutil

    shutil.rmtree(directory(name), ignore_errors=True)
