"""A volume as a user writes it: ``[NAME=]DIR``, ``[NAME=]loop:SIZE[@DIR]`` or ``[NAME=]device:/dev/NAME``."""

from __future__ import annotations

import os
import re

from pgherd.model.deployment import Volume
from pgherd.model.errors import UsageError
from pgherd.model.units import parse_bytes

_NAME = re.compile(r"([a-z0-9][a-z0-9_-]{0,39})=(.+)", re.DOTALL)

LEAST_LOOP = 64 * 2**20
"""Bytes of the smallest loop volume: below it a file system's own structures are most of it."""


def parse_volume(text: str, name: str, option: str = "--volume") -> Volume:
    """The volume of a text; without a name of its own it gets ``name``. Paths become absolute ones.

    Raises:
        UsageError: it is none; the message names the ``option``.
    """
    found = _NAME.fullmatch(text)
    if found is not None:
        name, text = found[1], found[2]
    if text.startswith("loop:"):
        size, _, directory = text.removeprefix("loop:").partition("@")
        try:
            wanted = parse_bytes(size)
        except UsageError:
            raise UsageError(f"{option} {text}: '{size}' is no size; write loop:SIZE or loop:SIZE@DIRECTORY, such as loop:2GB") from None
        if wanted < LEAST_LOOP:
            raise UsageError(f"{option} {text}: a loop volume has at least 64 MB, and {size} is less; raise it")
        return Volume(name=name, kind="loop", path=os.path.abspath(directory) if directory else None, size=wanted)
    if text.startswith("device:"):
        path = text.removeprefix("device:")
        if not path.startswith("/dev/"):
            raise UsageError(f"{option} {text}: '{path}' is no block device; write device:/dev/NAME")
        return Volume(name=name, kind="device", path=os.path.normpath(path))
    if not text:
        raise UsageError(f"{option} '{name}=' names no directory; write NAME=DIRECTORY")
    return Volume(name=name, kind="directory", path=os.path.abspath(text))
