"""What this process may change on a host, and what would allow it."""

from __future__ import annotations

import re

from pgherd.host.kernel_files import text_of
from pgherd.node.protocol import Command, Node

_CONTAINER_FILES = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container")
_CONTAINER_VARIABLES = ("container=", "KUBERNETES_SERVICE_HOST=")
_ALL_IDS = "4294967295"


def effective_uid(node: Node) -> int:
    """Return the effective user id of this process; -1 if it is unknown."""
    effective = re.search(r"^Uid:\s+\d+\s+(\d+)\s", text_of(node, "/proc/self/status"), re.MULTILINE)
    return int(effective[1]) if effective else -1


def in_container(node: Node) -> bool:
    """Return True in a container of Docker, Podman, LXC, systemd-nspawn or Kubernetes."""
    variables = text_of(node, "/proc/1/environ").split("\0")
    return any(map(node.exists, _CONTAINER_FILES)) or any(variable.startswith(_CONTAINER_VARIABLES) for variable in variables)


def may_write(node: Node, path: str) -> bool:
    """Return whether this user may write a file of the kernel. Root may not on a read-only mount."""
    return node.run(Command(("test", "-w", path))).code == 0


def remedy_to_write(node: Node, path: str) -> str:
    """Return what allows this process to write a file of the kernel below /sys or /proc."""
    if effective_uid(node) != 0:
        return "run pgherd as root"
    if in_container(node):
        return f"start the container with {privileges()}, or write it on the container's host"
    if is_mapped(node):
        return "this root is one of a user namespace; run pgherd as root of the host"
    top = "/".join(path.split("/")[:2])
    return f"mount {top} writable as root (mount -o remount,rw,bind {top})"


def privileges() -> str:
    """Return the option of a container that allows what its root lacks."""
    return "docker or podman run --privileged (in Kubernetes privileged: true)"


def is_mapped(node: Node) -> bool:
    """Return whether the user ids of this process are those of a user namespace."""
    ids = text_of(node, "/proc/self/uid_map").split()
    return bool(ids) and ids[-1] != _ALL_IDS
