"""CPU time of the kernel threads that do I/O: workers of the block layer and of writeback, journals, RAID, encryption, loop devices.

A worker of a pool works for one workqueue after the other, and its name ends with the last one (``kworker/0:1H-kblockd``). So its time
since the previous reading is counted for that workqueue. A thread keeps no count when it ends, so only totals by name are kept.
"""

from __future__ import annotations

import os
import re

KTHREADD = "2"
"""Pid of the parent of all kernel threads, on every Linux outside a pid namespace."""
MAX_THREADS = 1000
"""Maximum number of threads that are read. A read takes about 10 µs, and a host has two to four workers per CPU."""

_POOL_WORKER = re.compile(r"kworker/(?:[^-+]*)(?:[-+](.*))?")
"""Worker and, unless it has done nothing yet, the workqueue. A rescuer is ``kworker/R-WORKQUEUE``."""
_IO = re.compile(
    r"kblockd|writeback|dio/|flush-|loop\d|jbd2|xfs|ext4|btrfs|f2fs|bcache|z_|txg_|dm[-_]|dmcrypt|kdmflush|kcryptd|kcopyd|md\d|raid"
    r"|blk|virtblk|nvme|kintegrityd|iscsi|nfsiod|rpciod|xprtiod|rbd|ceph|usb-storage|mmc|irq/\d+-(?:nvme|virtio|ahci|mpt|megasas)"
)
_UTIME = 11


class KernelThreads:
    """Counts the clock ticks that kernel threads used for I/O since the first reading, by workqueue or thread name."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc
        self._ticks: dict[str, int] = {}
        self._totals: dict[str, int] = {}
        self._skipped: set[str] = set()

    def read(self) -> str:
        """Return a line ``NAME TICKS`` for each name so far, or an empty text.

        Raises OSError if the kernel threads cannot be seen, as in a container or with hidepid.
        """
        first = not self._ticks
        if first and self._stat(KTHREADD)[0] != "kthreadd":
            raise OSError(f"process {KTHREADD} is not kthreadd: kernel threads are not visible here")
        children = self._text(f"{KTHREADD}/task/{KTHREADD}/children").split()
        self._skipped.intersection_update(children)
        before, self._ticks = self._ticks, {}
        for pid in children:
            if pid in self._skipped or len(self._ticks) >= MAX_THREADS:
                continue
            try:
                name, ticks = self._stat(pid)
            except OSError:
                continue  # it has ended
            worker = _POOL_WORKER.fullmatch(name)
            queue = (worker[1] or "") if worker else name
            if not _IO.match(queue) and (worker is None or name.startswith("kworker/R-")):
                self._skipped.add(pid)  # its name never changes
                continue
            self._ticks[pid] = ticks
            used = 0 if first else ticks - before.get(pid, 0)
            if used > 0 and _IO.match(queue):
                self._totals[queue] = self._totals.get(queue, 0) + used
        return "\n".join(f"{name} {ticks}" for name, ticks in sorted(self._totals.items()))

    def _text(self, path: str) -> str:
        file = os.open(f"{self._proc}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(file, 65536):
                parts.append(part)
        finally:
            os.close(file)
        return b"".join(parts).decode(errors="replace")

    def _stat(self, pid: str) -> tuple[str, int]:
        """Return a thread's name and its ticks in user mode and in the kernel."""
        text = self._text(f"{pid}/stat")
        name, _, rest = text.partition("(")[2].rpartition(") ")
        fields = rest.split()
        return name, int(fields[_UTIME]) + int(fields[_UTIME + 1])
