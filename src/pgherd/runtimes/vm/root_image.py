"""Root image of a guest: PostgreSQL, a shell, Python and pgherd's agent, each at the same path as on the host.

One image serves all guests of an installation. They mount it read-only below a file system in memory. It is cached, and built again after a
change of any file in it.
"""

from __future__ import annotations

import grp
import hashlib
import json
import os
import pwd
import py_compile
import shutil
import sys
import sysconfig
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node
from pgherd.postgres.installations import Installation, library_dirs
from pgherd.runtimes.vm import initramfs
from pgherd.runtimes.vm.disk_image import make_file_system
from pgherd.runtimes.vm.guest_rootfs import GuestTree, libraries
from pgherd.runtimes.vm.initramfs import busybox

SCHEMA = "pgherd/root-image/1"
AGENT_FILES = [Path(__file__).with_name(f"{name}.py") for name in (initramfs.AGENT, "agent_tasks", "agent_wire")]
"""Agent's program and the modules that it imports."""

_POSTGRES = (
    "postgres", "initdb", "pgbench", "psql", "pg_ctl", "pg_config", "pg_controldata", "pg_isready", "pg_waldump", "pg_dump", "pg_restore",
    "createdb", "dropdb", "vacuumdb", "pg_checksums",
)  # fmt: skip
_TOOLS = ("sh", "setpriv", "taskset")
_USEFUL_TOOLS = (
    "cat", "chmod", "chown", "cp", "dd", "df", "du", "env", "find", "flock", "kill", "ldd", "ln", "ls", "mkdir", "mv", "ps", "rm", "sleep",
    "stat", "sync", "test", "truncate",
)  # fmt: skip
# Modules of other languages and of LLVM are larger than the rest of the image. A guest has no just-in-time compilation.
_NO_MODULES = ("llvmjit*", "*plperl*", "*plpython*", "pltcl*", "bitcode", "pgxs", "*.a", "pkgconfig")
_NO_PYTHON = (
    "test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "pydoc_data", "site-packages", "dist-packages", "config-*",
    "turtle.py", "*.opt-1.pyc", "*.opt-2.pyc", "_tkinter*", "_test*", "_ctypes_test*", "xx*", "*.a", "*.o",
)  # fmt: skip
_SPARE_BYTES = 24 * 2**20


@dataclass(frozen=True)
class RootImage:
    """Finished image: ``path`` of the raw file, ``version`` and ``bin`` of its PostgreSQL, ``bytes`` on disk, ``made`` in seconds since the
    epoch, ``seconds`` to build it, ``account`` that servers run as in the guest.
    """

    path: str
    version: str
    bin: str
    account: str
    bytes: int
    made: float
    seconds: float
    built: bool = False
    """It was built now, and not found in the cache."""


def guest_account(account: str | None) -> str:
    """Return the user that servers run as in a guest: ``account``, or the current one. The agent runs as root."""
    return pwd.getpwuid(os.getuid()).pw_name if account is None else account


def home(cache_dir: str) -> Path:
    """Return the cache directory of images."""
    return Path(cache_dir, "vm")


def ensure(
    node: Node,
    installation: Installation,
    account: str | None,
    cache_dir: str,
    scratch: str,
    *,
    extra: Sequence[str] = (),
    again: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> RootImage:
    """Return the image for an installation, from the cache or built now.

    ``account`` is the servers' user (None: the current one). ``extra`` are further files and directories for the guest, at the same paths.
    ``scratch`` is a private directory on the cache's file system, which the caller removes.

    Raises:
        CapabilityError: a tool is missing, or a file cannot be read.
    """
    user = guest_account(account)
    directory = home(cache_dir) / f"root-{installation.version}-{_identity(installation, user, extra)}"
    if not again and (cached := _read(directory)) is not None:
        return cached
    say(f"building the root image of guests with PostgreSQL {installation.version}")
    began = node.now()
    staging = Path(scratch, f"root-{uuid.uuid4().hex[:8]}")
    tree = GuestTree(staging / "tree")
    fill(tree, node, installation, user, extra)
    image = staging / "image" / "root.ext4"
    image.parent.mkdir()
    size, files = tree.size()
    make_file_system(node, tree.root, image, size + _SPARE_BYTES + 300 * files, inodes=files + 1024, journal=False)
    shutil.rmtree(tree.root)
    built = RootImage(
        path=str(directory / image.name),
        version=installation.version,
        bin=installation.bin,
        account=user,
        bytes=image.stat().st_blocks * 512,
        made=node.now(),
        seconds=node.now() - began,
        built=True,
    )
    image.chmod(0o644)  # for QEMU's user
    image.parent.chmod(0o755)
    manifest = {"schema": SCHEMA, "image": asdict(built), "sources": sorted(tree.sources.values())}
    (image.parent / "image.json").write_text(json.dumps(manifest))
    directory.parent.mkdir(parents=True, exist_ok=True)
    if directory.exists():  # running guests keep the old one open
        directory.rename(staging / "old")
    try:
        image.parent.rename(directory)
    except OSError:
        if (cached := _read(directory)) is None:  # a concurrent pgherd has built it
            raise
        return cached
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return built


def list_all(cache_dir: str) -> list[RootImage]:
    """Return the images in the cache, current or not, oldest first."""
    images = [_read(place, current=False) for place in home(cache_dir).glob("root-*")]
    return sorted((image for image in images if image is not None), key=lambda image: image.made)


def fill(tree: GuestTree, node: Node, installation: Installation, user: str, extra: Sequence[str] = ()) -> None:
    """Copy the contents of a guest's root file system. Raises CapabilityError."""
    programs = _postgres(tree, installation)
    modules = _postgres_modules(tree, node, installation)
    programs += [tree.add(_tool(name)) for name in _TOOLS]
    programs += [tree.add(path) for name in _USEFUL_TOOLS if (path := _which(name)) is not None]
    interpreter, extensions = _python(tree)
    further = [path for extra_path in extra for path in (tree.add_all(extra_path) if os.path.isdir(extra_path) else [tree.add(extra_path)])]
    shared = [path for path in further if path.endswith(".so")]
    binaries = [path for path in programs if _is_elf(path)]
    for path in libraries(node, [*binaries, interpreter], [*modules, *extensions, *shared])[0]:
        tree.add(path)
    for pattern in ("lib/x86_64-linux-gnu", "lib64", "lib"):  # a separate library for users before glibc 2.34
        if os.path.exists(path := f"/{pattern}/libnss_files.so.2"):
            tree.add(path)
    _system(tree, installation, user)
    _add_pgherd_files(tree, node, interpreter)


def _postgres(tree: GuestTree, installation: Installation) -> list[str]:
    tools = [installation.tool(name) for name in _POSTGRES if os.path.exists(installation.tool(name))]
    return [tree.add(path) for path in tools]


def _postgres_modules(tree: GuestTree, node: Node, installation: Installation) -> list[str]:
    """Copy the server's loadable modules and shared files. Return the paths of the modules."""
    prefix = os.path.dirname(installation.bin)
    modules: list[str] = []
    for directory in library_dirs(node, installation):
        if os.path.isdir(directory) and os.path.realpath(directory) not in ("/usr/lib", "/lib", "/usr/local/lib", "/usr/lib64"):
            modules += [path for path in tree.add_all(directory, skip=_NO_MODULES) if path.endswith(".so")]
    has_pg_config = os.path.exists(installation.tool("pg_config"))
    share_dir = node.run(Command([installation.tool("pg_config"), "--sharedir"]), timeout=10).out.strip() if has_pg_config else ""
    candidates = [share_dir, f"{prefix}/share", f"{prefix}/share/postgresql", f"/usr/share/postgresql/{installation.major}"]
    shares = [candidate for candidate in candidates if candidate and os.path.exists(f"{candidate}/postgres.bki")]
    if not shares:
        raise CapabilityError(
            f"PostgreSQL {installation.version} in {installation.bin} has no postgres.bki in {', '.join(filter(None, candidates))}"
        )
    tree.add_all(os.path.normpath(shares[0]), skip=("doc", "man", "*.po", "*.mo"))
    return list(dict.fromkeys(modules))


def _python(tree: GuestTree) -> tuple[str, list[str]]:
    """Copy this interpreter and its standard library. Return (its path, extension modules)."""
    program = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    interpreter = tree.add(program)
    library = os.path.join(sys.base_prefix, sys.platlibdir, f"python{sysconfig.get_python_version()}")
    directories = {sysconfig.get_path("stdlib"), os.path.dirname(os.__file__), library}
    extensions: list[str] = []
    prefix = os.path.realpath(sys.base_prefix)
    for directory in sorted(
        directory for directory in directories if os.path.isdir(directory) and os.path.realpath(directory).startswith(prefix)
    ):
        extensions += [path for path in tree.add_all(directory, skip=_NO_PYTHON) if path.endswith(".so")]
    return interpreter, list(dict.fromkeys(extensions))


def _system(tree: GuestTree, installation: Installation, user: str) -> None:
    """Create accounts, mount points, time zones and the locale."""
    for path in ("/bin", "/sbin", "/proc", "/sys", "/dev", "/run", "/mnt", "/home", "/var/lib"):
        tree.make(path)
    tree.make("/root", 0o700)
    for path in ("/tmp", "/var/tmp"):
        tree.make(path, 0o1777)
    entry = pwd.getpwnam(user)
    accounts = ["root:x:0:0:root:/root:/bin/sh\n", *([f"{user}:x:{entry.pw_uid}:{entry.pw_gid}::/tmp:/bin/sh\n"] if entry.pw_uid else [])]
    groups = ["root:x:0:\n", *([f"{grp.getgrgid(entry.pw_gid).gr_name}:x:{entry.pw_gid}:\n"] if entry.pw_gid else [])]
    tree.write("/etc/passwd", "".join(accounts))
    tree.write("/etc/group", "".join(groups))
    tree.write("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
    tree.write("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
    if os.path.isdir("/usr/share/zoneinfo"):
        tree.add_all("/usr/share/zoneinfo", skip=("posix", "right", "*.tab", "leap*"))
    if os.path.isdir("/usr/lib/locale/C.utf8"):
        tree.add_all("/usr/lib/locale/C.utf8")


def _add_pgherd_files(tree: GuestTree, node: Node, interpreter: str) -> None:
    """Add process 1, the agent, and busybox programs for those that the image lacks."""
    tree.make(f"{initramfs.HOME}/bin")
    program = tree.add(busybox())
    for name in node.run(Command([program, "--list"]), timeout=10).out.split():
        tree.link(f"{initramfs.HOME}/bin/{name}", program)
    tree.write(f"{initramfs.HOME}/init", initramfs.INIT, 0o755)
    tree.write(f"{initramfs.HOME}/interpreter", f"{interpreter}\n")
    for file in AGENT_FILES:
        # Compiling it in the guest takes a second on an emulated processor.
        py_compile.compile(
            str(file),
            cfile=f"{tree.root}{initramfs.HOME}/{file.stem}.pyc",
            dfile=f"{initramfs.HOME}/{file.name}",
            doraise=True,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        tree.sources[str(file)] = (str(file), file.stat().st_size, file.stat().st_mtime_ns)


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"/usr/bin:/bin:/usr/sbin:/sbin:{os.environ.get('PATH', '')}")


def _tool(name: str) -> str:
    path = _which(name)
    if path is None:
        raise CapabilityError(f"{name} is missing (guests need it); install util-linux")
    return path


def _is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def _identity(installation: Installation, user: str, extra: Sequence[str]) -> str:
    """Return a digest of the request for an image. Later changes of its files are detected by their times."""
    entry = pwd.getpwnam(user)
    interpreter = (os.path.realpath(sys.executable), sys.version)
    request = [SCHEMA, installation.bin, installation.build, [user, entry.pw_uid, entry.pw_gid], interpreter, initramfs.INIT, sorted(extra)]
    return hashlib.sha256(json.dumps(request).encode()).hexdigest()[:12]


def _read(directory: Path, *, current: bool = True) -> RootImage | None:
    """Return the finished image of a cache directory, and with ``current`` only if all its source files are unchanged."""
    try:
        manifest = json.loads((directory / "image.json").read_text())
        if manifest["schema"] != SCHEMA or not (directory / "root.ext4").is_file():
            return None
        image = RootImage(**{**manifest["image"], "path": str(directory / "root.ext4"), "built": False})
        if current:
            for path, size, changed in manifest["sources"]:
                status = os.stat(path)
                if (status.st_size, status.st_mtime_ns) != (size, changed):
                    return None
    except (OSError, ValueError, KeyError, TypeError):
        return None  # missing, changed, or of another version: it is built again
    return image
