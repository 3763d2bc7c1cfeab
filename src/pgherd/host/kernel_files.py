"""Text files of the kernel (/proc, /sys) and their common notations."""

from __future__ import annotations

import re

from pgherd.node.protocol import Node


def text_of(node: Node, path: str) -> str:
    """Return a file's text without surrounding blanks.

    The result is '' if it is missing or unreadable.
    """
    try:
        return node.read(path).decode(errors="replace").strip()
    except OSError:
        return ""


def names_in(node: Node, directory: str) -> list[str]:
    """Return the sorted names in a directory; empty if it is missing or unreadable."""
    try:
        return node.listdir(directory)
    except OSError:
        return []


def active_word(text: str) -> str:
    """Return the word in brackets: ``always [madvise] never`` → ``madvise``.

    A text without brackets is returned as a whole.
    """
    match = re.search(r"\[(.+?)\]", text)
    return match[1] if match else text.strip()


def unescape(path: str) -> str:
    r"""Decode octal escapes such as ``\040`` in mountinfo and /proc/swaps."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
