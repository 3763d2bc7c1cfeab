"""What all kinds of undo share: where one is played, the marks of what is ours, and what a path in the journal must be like."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from pgherd.node.protocol import Node

MARKER = ".pgherd"
"""Name of the file that says which journal made a directory."""
PREFIX = "pgherd-"
"""Every control group that pgherd makes has a name that begins so, and every directory on a volume of the user's."""


@dataclass(frozen=True)
class Scene:
    """Where an undo is played: the node, the journal's identifier, and whether the machine has not booted since."""

    node: Node
    journal: str
    same_boot: bool = True


def absolute(path: str) -> str:
    """The path itself; raises ValueError where it is not a plain absolute one."""
    if not path.startswith("/") or posixpath.normpath(path) != path or path == "/":
        raise ValueError(f"'{path}' is not a plain absolute path")
    return path
