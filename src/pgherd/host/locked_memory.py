"""An idle process that holds locked memory: the dummy beside the others by which E4 takes memory from an overcommitted host.

Run as a program of its own, with nothing but the standard library: ``python locked_memory.py BYTES``. It says ``held``
once all of it is in memory, and then does nothing until it is ended.
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
_PATIENCE = 120.0


def command(size: int, join: tuple[str, ...], output: str) -> Command:
    """What starts it, to hold ``size`` bytes, within the groups of ``join``; it writes what it has to say to the file ``output``."""
    path = os.pathsep.join(path for path in sys.path if path)
    return Command((sys.executable, "-c", _LIBRARY, str(size)), env={"PYTHONPATH": path}, join=join, stdout=output, stderr=output)


def hold(node: Node, size: int, join: tuple[str, ...], output: str) -> Process:
    """Start it and wait until it holds the memory.

    Raises:
        CapabilityError: it cannot be locked, or there is not so much.
    """
    process = node.spawn(command(size, join, output))
    deadline = time.monotonic() + _PATIENCE
    said = ""
    while time.monotonic() < deadline:
        said = node.read(output).decode(errors="replace").strip() if node.exists(output) else ""
        if said == HELD:
            return process
        code = process.poll()
        if code is not None:
            said = said.splitlines()[-1] if said else f"it ended with exit code {code}; the kernel may have ended it for want of memory"
            break
        time.sleep(0.02)
    else:
        said = f"it did not come about within {_PATIENCE:.0f} s"
    process.signal(signal.SIGKILL)
    process.wait(10)
    raise CapabilityError(
        f"{format_bytes(size)} of memory can't be locked to stand for an idle container: {said}; run as root, raise 'ulimit -l', "
        "or stage it by the limit of the host's control group"
    )


def main() -> None:
    """Hold as many bytes as the first argument says."""
    size = int(sys.argv[1])
    try:
        # The largest process would be the first to be ended when the others need more than there is: this one must stay.
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
