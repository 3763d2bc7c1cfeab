"""What a server that has failed leaves to be said of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pgherd.host import processes

_TELLING = re.compile(r"(WARNING|ERROR|FATAL|PANIC):  (?!the database system is)|LOG:  server process")


def of_log(lines: Sequence[str]) -> str:
    """The last lines of a server's log that tell of trouble, or else its last lines; or that there are none."""
    if not lines:
        return "nothing can be read of the server's log"
    telling = [line for line in lines if _TELLING.search(line)]
    return "\n".join(["the server's log ends with:", *(telling[-4:] or lines[-2:])])


def of_memory(container: str, kills: int) -> str:
    """That the kernel ended so many of a container's processes for want of memory, and what to do."""
    return (
        f"container {container} needed more than its memory limit, and the kernel ended {processes.counted(kills)} in it: raise --memory, "
        "or lower --scale or --set shared_buffers"
    )
