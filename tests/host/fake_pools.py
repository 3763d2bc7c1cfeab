"""A node with simulated pools of huge pages and the words of transparent ones, which keeps the kernel's rules: what memory does not
hold is not given; pages in use cannot be taken back and become surplus (admin-guide/mm/hugetlbpage.rst)."""

from __future__ import annotations

import errno
import re

from pgherd.host import huge_pages
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed

SMALL, LARGE = 2 * 2**20, 2**30
WORDS = ("always", "within_size", "advise", "never", "deny", "force")


class PoolNode(LocalNode):
    """``most``: pages per size that the kernel would give (more after memory was compacted: ``compacted``)."""

    def __init__(self, *, memory: int = 8 * 2**30, root: bool = True, sizes: tuple[int, ...] = (SMALL, LARGE)) -> None:
        super().__init__()
        self.memory, self.root = memory, root
        self.total = dict.fromkeys(sizes, 0)
        self.used = dict.fromkeys(sizes, 0)
        self.surplus = dict.fromkeys(sizes, 0)
        self.most = {size: memory // size for size in sizes}
        self.compacted = dict(self.most)
        self.compactions = 0
        self.shared = "never"
        self.own = "inherit"

    def read(self, path: str) -> bytes:
        if path == "/proc/meminfo":
            free = self.memory - sum(size * count for size, count in self.total.items())
            lines = [
                ("MemTotal", self.memory),
                ("MemFree", free),
                ("MemAvailable", free),
                *([("Hugepagesize", SMALL)] if self.total else []),
            ]
            return "".join(f"{name}:  {count // 1024} kB\n" for name, count in lines).encode()
        if path == "/proc/self/status" and not self.root:
            return b"Uid:\t1000\t1000\t1000\t1000\n"
        if path == "/proc/buddyinfo":
            return b"Node 0, zone   Normal   10   5   4   3   2   1   0   0   0   2   7\n"
        if path == huge_pages.SHARED:
            return " ".join(f"[{word}]" if word == self.shared else word for word in WORDS).encode() + b"\n"
        if path == f"{huge_pages.TRANSPARENT}/hpage_pmd_size":
            return b"2097152\n"
        if path.endswith("hugepages-2048kB/shmem_enabled"):
            return f"always [{self.own}] never".encode()
        if path.startswith(huge_pages.POOLS):
            size, name = self._size(path), path.rpartition("/")[2]
            total, used, surplus = self.total[size] + self.surplus[size], self.used[size], self.surplus[size]
            result = {"nr_hugepages": total, "free_hugepages": total - used, "resv_hugepages": 0, "surplus_hugepages": surplus}
            if name in result:
                return f"{result[name]}\n".encode()
        if path.startswith(("/sys/", "/proc/sys/vm")):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        return super().read(path)

    def exists(self, path: str) -> bool:
        if path.startswith("/sys/kernel/mm"):
            try:
                self.read(path)
            except (OSError, KeyError):
                return False
            return True
        return super().exists(path)

    def listdir(self, path: str) -> list[str]:
        if path == huge_pages.POOLS:
            return [f"hugepages-{size // 1024}kB" for size in self.total]
        if path == "/sys/devices/system/node":
            return []
        return super().listdir(path)

    def write(self, path: str, data: bytes) -> None:
        if path.startswith(("/sys/", "/proc/sys/")) and not self.root:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        if path == huge_pages.COMPACT:
            self.compactions += 1
            self.most = dict(self.compacted)
        elif path == huge_pages.SHARED:
            assert data.decode() in WORDS
            self.shared = data.decode()
        elif path.startswith(huge_pages.POOLS):
            size = self._size(path)
            expected = min(int(data), max(self.most[size], self.total[size]))
            self.total[size] = max(expected, 0)
            self.surplus[size] = max(0, self.used[size] - self.total[size])
        else:
            super().write(path, data)

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        if tuple(command.argv[:2]) == ("test", "-w"):
            return Completed(0 if self.root and self.exists(command.argv[2]) else 1, "", "")
        return super().run(command, timeout)

    @staticmethod
    def _size(path: str) -> int:
        result = re.search(r"hugepages-(\d+)kB", path)
        assert result
        return int(result[1]) * 1024
