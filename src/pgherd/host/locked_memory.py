"""Idle process that locks memory, to stage an overcommitted host.

The process runs ``main`` with the number of bytes as its argument. It prints ``held`` after all bytes are in memory, and
then sleeps until it is ended.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import time

from pgherd.model.errors import CapabilityError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node, Process

HELD = "held"
_LIBRARY = "from pgherd.host.locked_memory import main; main()"
_LOCK_TIMEOUT_S = 120.0


def command(size: int, join: tuple[str, ...], output: str) -> Command:
    """Return the command that holds ``size`` bytes and writes to file ``output``."""
    path = os.pathsep.join(path for path in sys.path if path)
    return Command((sys.executable, "-c", _LIBRARY, str(size)), env={"PYTHONPATH": path}, join=join, stdout=output, stderr=output)


def hold(node: Node, size: int, join: tuple[str, ...], output: str) -> Process:
    """Start the process and wait until it holds the memory.

    Raises:
        CapabilityError: the memory cannot be locked, or does not suffice.
    """
    process = node.spawn(command(size, join, output))
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    message = ""
    while time.monotonic() < deadline:
        message = node.read(output).decode(errors="replace").strip() if node.exists(output) else ""
        if message == HELD:
            return process
        code = process.poll()
        if code is not None:
            message = message.splitlines()[-1] if message else f"exit code {code}, possibly after an OOM kill"
            break
        time.sleep(0.02)
    else:
        message = f"not complete within {_LOCK_TIMEOUT_S:.0f} s"
    process.signal(signal.SIGKILL)
    process.wait(10)
    raise CapabilityError(
        f"{format_bytes(size)} of memory can't be locked in place of an idle container: {message}; run as root, raise 'ulimit -l', "
        "or stage it by the limit of the run cgroup"
    )


def main() -> None:
    """Lock as much memory as the first argument requests, in bytes."""
    size = int(sys.argv[1])
    try:
        # The OOM killer prefers the largest process, but this one must survive.
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("-1000")
    except OSError:
        pass
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    library = ctypes.CDLL(None, use_errno=True)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if library.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size)):
        sys.exit(os.strerror(ctypes.get_errno()))
    print(HELD, flush=True)
    while True:
        signal.pause()
