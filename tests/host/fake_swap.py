"""A node with simulated zram devices, swap areas and file systems, which keeps the kernel's rules: the lowest free number is given, a
device in use cannot be reset, only what is formatted can be switched on, and there is no swap on a file system in memory."""

from __future__ import annotations

import errno
import re
import uuid

from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed

KNOBS = re.compile(r"/sys/block/zram(\d+)/(\w+)")


class Device:
    def __init__(self) -> None:
        self.size, self.mark, self.algorithm, self.limit, self.foreign = 0, "", "lzo-rle", 0, b""


class SwapNode(LocalNode):
    """``areas``: path → (kind, size, priority) of what is in use; ``files``: path → size; ``broken``: commands and knobs that
    fail, ``missing``: commands that are not installed."""

    def __init__(self, *, root: bool = True, module: bool = True, file_system: str = "ext4", free: int = 2**40, page: int = 4096) -> None:
        super().__init__()
        self.page = page
        self.root, self.module, self.file_system, self.free = root, module, file_system, free
        self.zram: dict[int, Device] = {0: Device()} if module else {}
        self.areas: dict[str, tuple[str, int, int]] = {}
        self.files: dict[str, int] = {}
        self.marks: dict[str, str] = {}
        self.broken: set[str] = set()
        self.missing: set[str] = set()
        self.taken_meanwhile = False
        self.commands: list[tuple[str, ...]] = []
        self.directories: list[str] = []

    def read(self, path: str) -> bytes:
        if path == "/proc/swaps":
            lines = [f"{p.replace(' ', chr(92) + '040')}\t{k}\t{s // 1024}\t0\t{pr}" for p, (k, s, pr) in self.areas.items()]
            return "\n".join(["Filename\tType\tSize\tUsed\tPriority", *lines, ""]).encode()
        if path == "/sys/class/zram-control/hot_add":
            if not self.module:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            for _ in range(1 + self.taken_meanwhile):
                number = next(n for n in range(100) if n not in self.zram)
                self.zram[number] = Device()
            self.taken_meanwhile = False
            return f"{number}\n".encode()
        match = KNOBS.fullmatch(path)
        if match:
            if int(match[1]) not in self.zram:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
            device = self.zram[int(match[1])]
            return {"disksize": f"{device.size}\n", "comp_algorithm": "[lzo-rle] lzo lz4 \n"}[match[2]].encode()
        return super().read(path)

    def exists(self, path: str) -> bool:
        if path.startswith(("/sys/class/zram", "/sys/block/zram")):
            match = KNOBS.fullmatch(path)
            return self.module and (match is None or int(match[1]) in self.zram)
        return path in self.files or super().exists(path)

    def listdir(self, path: str) -> list[str]:
        if path == "/sys/block":
            return ["sda", *(f"zram{number}" for number in self.zram)]
        return super().listdir(path)

    def write(self, path: str, data: bytes) -> None:
        match = KNOBS.fullmatch(path)
        text = data.decode() if match or path.startswith("/sys/") else ""
        if path == "/sys/class/zram-control/hot_remove":
            if self.zram[int(text)].size:
                raise OSError(errno.EBUSY, "Device or resource busy", path)
            del self.zram[int(text)]
        elif match:
            device = self.zram[int(match[1])]
            if match[2] in self.broken:
                raise OSError(errno.EINVAL, "Invalid argument", path)
            if match[2] == "reset":
                assert f"/dev/zram{match[1]}" not in self.areas, "in use"
                device.size, device.mark = 0, ""
            elif match[2] == "disksize":
                device.size = -(-int(text) // self.page) * self.page
            elif match[2] == "comp_algorithm":
                device.algorithm = text
            elif match[2] == "mem_limit":
                device.limit = int(text)
        elif path.endswith(".swap"):
            self.files[path] = len(data)
        else:
            super().write(path, data)

    def make_dir(self, path: str, *, mode: int = 0o700, user: str | None = None) -> None:
        self.directories.append(path)

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        argv = tuple(command.argv)
        self.commands.append(argv)
        name, last = argv[0], argv[-1]
        if last == "--version":
            return Completed(127 if name in self.missing else 0, name, "")
        if name in self.broken:
            return Completed(1, "", f"{name}: it does not work\n")
        if name == "id":
            return Completed(0, "0\n" if self.root else "1000\n", "")
        if name == "test":
            return Completed(0 if last.startswith("/srv") else 1, "", "")
        if name == "df":
            return Completed(0, f"Type Avail\n{self.file_system} {self.free}\n", "")
        number = int(last.removeprefix("/dev/zram")) if last.startswith("/dev/zram") else None
        device = self.zram[number] if number is not None else None
        if name == "head":
            content = b"" if device is None else device.foreign or (b"x" if device.mark else b"\0" * 4096)
            return Completed(0, content.decode(), "")
        if name == "od":
            return Completed(0, uuid.UUID(device.mark).hex if device and device.mark else "00" * 16, "")
        if name == "mkswap":
            unknown = {word for word in argv[1:] if word.startswith("-")} - {"-c", "-f", "-p", "-L", "-v", "-U", "--"}
            if unknown:  # as before util-linux 2.38
                return Completed(1, "", f"mkswap: invalid option {min(unknown)}\n")
            self.marks[last] = argv[argv.index("-U") + 1]
            if device is not None:
                device.mark = self.marks[last]
        elif name == "swapon":
            assert last in self.marks
            size = device.size if device is not None else self.files[last]
            self.areas[last] = ("partition" if device else "file", size, int(argv[argv.index("-p") + 1]))
        elif name == "swapoff":
            del self.areas[last]
        elif name == "fallocate":
            self.files[last] = int(argv[2])
        elif name == "rm":
            self.files.pop(last, None)
        elif name not in ("chattr", "dd"):
            return super().run(command, timeout)
        return Completed(0, "", "")
