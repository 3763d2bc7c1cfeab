"""The data files that an --init file reads: found by its text, and known by their contents.

A golden copy is made anew when the init file or one of these has changed. Covered is every file that the text names: by a word of a
backslash command (``\\copy``, ``\\lo_import``, ``\\!`` …) or by an SQL string that begins with ``/``, those of a program's command line
among them, but for files that it writes, and those of the kernel, whose contents change by themselves. What a program reads besides, and
names that are put together by variables or by SQL, nobody sees.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence

from pgherd.model.deployment import InitData
from pgherd.model.errors import UsageError
from pgherd.node.protocol import Command, Node
from pgherd.workloads.statements import named_words

_PATIENCE = 3600.0


def find(node: Node, init: str, text: str) -> InitData:
    """The data files that an init file of this text names, relative to its directory or with their whole path.

    Raises:
        UsageError: one cannot be read.
    """
    directory = os.path.dirname(os.path.abspath(init))
    named = {word: os.path.join(directory, word) for word in named_words(text)}
    named = {word: path for word, path in named.items() if not _is_kernels(os.path.normpath(path))}
    paths = sorted({path for path in named.values() if node.exists(path) and os.path.normpath(path) != os.path.abspath(init)})
    files = _regular(node, paths)
    names = tuple(sorted(word for word, path in named.items() if path in files))
    return InitData(directory=directory, files=names, digest=_digest(node, init, directory, names))


def insist_unchanged(node: Node, init: str, data: InitData) -> None:
    """Raise UsageError where the files are not what they were, or are not there any more."""
    missing = [name for name in data.files if not node.exists(os.path.join(data.directory, name))]
    if missing:
        raise UsageError(f"{missing[0]}, which --init {init} reads, is not in {data.directory} any more; put it back, or start a new run")
    if _digest(node, init, data.directory, data.files) != data.digest:
        raise UsageError(
            f"the data that --init {init} reads ({', '.join(data.files)} in {data.directory}) have changed since this run was prepared; "
            "put them back, or start a new run"
        )


def _is_kernels(path: str) -> bool:
    return path.startswith(("/proc/", "/sys/", "/dev/")) and not path.startswith("/dev/shm/")


def _regular(node: Node, paths: Sequence[str]) -> set[str]:
    """Those of them that are files, not directories or pipes."""
    if not paths:
        return set()
    done = node.run(Command(["find", "-L", *paths, "-maxdepth", "0", "-type", "f", "-print0"]))
    return {path for path in done.out.split("\0") if path}


def _digest(node: Node, init: str, directory: str, names: Sequence[str]) -> str:
    """Of the names as they stand in the text, and the contents; empty where there are none."""
    if not names:
        return ""
    paths = [os.path.join(directory, name) for name in names]
    done = node.run(Command(["sha256sum", "--zero", "--", *paths]), timeout=_PATIENCE)
    if done.code != 0:
        raise UsageError(f"data that --init {init} reads cannot be read: {done.err.strip()}")
    sums = [line.partition(" ")[0] for line in done.out.split("\0") if line]
    return hashlib.sha256(json.dumps(list(zip(names, sums, strict=True))).encode()).hexdigest()[:12]
