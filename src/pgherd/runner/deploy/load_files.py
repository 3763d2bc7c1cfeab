"""Files on volumes that drivers work on: written whole before the first trial that needs them, so that no trial pays for it.

A file that was only made large has no blocks yet: reading it reaches no device, and writing it first finds room. So it is written
from end to end once, with data that does not compress, past the page cache where the file system allows that.
"""

from __future__ import annotations

from collections.abc import Sequence

from pgherd.drivers import fio
from pgherd.model.errors import TrialError
from pgherd.model.load import Load
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node
from pgherd.runner.watcher import Watcher

_PATIENCE = 7200.0


def ensure(node: Node, directory: str, loads: Sequence[Load], account: str | None, watcher: Watcher) -> bool:
    """Make the file of fio's loads in a directory, unless it is there and large enough; whether it was written.

    Raises:
        TrialError: it cannot be written, for instance because the disk is full.
    """
    sizes = [int(load.options["size"]) for load in loads if load.driver == "fio" and load.options.get("size", "").isdigit()]
    wanted = max(sizes, default=0)
    if not wanted or wanted <= _size(node, f"{directory}/{fio.FILE}"):
        return False
    watcher.setup(f"writing a file of {format_bytes(wanted)} in {directory}")
    direct = all(load.options.get("direct", "1") == "1" for load in loads if load.driver == "fio")
    argv = fio.file_argv(directory, wanted, direct=direct)
    try:
        done = node.run(Command(argv, cwd=directory, user=account), timeout=_PATIENCE)
    except TimeoutError:
        raise TrialError(
            f"writing a file of {format_bytes(wanted)} in {directory} took more than {_PATIENCE / 3600:g} h; lower --size"
        ) from None
    if done.code != 0:
        words = " | ".join((done.err.strip() or done.out.strip()).splitlines()[-2:])
        raise TrialError(f"a file of {format_bytes(wanted)} cannot be written in {directory}: {words}")
    return True


def _size(node: Node, path: str) -> int:
    """Bytes of a file; -1 where there is none."""
    done = node.run(Command(["stat", "--format=%s", "--", path]))
    return int(done.out) if done.code == 0 and done.out.strip().isdigit() else -1
