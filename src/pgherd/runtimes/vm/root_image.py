"""Root image of a guest: PostgreSQL, a shell, Python and pgherd's agent, each at the same path as on the host.

One image serves all guests of an installation. They mount it read-only below a file system in memory. It is cached, and built again after a
change of any file in it.

``GuestTree`` is its directory tree: files of this machine at the same absolute paths, the shared libraries that programs need, and
generated files.
"""

from __future__ import annotations

import fnmatch
import grp
import hashlib
import json
import os
import pwd
import py_compile
import re
import shutil
import sys
import sysconfig
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pgherd.host.server_user import require_initdb
from pgherd.model.errors import CapabilityError
from pgherd.node.protocol import Command, Node
from pgherd.postgres.installations import Installation, library_dirs, user_for
from pgherd.runtimes.vm import initramfs
from pgherd.runtimes.vm.disk_image import make_file_system
from pgherd.runtimes.vm.initramfs import busybox
from pgherd.runtimes.vm.kernel import make_home

SCHEMA = "pgherd/root-image/2"
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
    """Return the user that servers run as in a guest: ``account``, or the current one. The agent runs as root.

    Raises:
        CapabilityError: the current uid has no entry among the users.
    """
    require_initdb(account)
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
    make_home(cache_dir)
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
    further = [
        path
        for extra_path in extra
        for path in (tree.add_all(extra_path, watched=True) if os.path.isdir(extra_path) else [tree.add(extra_path)])
    ]
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
            modules += [path for path in tree.add_all(directory, skip=_NO_MODULES, watched=True) if path.endswith(".so")]
    share_dir, pg_config = "", installation.tool("pg_config")
    if os.path.exists(pg_config):
        share_dir = node.run(Command([pg_config, "--sharedir"], user=user_for(pg_config)), timeout=10).out.strip()
    candidates = [share_dir, f"{prefix}/share", f"{prefix}/share/postgresql", f"/usr/share/postgresql/{installation.major}"]
    shares = [candidate for candidate in candidates if candidate and os.path.exists(f"{candidate}/postgres.bki")]
    if not shares:
        raise CapabilityError(
            f"PostgreSQL {installation.version} in {installation.bin} has no postgres.bki in {', '.join(filter(None, candidates))}"
        )
    tree.add_all(os.path.normpath(shares[0]), skip=("doc", "man", "*.po", "*.mo"), watched=True)
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


def _group_name(number: int) -> str:
    """Return the name of a group. Images of containers often have none for the group of an account."""
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return f"group{number}"


def _system(tree: GuestTree, installation: Installation, user: str) -> None:
    """Create accounts, mount points, the loader's list of libraries, time zones and the locale."""
    for path in ("/bin", "/sbin", "/proc", "/sys", "/dev", "/run", "/mnt", "/home", "/var/lib"):
        tree.make(path)
    tree.make("/root", 0o700)
    for path in ("/tmp", "/var/tmp"):  # noqa: S108 (the guest's own)
        tree.make(path, 0o1777)
    entry = pwd.getpwnam(user)
    accounts = ["root:x:0:0:root:/root:/bin/sh\n", *([f"{user}:x:{entry.pw_uid}:{entry.pw_gid}::/tmp:/bin/sh\n"] if entry.pw_uid else [])]
    groups = ["root:x:0:\n", *([f"{_group_name(entry.pw_gid)}:x:{entry.pw_gid}:\n"] if entry.pw_gid else [])]
    tree.write("/etc/passwd", "".join(accounts))
    tree.write("/etc/group", "".join(groups))
    tree.write("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
    tree.write("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
    if os.path.isfile("/etc/ld.so.cache"):  # without it libraries in directories of /etc/ld.so.conf are not found
        tree.write("/etc/ld.so.cache", Path("/etc/ld.so.cache").read_bytes())
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
    """Return the finished image of a cache directory, and with ``current`` only if this version made it and its sources are unchanged."""
    try:
        manifest = json.loads((directory / "image.json").read_text())
        if (current and manifest["schema"] != SCHEMA) or not (directory / "root.ext4").is_file():
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


_MAX_LINKS = 40
"""Limit of the kernel for one path (path_resolution(7))."""

Source = tuple[str, int, int]
"""File or watched directory of this machine in a tree: path, size in bytes, modification time in nanoseconds."""


class GuestTree:
    """Tree of copies below ``root``. Symbolic links in a path are copied as links, so that each path has the same target in the guest."""

    def __init__(self, root: Path) -> None:
        """``root`` is created if it does not exist."""
        self.root = root
        self.sources: dict[str, Source] = {}
        self._ways: dict[str, str] = {}
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)

    def add(self, path: str) -> str:
        """Copy a file, or make a directory, and return its path without links. Raises CapabilityError where it cannot be read."""
        real = self._way(path)
        if os.path.isdir(real):
            return real
        if real in self.sources:
            return real
        target = self._inside(real)
        try:
            shutil.copy2(real, target)  # keeps the time, because Python checks compiled files against the time of their source
            status = os.stat(real)
        except OSError as error:
            raise CapabilityError(f"{path} is needed in a guest and cannot be copied: {error.strerror or error}") from None
        target.chmod(0o755 if status.st_mode & 0o111 else 0o644)
        self.sources[real] = (real, status.st_size, status.st_mtime_ns)
        return real

    def add_all(self, directory: str, *, skip: Sequence[str] = (), watched: bool = False) -> list[str]:
        """Copy a directory with its contents, and return the paths of its files.

        ``skip`` are patterns of names to leave out. ``watched`` makes the directories sources too, so that a new file in them is noticed.
        """
        top = self._way(directory)
        copied: list[str] = []
        for directory_path, directories, files in os.walk(top):
            if watched:
                status = os.stat(directory_path)
                self.sources[directory_path] = (directory_path, status.st_size, status.st_mtime_ns)
            directories[:] = sorted(name for name in directories if not _skipped(name, skip))
            for name in sorted(directories):
                self._way(os.path.join(directory_path, name))
            for name in sorted(files):
                path = os.path.join(directory_path, name)
                if not _skipped(name, skip) and os.path.exists(path):
                    copied.append(self.add(path))
        return copied

    def write(self, path: str, text: str | bytes, mode: int = 0o644) -> None:
        """Create a file with this text."""
        target = self._inside(self._way(path))
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        target.chmod(mode)

    def link(self, path: str, to: str) -> None:
        """Create a symbolic link, unless the path exists."""
        self.make(os.path.dirname(path))
        target = self._inside(os.path.join(self._way(os.path.dirname(path)), os.path.basename(path)))
        if not os.path.lexists(target):
            target.symlink_to(to)

    def make(self, path: str, mode: int = 0o755) -> None:
        target = self._inside(self._way(path))
        target.mkdir(parents=True, exist_ok=True)
        target.chmod(mode)

    def size(self) -> tuple[int, int]:
        """Return (bytes in blocks of 4 kB, number of files) of the tree."""
        blocks = entries = 0
        for directory_path, directories, files in os.walk(self.root):
            entries += len(directories) + len(files)
            blocks += len(directories)
            for name in files:
                blocks += -(-os.lstat(os.path.join(directory_path, name)).st_size // 4096)
        return blocks * 4096, entries

    def _inside(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def _way(self, path: str, links: int = 0) -> str:
        """Create the directories and links of an absolute path, and return the path without links."""
        if path in ("", "/"):
            return "/"
        if path in self._ways:
            return self._ways[path]
        if links > _MAX_LINKS:
            raise CapabilityError(f"{path} has too many symbolic links")
        head, last = os.path.split(path.rstrip("/"))
        parent = self._way(head, links)
        self._make_dir(parent)
        resolved = step = os.path.join(parent, last)
        if last in (".", ".."):
            resolved = parent if last == "." else os.path.dirname(parent)
        elif os.path.islink(step):
            link_target = os.readlink(step)
            inside = self._inside(step)
            if not os.path.lexists(inside):
                inside.symlink_to(link_target)
            resolved = self._way(os.path.join(parent, link_target), links + 1)
        elif os.path.isdir(step):
            self._make_dir(step)
        self._ways[path] = resolved
        return resolved

    def _make_dir(self, path: str) -> None:
        """Create a directory that all users can enter, even if the umask forbids that."""
        directory = self._inside(path)
        if not directory.exists():
            directory.mkdir()
            directory.chmod(0o755)


def _skipped(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


_LDD_BATCH = 100
_FOUND = re.compile(r"^\t(?:\S.* => )?(/\S.*?) \(0x[0-9a-f]+\)$")
_MISSING = re.compile(r"^\t(\S+) => not found$")


@dataclass(frozen=True)
class LibraryDependencies:
    """Libraries that one file needs: paths found by the loader (which is one of them), and names that it does not find."""

    found: tuple[str, ...]
    missing: tuple[str, ...] = ()


def library_dependencies(node: Node, files: Sequence[str]) -> dict[str, LibraryDependencies]:
    """Return the direct and indirect libraries of each program or library, from ldd(1). A static one has none.

    Raises:
        CapabilityError: ldd is missing.
    """
    by_file: dict[str, LibraryDependencies] = {}
    for first in range(0, len(files), _LDD_BATCH):
        batch = files[first : first + _LDD_BATCH]
        try:
            output = node.run(Command(["ldd", *batch]), timeout=120).out
        except OSError as error:
            raise CapabilityError(f"ldd cannot be run ({error}), which lists the libraries of a guest's programs") from None
        by_file |= parse(output, batch)
    return by_file


def parse(text: str, files: Sequence[str]) -> dict[str, LibraryDependencies]:
    """Parse the output of ldd. With several files it prints a heading for each, with one file it prints none."""
    found: dict[str, list[str]] = {name: [] for name in files}
    missing: dict[str, list[str]] = {name: [] for name in files}
    current = files[0] if len(files) == 1 else ""
    for line in text.splitlines():
        if not line.startswith("\t"):
            current = line.removesuffix(":") if line.removesuffix(":") in found else current
        elif current and (match := _FOUND.match(line)):
            found[current].append(match[1])
        elif current and (match := _MISSING.match(line)):
            missing[current].append(match[1])
    return {name: LibraryDependencies(tuple(found[name]), tuple(missing[name])) for name in files}


def libraries(node: Node, programs: Sequence[str], modules: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return (paths of all libraries of the programs and loadable modules, modules that can be used).

    A module with a missing library is left out, because it cannot be loaded on this machine either.

    Raises:
        CapabilityError: a program's library is missing.
    """
    by_file = library_dependencies(node, [*programs, *modules])
    for program in programs:
        if by_file[program].missing:
            raise CapabilityError(f"{program} needs {', '.join(by_file[program].missing)}, which this machine lacks; repair its package")
    usable = [module for module in modules if not by_file[module].missing]
    paths = dict.fromkeys(path for name in (*programs, *usable) for path in by_file[name].found)
    return list(paths), usable
