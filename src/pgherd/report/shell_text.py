"""Texts in shell scripts: comments that cannot end, and quoted words. All texts of a run in a script pass one of these functions.

The author of a run directory chooses these texts. None of them may become a command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping

from pgherd.model.errors import UsageError
from pgherd.model.text import clean


def comment(text: object) -> str:
    """Return the text as one comment line."""
    return "# " + " ".join(clean(text).split())


def quote(text: str, variables: Mapping[str, str] | None = None) -> str:
    """Return the text as one word of the shell.

    Args:
        text: any text.
        variables: placeholders in the text and the quoted variables that replace them. A placeholder has a NUL, so that no text of a run
            contains one by chance.

    Raises:
        UsageError: the text contains a NUL character.
    """
    variables = variables or {}
    pieces = re.split(f"({'|'.join(map(re.escape, variables))})", text) if variables else [text]
    words = [variables[piece] if piece in variables else shlex.quote(piece) for piece in pieces if piece]
    word = "".join(words) or "''"
    if "\0" in word:
        raise UsageError("a script cannot repeat this trial: one of its texts contains a NUL character")
    return word


def say(text: str) -> str:
    """Return the command that prints a line. ``echo`` would interpret backslashes."""
    return f"printf '%s\\n' {quote(clean(text))}"


def join(words: Iterable[str], variables: Mapping[str, str] | None = None) -> str:
    """Return a command line. Raises as ``quote``."""
    return " ".join(quote(word, variables) for word in words)
