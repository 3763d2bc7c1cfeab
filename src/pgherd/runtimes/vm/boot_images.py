"""Boot images of guests, built once per PostgreSQL installation and cached: kernel, initramfs, root image."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.node.protocol import Node
from pgherd.postgres.installations import Installation
from pgherd.runtimes.vm import hypervisor, initramfs, kernel, root_image
from pgherd.runtimes.vm.disk_image import mkfs
from pgherd.runtimes.vm.hypervisor import Hypervisor
from pgherd.runtimes.vm.kernel import NEEDED, USEFUL, Kernel
from pgherd.runtimes.vm.root_image import RootImage


@dataclass(frozen=True)
class BootImages:
    """Boot images of guests: paths of the kernel as QEMU loads it, of the initramfs, and of the root image.

    ``seconds`` has the build time of each part that was built now.
    """

    kernel: Kernel
    boot: str
    initrd: str
    root: RootImage
    hypervisor: Hypervisor
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CachedImage:
    """Cached file or directory: kind, path, bytes on disk, creation time (seconds since the epoch)."""

    kind: str
    path: str
    bytes: int
    made: float
    note: str = ""


def build(
    node: Node,
    installation: Installation,
    account: str | None,
    cache_dir: str,
    scratch: str,
    *,
    extra: Sequence[str] = (),
    accelerator: str | None = None,
    again: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> BootImages:
    """Return the boot images of guests with this installation. Parts that the cache lacks are built.

    ``account`` is the servers' user (None: the current one). ``extra`` are further files for the guest. ``scratch`` is a private
    directory on the cache's file system, which the caller removes (``scratch_tree``). ``again`` rebuilds the root image and probes KVM
    again.

    Raises:
        CapabilityError: QEMU, a kernel, mkfs.ext4, busybox or another tool is missing. The message names it.
    """
    hypervisor.program()
    mkfs()
    initramfs.busybox()
    kernel.make_home(cache_dir, "kernel")
    seconds: dict[str, float] = {}
    started = node.now()

    def record_time(part: str) -> None:
        nonlocal started
        seconds[part], started = node.now() - started, node.now()

    chosen = kernel.ensure(node, cache_dir, scratch, say=say)
    record_time("kernel")
    probed = hypervisor.find(node, chosen, cache_dir, scratch, accelerator=accelerator, again=again)
    record_time("trying the hypervisor")
    # A real processor unpacks it quickly.
    boot = _boot_image(chosen, cache_dir, scratch) if probed.functional_only else _readable(chosen, cache_dir, scratch)
    record_time("unpacking the kernel")
    initrd = _first_file_system(chosen, cache_dir, scratch)
    record_time("initramfs")
    root = root_image.ensure(node, installation, account, cache_dir, scratch, extra=extra, again=again, say=say)
    record_time("root image")
    return BootImages(chosen, boot, initrd, root, probed, seconds)


def scratch_tree(node: Node, journal: Journal) -> str:
    """Create a build directory on the cache's file system. The journal removes it."""
    return str(paths.work_tree(node, journal, "vm", None))


def _boot_image(chosen: Kernel, cache_dir: str, scratch: str) -> str:
    """Return the uncompressed kernel where QEMU can boot it, or the installed file."""
    status = os.stat(chosen.image)
    digest = _digest(chosen.image, status.st_size, status.st_mtime_ns)
    target = root_image.home(cache_dir) / f"kernel-{chosen.release}-{digest}.elf"
    unsupported = target.with_suffix(".none")
    if target.exists():
        return str(target)
    if unsupported.exists():
        return _readable(chosen, cache_dir, scratch)
    data = kernel.uncompressed(Path(chosen.image).read_bytes())
    _put(unsupported if data is None else target, data or b"", scratch)
    return _readable(chosen, cache_dir, scratch) if data is None else str(target)


def _readable(chosen: Kernel, cache_dir: str, scratch: str) -> str:
    """Return the kernel in a file that all users can read. Some distributions restrict it to root, and QEMU does not run as root."""
    status = os.stat(chosen.image)
    if status.st_mode & 0o004:
        return chosen.image
    target = root_image.home(cache_dir) / f"kernel-{chosen.release}-{_digest(chosen.image, status.st_size, status.st_mtime_ns)}.image"
    if not target.exists():
        _put(target, Path(chosen.image).read_bytes(), scratch)
    return str(target)


def _first_file_system(chosen: Kernel, cache_dir: str, scratch: str) -> str:
    data = initramfs.archive(chosen, (*NEEDED, *USEFUL))
    target = root_image.home(cache_dir) / f"initrd-{chosen.release}-{hashlib.sha256(data).hexdigest()[:12]}.cpio"
    if not target.exists():
        _put(target, data, scratch)
    return str(target)


def _put(target: Path, data: bytes, scratch: str) -> None:
    """Write a file atomically."""
    temporary = Path(scratch, target.name)
    temporary.write_bytes(data)
    temporary.chmod(0o644)  # for QEMU's user
    temporary.replace(target)


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def list_all(cache_dir: str) -> list[CachedImage]:
    """Return the cached files of guests, by kind and age."""
    cache = root_image.home(cache_dir)
    cached = [_kept("kernel package", path) for path in sorted(cache.glob("kernel/*"))]
    cached += [_kept("kernel", path) for path in sorted([*cache.glob("kernel-*.elf"), *cache.glob("kernel-*.image")])]
    cached += [_kept("initramfs", path) for path in sorted(cache.glob("initrd-*.cpio"))]
    cached += [
        CachedImage("root image", image.path, image.bytes, image.made, f"PostgreSQL {image.version} of {image.bin}")
        for image in root_image.list_all(cache_dir)
    ]
    return cached


def _kept(kind: str, path: Path) -> CachedImage:
    files = [path, *path.rglob("*")] if path.is_dir() else [path]
    return CachedImage(kind, str(path), sum(file.lstat().st_blocks * 512 for file in files), path.lstat().st_mtime)


def clean(cache_dir: str, in_use: Iterable[str] = (), *, kernels: bool = False) -> tuple[list[CachedImage], list[CachedImage]]:
    """Remove the cached files of guests, except paths in use. Return (removed, left).

    Downloaded kernels stay, unless ``kernels``.
    """
    used = set(in_use)
    removed: list[CachedImage] = []
    remaining: list[CachedImage] = []
    for item in list_all(cache_dir):
        if item.path in used or (item.kind == "kernel package" and not kernels):
            remaining.append(item)
            continue
        path = Path(item.path).parent if item.kind == "root image" else Path(item.path)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        removed.append(item)
    cache = root_image.home(cache_dir)
    for path in [cache / "hypervisor.json", *cache.glob("kernel-*.none")]:
        path.unlink(missing_ok=True)
    return removed, remaining
