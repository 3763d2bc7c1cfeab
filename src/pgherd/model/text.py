"""Foreign texts: names and messages from run directories, servers, hosts and users. No imports, so that each message can use it."""

from __future__ import annotations

HIDDEN = "***"
"""Replacement of passwords and other secrets in records."""


def clean(text: object) -> str:
    """Return the text without control characters, so that a hostile name cannot control a terminal or break XML.

    Line breaks stay. A tab becomes a space.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else " " if c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text)
