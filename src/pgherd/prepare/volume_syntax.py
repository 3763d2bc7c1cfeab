"""Syntax of a volume option: ``[NAME=]DIR``, ``[NAME=]loop:SIZE[@DIR]`` or ``[NAME=]device:/dev/NAME``."""

from __future__ import annotations

import os
import re

from pgherd.model.deployment import Volume
from pgherd.model.errors import UsageError
from pgherd.model.units import parse_bytes

_NAME = re.compile(r"([a-z0-9][a-z0-9_-]{0,39})=(.+)", re.DOTALL)

LEAST_LOOP = 64 * 2**20
"""Bytes of the smallest loop volume. In a smaller one, file system metadata takes most of the space."""


def parse_volume(text: str, name: str, option: str = "--volume") -> Volume:
    """Parse a volume. ``name`` is the default name. Paths become absolute.

    Raises:
        UsageError: the text is no volume. The message names the ``option``.
    """
    named = _NAME.fullmatch(text)
    if named is not None:
        name, text = named[1], named[2]
    if text.startswith("loop:"):
        size, _, directory = text.removeprefix("loop:").partition("@")
        try:
            size_bytes = parse_bytes(size)
        except UsageError:
            raise UsageError(f"{option} {text}: '{size}' is no size; write loop:SIZE or loop:SIZE@DIRECTORY, such as loop:2GB") from None
        if size_bytes < LEAST_LOOP:
            raise UsageError(f"{option} {text}: a loop volume must have at least 64 MB, but {size} is less; raise it")
        return Volume(name=name, kind="loop", path=os.path.abspath(directory) if directory else None, size=size_bytes)
    if text.startswith("device:"):
        path = text.removeprefix("device:")
        if not path.startswith("/dev/"):
            raise UsageError(f"{option} {text}: '{path}' is no block device; write device:/dev/NAME")
        return Volume(name=name, kind="device", path=os.path.normpath(path))
    if not text:
        raise UsageError(f"{option} '{name}=' names no directory; write NAME=DIRECTORY")
    return Volume(name=name, kind="directory", path=os.path.abspath(text))
