"""The kernel that guests boot: one that is installed, else the distribution's package, unpacked into the cache.

A package is never installed for this: its scripts would build a boot image for this machine.
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
"""What a guest cannot do without, as modules or built in."""
USEFUL = ("virtio_mmio", "virtio_rng", "crc32c_generic", "crc32c_intel")
"""Loaded where the kernel has them: other buses, and what ext4 asks for at run time only."""
PACKAGES = ("linux-image-cloud-amd64", "linux-image-amd64", "linux-image-virtual", "linux-image-generic")
"""Debian's and Ubuntu's kernels, the smallest first."""

_DOWNLOAD_SECONDS = 300.0
_XEN_PVH = 18  # XEN_ELFNOTE_PHYS32_ENTRY (Linux, include/xen/interface/elfnote.h)


@dataclass(frozen=True)
class Kernel:
    """A kernel that a guest can boot.

    ``image`` is the compressed image, ``release`` what ``uname -r`` says of it, ``modules`` the directory of its modules
    (``lib/modules/RELEASE``), ``origin`` whether it is installed or was unpacked from a package.
    """

    image: str
    release: str
    modules: str
    origin: Literal["installed", "unpacked"]

    @cached_property
    def files(self) -> dict[str, Path]:
        """Module → its file; a name's dashes are underscores, as the kernel has them."""
        found = {}
        for path in Path(self.modules, "kernel").rglob("*.ko*"):
            found[_plain(path.name.partition(".ko")[0])] = path
        return found

    @cached_property
    def built_in(self) -> frozenset[str]:
        """Modules that are part of the kernel itself."""
        try:
            lines = Path(self.modules, "modules.builtin").read_text().splitlines()
        except OSError:
            return frozenset()
        return frozenset(_plain(Path(line).name.removesuffix(".ko")) for line in lines)

    def missing(self, modules: Sequence[str]) -> list[str]:
        """Those of the modules that it has in neither way."""
        return [name for name in modules if _plain(name) not in self.files and _plain(name) not in self.built_in]

    def load_order(self, wanted: Sequence[str]) -> list[Path]:
        """The files of modules and of all that they depend on (as their own headers say), those that others need first."""
        order: list[Path] = []

        def add(name: str) -> None:
            path = self.files.get(_plain(name))
            if path is None or path in order:
                return  # built into the kernel, or there already
            depends = re.search(rb"\0depends=([^\0]*)", read_module(path))
            for other in filter(None, (depends[1].decode() if depends else "").split(",")):
                add(other)
            order.append(path)

        for name in wanted:
            add(name)
        return order


def _plain(name: str) -> str:
    return name.replace("-", "_")


def read_module(path: Path) -> bytes:
    """A module's file, uncompressed (distributions compress them with xz, gzip or zstd); raises CapabilityError."""
    data = path.read_bytes()
    if path.suffix == ".xz":
        return lzma.decompress(data)
    if path.suffix == ".gz":
        return gzip.decompress(data)
    if path.suffix == ".zst":
        return _unzstd(data, str(path))
    return data


def _unzstd(data: bytes, what: str) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise CapabilityError(f"{what} is compressed with zstd; pip install 'pgherd[compression]' for the library that reads it") from None
    return zstandard.ZstdDecompressor().decompressobj().decompress(data)


def present(cache_dir: str, needed: Sequence[str] = NEEDED) -> Kernel | None:
    """A kernel that is on this machine already and has these modules: an installed one, else one that was unpacked; of several the
    smaller kind, then the newest."""
    unpacked = sorted(
        _home(cache_dir).glob("linux-*"), key=lambda home: ("cloud" in home.name or "virtual" in home.name, _version(home.name))
    )
    found = [*_below(Path("/"), "installed"), *(kernel for home in reversed(unpacked) for kernel in _below(home, "unpacked"))]
    return next((kernel for kernel in found if not kernel.missing(needed)), None)


def _home(cache_dir: str) -> Path:
    return Path(cache_dir, "vm", "kernel")


def _below(home: Path, origin: Literal["installed", "unpacked"]) -> list[Kernel]:
    """Kernels below a root directory, the newest first: /boot/vmlinuz-RELEASE, or lib/modules/RELEASE/vmlinuz as Fedora has them."""
    found = {}
    for modules in (*home.glob("lib/modules/*"), *home.glob("usr/lib/modules/*")):
        release = modules.name
        for image in (home / "boot" / f"vmlinuz-{release}", modules / "vmlinuz"):
            if release not in found and (modules / "kernel").is_dir() and os.access(image, os.R_OK):
                found[release] = Kernel(str(image), release, str(modules), origin)
    return [found[release] for release in sorted(found, key=_version, reverse=True)]


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
    """A kernel with the modules: one that is there, else unpacked now from the first of the packages that can be had.

    ``scratch`` is a directory of ours on the cache's file system; what is left in it goes with it.

    Raises:
        CapabilityError: there is none, and none can be fetched; the message says why.
    """
    if os.uname().machine != "x86_64":
        raise CapabilityError(f"guests are made for x86_64 only, and this machine is {os.uname().machine}")
    if (found := present(cache_dir, needed)) is not None:
        return found
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise CapabilityError(
                f"no installed kernel can be read that has {', '.join(needed)}, and there is no {tool} to fetch one; "
                "install the distribution's kernel package (guests boot it from /boot)"
            )
    refused = []
    for package in packages:
        try:
            _unpack(node, package, _home(cache_dir), scratch, say)
        except CapabilityError as error:
            refused.append(str(error))
            continue
        if (found := present(cache_dir, needed)) is not None:
            return found
        refused.append(f"{package} lacks a module")
    raise CapabilityError(f"no kernel for guests: none is installed with {', '.join(needed)}, and of the packages {'; '.join(refused)}")


def _unpack(node: Node, package: str, home: Path, scratch: str, say: Callable[[str], None]) -> None:
    """The package that a kernel's name stands for, unpacked as ``home/VERSIONED-NAME``."""
    said = node.run(Command(["apt-cache", "depends", package])).out
    named = re.search(r"Depends: (linux-image-\d\S*)", said)
    if named is None:
        raise CapabilityError(f"{package} is not known to apt ('apt-get update' once may help)")
    say(f"fetching the kernel package {named[1]}, which is unpacked into the cache and not installed")
    place = Path(scratch, f"kernel-{package}")
    place.mkdir(parents=True)
    parts = [named[1], *re.findall(r"Depends: (linux-modules-\d\S*)", node.run(Command(["apt-cache", "depends", named[1]])).out)]
    done = node.run(Command(["apt-get", "download", *parts], cwd=str(place), env=_proxies()), timeout=_DOWNLOAD_SECONDS)
    files = sorted(place.glob("*.deb"))
    if done.code or not files:
        words = (done.err.strip() or "no reason given").splitlines()[-1]
        raise CapabilityError(f"{named[1]} cannot be downloaded ({words})")
    for file in files:
        done = node.run(Command(["dpkg-deb", "-x", str(file), str(place / "whole")]), timeout=_DOWNLOAD_SECONDS)
        if done.code:
            raise CapabilityError(f"{file.name} cannot be unpacked ({done.err.strip()[-200:]})")
        file.unlink()
    home.mkdir(parents=True, exist_ok=True)
    target = home / named[1]
    if not target.exists():  # another pgherd may have been faster
        (place / "whole").rename(target)


def _proxies() -> dict[str, str]:
    """Commands get a clean environment; apt needs to know of a proxy."""
    return {name: value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy", "no_proxy")}


def uncompressed(data: bytes) -> bytes | None:
    """The ELF kernel inside a compressed image (Linux, Documentation/arch/x86/boot.rst: payload_offset and payload_length), if QEMU
    can boot that directly (it has a PVH entry); else None. An emulated processor takes seconds to unpack xz by itself; lz4 it unpacks
    quickly, and that image stays as it is, since each QEMU has the kernel's file in its memory."""
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
            kernel = _unzstd(payload, "the kernel")
        else:
            return None
    except (lzma.LZMAError, zlib.error, CapabilityError):
        return None
    notes = (struct.pack("<III4s", 4, size, _XEN_PVH, b"Xen\0") for size in (4, 8))
    return kernel if kernel.startswith(b"\x7fELF") and any(note in kernel for note in notes) else None
