"""Disk images: file systems packed into raw files with ``mkfs.ext4 -d``, without mounts and without root."""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import dataclass
from pathlib import Path

from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Completed, Node
from pgherd.postgres.disk_space import check_space, used_bytes
from pgherd.postgres.templates import Template

_TIMEOUT_S = 3600.0
"""As for a copy of the finished disk. It is a guard against a hang."""
_MIN_BYTES = 16 * 2**20
_INODE_BYTES = 256
_BYTES_PER_INODE, _MAX_FREE_INODES = 32768, 65536
_JOURNAL_BYTES = 64 * 2**20


@dataclass(frozen=True)
class DiskImage:
    """Packed disk: ``path`` of the raw file, ``size`` in the guest, ``bytes`` on the host's disk, ``seconds`` to make it."""

    path: str
    size: int
    bytes: int
    seconds: float


def mkfs() -> str:
    """Return the path of mkfs.ext4. Raises CapabilityError where it is missing."""
    path = shutil.which("mkfs.ext4", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        raise CapabilityError("mkfs.ext4 is missing (it makes the disks of guests); install e2fsprogs")
    return path


def make_file_system(
    node: Node, directory: Path, image: Path, size: int, *, inodes: int, journal: bool = True, owner: tuple[int, int] = (0, 0)
) -> None:
    """Pack a directory into an ext4 file system of ``size`` bytes in a new raw file. Files keep their owners and modes.

    All structures are initialised now, because later initialisation in the guest would disturb a measurement. ``owner`` owns the top
    directory. Only its owner can read the image in any directory, because it holds all data and the passwords of roles.

    Raises:
        CapabilityError: mkfs.ext4 is missing.
        TrialError: it failed. The message contains its output.
    """
    size = -(-max(size, _MIN_BYTES) // 2**20) * 2**20
    argv = [mkfs(), "-q", "-F", "-b", "4096", "-I", str(_INODE_BYTES), "-m", "0", "-N", str(inodes), "-d", str(directory)]
    argv += ["-O", "^resize_inode" if journal else "^resize_inode,^has_journal"]
    if journal:
        argv += ["-J", f"size={_JOURNAL_BYTES // 2**20 if size >= 2**30 else 16}"]
    argv += ["-E", f"lazy_itable_init=0,lazy_journal_init=0,nodiscard,root_owner={owner[0]}:{owner[1]}"]
    with open(image, "xb", opener=_private):
        pass
    try:
        os.truncate(image, size)
        completed = node.run(Command([*argv, str(image)]), timeout=_TIMEOUT_S)
        if completed.code != 0:
            reason = (completed.err.strip() or "no reason given").splitlines()[-1]
            raise TrialError(f"{directory} cannot be packed into a disk of {format_bytes(size)}: {reason}")
    except BaseException:
        image.unlink(missing_ok=True)  # a later attempt must be able to create it
        raise


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def pack(node: Node, directory: str, image: str, *, free: int, account: str | None = None) -> DiskImage:
    """Pack the contents of a directory into a disk with ``free`` bytes of free space. The top directory belongs to ``account``.

    Raises:
        CapabilityError: mkfs.ext4 is missing, or there is too little disk space.
        TrialError: mkfs.ext4 failed.
    """
    started = node.now()
    used = used_bytes(node, directory)
    files = sum(len(directories) + len(names) for _, directories, names in os.walk(directory))
    data = used + free
    inodes = 2 * files + 1024 + min(free // _BYTES_PER_INODE, _MAX_FREE_INODES)  # each takes space, and a server's files are large
    size = data + data // 64 + inodes * _INODE_BYTES + _JOURNAL_BYTES + _MIN_BYTES
    check_space(node, os.path.dirname(image), used, "the disk of a guest")
    owner = (0, 0) if account is None else (pwd.getpwnam(account).pw_uid, pwd.getpwnam(account).pw_gid)
    make_file_system(node, Path(directory), Path(image), size, inodes=inodes, owner=owner)
    status = os.stat(image)
    return DiskImage(image, status.st_size, status.st_blocks * 512, node.now() - started)


def pack_template(
    node: Node,
    template: Template,
    scratch: str,
    image: str,
    *,
    free: int,
    account: str,
    wal: str | None = None,
    wal_mount: str = "",
    wal_free: int = 0,
) -> list[DiskImage]:
    """Pack a data directory template as ``data`` at the top of a disk.

    With ``wal`` its WAL becomes ``wal`` of another disk, which the guest mounts at ``wal_mount``. The template is only read: hard links
    replace it, which take no space, or copies where it belongs to another user than ``account``.
    ``scratch`` is on the cache's file system, and is created for this user only: mkfs reads files by their paths.

    Raises:
        CapabilityError, TrialError: as ``pack``.
    """
    stage = Path(scratch)
    top = stage / "data-disk"
    node.make_dir(scratch, mode=0o700)
    packed: list[DiskImage] = []
    try:
        top.mkdir(exist_ok=True)
        entry = pwd.getpwnam(account)
        _staged(node, template.data_dir, str(top / "data"), account)
        if wal is not None:
            wal_stage = stage / "wal-disk"
            wal_stage.mkdir()
            (top / "data" / "pg_wal").rename(wal_stage / "wal")
            (top / "data" / "pg_wal").symlink_to(f"{wal_mount}/wal")
            os.chown(top / "data" / "pg_wal", entry.pw_uid, entry.pw_gid, follow_symlinks=False)
            packed.append(pack(node, str(wal_stage), wal, free=wal_free, account=account))
        packed.insert(0, pack(node, str(top), image, free=free, account=account))
    except BaseException as error:
        for disk in packed:  # a later attempt must be able to create it
            os.unlink(disk.path)
        if isinstance(error, TimeoutError):
            raise TrialError(str(error)) from None
        raise
    finally:
        node.remove_tree(str(stage))
    return packed


def _staged(node: Node, directory: str, target: str, account: str) -> None:
    """Copy a directory with hard links. Copy the files where they belong to another user, or links are not possible."""
    foreign = os.stat(directory).st_uid != pwd.getpwnam(account).pw_uid
    completed = Completed(1, "", "")
    for options in [["-a", "--reflink=auto"]] if foreign else [["-al"], ["-a", "--reflink=auto"]]:
        completed = node.run(Command(["cp", *options, "-T", "--", directory, target]), timeout=_TIMEOUT_S)
        if completed.code == 0 and foreign:
            completed = node.run(Command(["chown", "-hR", f"{account}:", "--", target]), timeout=_TIMEOUT_S)
        if completed.code == 0:
            return
        node.remove_tree(target)
    raise TrialError(f"{directory} cannot be staged for a guest's disk: {completed.err.strip()[-200:]}")
