"""Kernel of guests: an installed one, or the distribution's package unpacked into the cache.

The package is not installed, because its scripts would build a boot image for this machine.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import shutil
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node

NEEDED = ("virtio_pci", "virtio_blk", "virtio_net", "virtio_balloon", "virtio_console", "ext4", "overlay")
"""Features that a guest requires, as modules or built in."""
USEFUL = ("virtio_mmio", "virtio_rng", "crc32c_generic", "crc32c_intel")
"""Modules that are loaded if the kernel has them: other buses, and those that ext4 loads at run time."""
PACKAGES = ("linux-image-cloud-amd64", "linux-image-amd64", "linux-image-virtual", "linux-image-generic")
"""Kernel packages of Debian and Ubuntu, the smallest first."""

_DOWNLOAD_SECONDS = 300.0
_XEN_PVH = 18  # XEN_ELFNOTE_PHYS32_ENTRY (Linux, include/xen/interface/elfnote.h)


@dataclass(frozen=True)
class Kernel:
    """Kernel that a guest can boot.

    ``image`` is the compressed image, ``release`` the output of ``uname -r``, ``modules`` the directory of its modules
    (``lib/modules/RELEASE``). ``origin``: installed, or unpacked from a package.
    """

    image: str
    release: str
    modules: str
    origin: Literal["installed", "unpacked"]

    @cached_property
    def files(self) -> dict[str, Path]:
        """Module → its file. A name's dashes are underscores, as in the kernel."""
        files = {}
        for path in Path(self.modules, "kernel").rglob("*.ko*"):
            files[_plain(path.name.partition(".ko")[0])] = path
        return files

    @cached_property
    def built_in(self) -> frozenset[str]:
        """Modules that are part of the kernel image."""
        try:
            lines = Path(self.modules, "modules.builtin").read_text().splitlines()
        except OSError:
            return frozenset()
        return frozenset(_plain(Path(line).name.removesuffix(".ko")) for line in lines)

    def missing(self, modules: Sequence[str]) -> list[str]:
        """Return the modules that it has neither as a file nor built in."""
        return [name for name in modules if _plain(name) not in self.files and _plain(name) not in self.built_in]

    def load_order(self, modules: Sequence[str]) -> list[Path]:
        """Return the files of modules and of their dependencies (from the modules' headers), dependencies first."""
        order: list[Path] = []

        def add(name: str) -> None:
            path = self.files.get(_plain(name))
            if path is None or path in order:
                return  # built in, or added already
            depends = re.search(rb"\0depends=([^\0]*)", read_module(path))
            for other in filter(None, (depends[1].decode() if depends else "").split(",")):
                add(other)
            order.append(path)

        for name in modules:
            add(name)
        return order


def _plain(name: str) -> str:
    return name.replace("-", "_")


def read_module(path: Path) -> bytes:
    """Return a module's uncompressed contents. Distributions use xz, gzip or zstd."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return _unzstd(data)
    return data


def _unzstd(data: bytes) -> bytes:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def present(cache_dir: str, needed: Sequence[str] = NEEDED) -> Kernel | None:
    """Return a kernel on this machine with these modules, or None: an installed one, or an unpacked one.

    Of several the smaller package comes first, then the newest.
    """
    unpacked = sorted(
        _home(cache_dir).glob("linux-*"), key=lambda home: ("cloud" in home.name or "virtual" in home.name, _version(home.name))
    )
    kernels = [*_below(Path("/"), "installed"), *(kernel for home in reversed(unpacked) for kernel in _below(home, "unpacked"))]
    return next((kernel for kernel in kernels if not kernel.missing(needed)), None)


def _home(cache_dir: str) -> Path:
    return Path(cache_dir, "vm", "kernel")


def make_home(cache_dir: str, name: str = "") -> Path:
    """Create the directory of guests' files in the cache, or directory ``name`` in it, and return it.

    Of root, the user that QEMU runs as may enter it and its new parents, even if the umask forbids that.
    """
    top, path = Path(cache_dir, "vm"), Path(cache_dir, "vm", name)
    missing = [directory for directory in path.parents if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    if os.geteuid() == 0:
        for directory in {*missing, top, path}:
            directory.chmod(0o711)
    return path


def _below(home: Path, origin: Literal["installed", "unpacked"]) -> list[Kernel]:
    """Return the kernels below a root directory, newest first: /boot/vmlinuz-RELEASE, or lib/modules/RELEASE/vmlinuz as in Fedora."""
    by_release = {}
    for modules in (*home.glob("lib/modules/*"), *home.glob("usr/lib/modules/*")):
        release = modules.name
        for image in (home / "boot" / f"vmlinuz-{release}", modules / "vmlinuz"):
            if release not in by_release and (modules / "kernel").is_dir() and os.access(image, os.R_OK):
                by_release[release] = Kernel(str(image), release, str(modules), origin)
    return [by_release[release] for release in sorted(by_release, key=_version, reverse=True)]


def _version(release: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", release)]


def ensure(
    node: Node,
    cache_dir: str,
    scratch: str,
    *,
    needed: Sequence[str] = NEEDED,
    packages: Sequence[str] = PACKAGES,
    say: Callable[[str], None] = print,
) -> Kernel:
    """Return a kernel with the modules: an existing one, or one that is unpacked now from the first available package.

    ``scratch`` is a private directory on the cache's file system. Remaining files in it are removed with it.

    Raises:
        CapabilityError: there is none, and none can be downloaded. The message has the reason.
    """
    if os.uname().machine != "x86_64":
        raise CapabilityError(f"guests need x86_64, and this machine is {os.uname().machine}")
    if (existing := present(cache_dir, needed)) is not None:
        return existing
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise CapabilityError(
                f"no readable installed kernel has {', '.join(needed)}, and there is no {tool} to fetch one; "
                "install the distribution's kernel package (guests boot it from /boot)"
            )
    refused = []
    for package in packages:
        try:
            _unpack(node, package, cache_dir, scratch, say)
        except CapabilityError as error:
            refused.append(str(error))
            continue
        if (existing := present(cache_dir, needed)) is not None:
            return existing
        refused.append(f"{package} lacks a module")
    raise CapabilityError(f"no kernel for guests: none with {', '.join(needed)} is installed; packages: {'; '.join(refused)}")


def _unpack(node: Node, package: str, cache_dir: str, scratch: str, say: Callable[[str], None]) -> None:
    """Unpack the package that a kernel's name depends on into the cache, in a directory with its versioned name."""
    dependencies = node.run(Command(["apt-cache", "depends", package])).out
    versioned = re.search(r"Depends: (linux-image-\d\S*)", dependencies)
    if versioned is None:
        raise CapabilityError(f"{package} is unknown to apt; run 'apt-get update'")
    say(f"fetching the kernel package {versioned[1]} (unpacked into the cache, not installed)")
    directory = Path(scratch, f"kernel-{package}")
    directory.mkdir(parents=True)
    parts = [versioned[1], *re.findall(r"Depends: (linux-modules-\d\S*)", node.run(Command(["apt-cache", "depends", versioned[1]])).out)]
    completed = node.run(Command(["apt-get", "download", *parts], cwd=str(directory), env=_proxies()), timeout=_DOWNLOAD_SECONDS)
    files = sorted(directory.glob("*.deb"))
    if completed.code or not files:
        reason = (completed.err.strip() or "no reason given").splitlines()[-1]
        raise CapabilityError(f"{versioned[1]} cannot be downloaded ({reason})")
    for file in files:
        completed = node.run(Command(["dpkg-deb", "-x", str(file), str(directory / "whole")]), timeout=_DOWNLOAD_SECONDS)
        if completed.code:
            raise CapabilityError(f"{file.name} cannot be unpacked ({completed.err.strip()[-200:]})")
        file.unlink()
    target = make_home(cache_dir, "kernel") / versioned[1]
    if not target.exists():  # a concurrent pgherd may have unpacked it
        (directory / "whole").rename(target)


def _proxies() -> dict[str, str]:
    """Return the proxy variables for apt. Commands run in a clean environment."""
    return {name: value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy", "no_proxy")}


def uncompressed(data: bytes) -> bytes | None:
    """Return the ELF kernel inside a compressed image, or None if QEMU cannot boot it directly (it has no PVH entry).

    Linux, Documentation/arch/x86/boot.rst, describes payload_offset and payload_length. An emulated processor takes seconds to unpack xz.
    It unpacks lz4 quickly, so such an image stays compressed, because each QEMU loads the kernel's file into its memory.
    """
    if len(data) < 0x250 or data[0x202:0x206] != b"HdrS" or struct.unpack_from("<H", data, 0x206)[0] < 0x208:
        return None
    begin = (data[0x1F1] or 4) * 512 + 512
    offset, length = struct.unpack_from("<II", data, 0x248)
    payload = data[begin + offset : begin + offset + length]
    try:
        if payload.startswith(b"\xfd7zXZ"):
            kernel = lzma.LZMADecompressor().decompress(payload)
        elif payload.startswith(b"\x1f\x8b"):
            kernel = zlib.decompressobj(31).decompress(payload)
        elif payload.startswith(b"\x28\xb5\x2f\xfd"):
            kernel = _unzstd(payload)
        else:
            return None
    except (lzma.LZMAError, zlib.error, CapabilityError):
        return None
    notes = (struct.pack("<III4s", 4, size, _XEN_PVH, b"Xen\0") for size in (4, 8))
    return kernel if kernel.startswith(b"\x7fELF") and any(note in kernel for note in notes) else None
