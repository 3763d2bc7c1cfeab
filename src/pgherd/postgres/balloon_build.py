"""pg_balloon built for an installation of PostgreSQL, kept in the cache, and how a private server gets it.

How another part of pgherd gives a server the balloon::

    library = ensure_balloon(node, installation, cache_dir)         # built once per PostgreSQL and state of the sources
    server = server.model_copy(update={"settings": with_balloon(server.settings, library, {"enabled": "on"})})
    ...                                                             # deploy; the settings are all that the server needs
    create_functions(node, installation, library, conninfo)         # only to ask pg_balloon_status(), in a database of ours

Nothing is installed into PostgreSQL's own directories. ``dynamic_library_path``, which every version has, names the
library's directory in front of ``$libdir``; so ``shared_preload_libraries = 'pg_balloon'``, the background worker and the
functions find it by its plain name. PostgreSQL 18 also finds the extension's control file outside its own directory
(``extension_control_path``), so that CREATE EXTENSION works there; before, the functions are made by the script, and belong to
no extension.
"""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from pgherd.host.paths import unreachable
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node.protocol import Command, Node
from pgherd.postgres.installations import Installation

NAME = "pg_balloon"
_SHIPPED = ("Makefile", f"{NAME}.control", f"{NAME}--1.0.sql", "src")
_FLAGS = "-O2 -fno-strict-aliasing -fwrapv -fexcess-precision=standard -fPIC -Wall -Werror=implicit -Werror=incompatible-pointer-types"
"""What PostgreSQL's code relies on. Its own CFLAGS may hold words that this compiler does not know; the ABI is in its headers."""
_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class BalloonLibrary:
    """A built library.

    ``directory`` holds ``pg_balloon.so``, ``functions.sql`` and ``extension/``; ``version`` is PostgreSQL's, ``source`` the
    digest of the sources. ``settings`` is what a server needs to load it; it changes nothing until ``pg_balloon.enabled``.
    """

    directory: str
    version: str
    major: int
    source: str
    built: bool = field(default=False, compare=False)
    """Just now, rather than found in the cache."""

    @property
    def library(self) -> str:
        """The shared object."""
        return os.path.join(self.directory, f"{NAME}.so")

    @property
    def sql(self) -> str:
        """The script that makes the functions and the view, to be run by psql in one database."""
        return os.path.join(self.directory, "functions.sql")

    @property
    def settings(self) -> dict[str, str]:
        """The settings that load it. For a server that has settings of its own, use ``with_balloon``."""
        found = {"shared_preload_libraries": NAME, "dynamic_library_path": f"{self.directory}:$libdir"}
        if self.major >= 18:
            found["extension_control_path"] = f"{self.directory}:$system"
        return found


def with_balloon(settings: Mapping[str, str], library: BalloonLibrary, own: Mapping[str, str] | None = None) -> dict[str, str]:
    """A server's settings with the library added to what it loads already.

    ``own`` are settings below ``pg_balloon.``, without that prefix: ``{"enabled": "on"}``.
    """
    merged = dict(settings)
    for name, value in library.settings.items():
        before = merged.get(name, "")
        separator = "," if name == "shared_preload_libraries" else ":"
        parts = [part.strip() for part in before.split(separator) if part.strip()]
        if name != "shared_preload_libraries":  # its own directory first, and what was there instead of the default
            merged[name] = separator.join([library.directory, *(part for part in parts if part != library.directory)]) if parts else value
        else:
            merged[name] = separator.join([*(part for part in parts if part != NAME), NAME])
    return merged | {f"{NAME}.{name}": value for name, value in (own or {}).items()}


def source_dir() -> Path:
    """Where the extension's sources are: in the installed package, or beside ``src`` in a checkout.

    Raises:
        CapabilityError: in neither.
    """
    packaged = Path(str(files("pgherd"))) / "extension" / NAME
    for place in (packaged, Path(__file__).parents[3] / "extension" / NAME):
        if (place / "Makefile").exists():
            return place
    raise CapabilityError(f"the sources of {NAME} are missing from {packaged}; install pgherd again")


def sources(place: Path | None = None) -> dict[str, bytes]:
    """What the library is made of: path relative to the extension → content."""
    root = place or source_dir()
    found: dict[str, bytes] = {}
    for name in _SHIPPED:
        path = root / name
        inside = [path] if path.is_file() else sorted([*path.glob("*.c"), *path.glob("*.h")])
        found.update({str(one.relative_to(root)): one.read_bytes() for one in inside})
    return found


def digest(content: Mapping[str, bytes]) -> str:
    """Twelve hexadecimal digits that change with any of the sources, or with how they are built."""
    total = hashlib.sha256(_FLAGS.encode())
    for name, data in sorted(content.items()):
        total.update(f"\0{name}\0{len(data)}\0".encode() + data)
    return total.hexdigest()[:12]


def home_of(node: Node, installation: Installation, cache_dir: str, source: str) -> str:
    """Where the library for this installation lies, or would: by version, the server's own bytes, and the sources' digest.

    Two builds of one version may differ in what decides the layout of memory (assertions, block size).
    """
    server = hashlib.sha256(node.read(installation.tool("postgres"))).hexdigest()[:12]
    return os.path.join(cache_dir, NAME, f"{installation.version}-{server}-{source}")


def find_balloon(node: Node, installation: Installation, cache_dir: str) -> BalloonLibrary | None:
    """The library, if it has been built from the sources as they are now."""
    source = digest(sources())
    made = BalloonLibrary(home_of(node, installation, cache_dir, source), installation.version, installation.major, source)
    return made if node.exists(made.library) else None


def missing(node: Node, installation: Installation) -> str:
    """What is missing for building it against this installation, and the package that has it; '' if nothing is."""
    package = f"postgresql-server-dev-{installation.major} on Debian, postgresql{installation.major}-devel on Fedora and its kin"
    where = f"PostgreSQL {installation.version} in {installation.bin}"
    told = _output(node, installation.tool("pg_config"), "--version")
    if told is None:
        return f"{where} has no pg_config: install {package}"
    match = re.search(r"\d+", told)
    if match is None or int(match[0]) != installation.major:
        return f"{installation.tool('pg_config')} says {told}, which is not the server's version: install {package}"
    include, pgxs = (_output(node, installation.tool("pg_config"), option) for option in ("--includedir-server", "--pgxs"))
    if not include or not node.exists(os.path.join(include, "storage", "buf_internals.h")):
        return f"{where} has no headers of the server in {include or '(unknown)'}: install {package}"
    if not pgxs or not node.exists(pgxs):
        return f"{where} has no makefiles for extensions (PGXS): install {package}"
    if _output(node, "make", "--version") is None:
        return "make is missing: install make"
    if _compiler(node) is None:
        return "a C compiler is missing: install gcc (on Debian also libc6-dev)"
    return ""


def ensure_balloon(
    node: Node,
    installation: Installation,
    cache_dir: str,
    *,
    account: str | None = None,
    again: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> BalloonLibrary:
    """The library for this installation, built now if it has not been (five to ten seconds), else from the cache.

    ``account`` is the one that servers run as, which must be able to read it. ``again`` builds it anew.

    Raises:
        CapabilityError: headers, make or a compiler are missing (the message names the package), it does not compile, or
            the account cannot enter the cache.
    """
    content = sources()
    source = digest(content)
    home = home_of(node, installation, cache_dir, source)
    made = BalloonLibrary(home, installation.version, installation.major, source)
    if node.exists(made.library) and not again:
        _insist_readable(home, account)
        return made
    if lacking := missing(node, installation):
        raise CapabilityError(f"{NAME} cannot be built: {lacking}")
    node.make_dir(os.path.dirname(home), mode=0o755)
    _insist_readable(os.path.dirname(home), account)
    say(f"building {NAME} for PostgreSQL {installation.version}")
    unfinished = os.path.join(os.path.dirname(home), f".unfinished-{uuid.uuid4().hex[:12]}")
    try:
        result = _build(node, installation, content, unfinished)
        if again:
            node.remove_tree(home)
        done = node.run(Command(["mv", "-T", "--", result, home]))
        if done.code != 0 and not node.exists(made.library):  # else another pgherd was faster, with the same files
            raise CapabilityError(f"{NAME} cannot be put into {home}: {done.err.strip()}")
    finally:
        node.remove_tree(unfinished)
    return BalloonLibrary(home, installation.version, installation.major, source, built=True)


def create_functions(node: Node, installation: Installation, library: BalloonLibrary, conninfo: str) -> None:
    """Make pg_balloon_status() and its kin in one database, which must be pgherd's own; nothing happens if they are there.

    Raises:
        TrialError: the server refuses; the message holds its words.
    """
    if node.sql(conninfo, "SELECT 1 FROM pg_proc WHERE proname = 'pg_balloon_status'"):
        return
    argv = [installation.tool("psql"), "-X", "-q", "-w", "-v", "ON_ERROR_STOP=1", "--single-transaction", "-d", conninfo, "-f", library.sql]
    done = node.run(Command(argv))
    if done.code != 0:
        raise TrialError(f"the functions of {NAME} cannot be made: {done.err.strip()}")


def script(sql: str) -> str:
    """The extension's script as psql takes it: its guard against that left out, and the library called by its plain name."""
    lines = [line for line in sql.splitlines() if not line.startswith("\\")]
    return "\n".join(lines).replace("MODULE_PATHNAME", NAME) + "\n"


def _build(node: Node, installation: Installation, content: Mapping[str, bytes], place: str) -> str:
    """Compile below ``place``; returns the directory with what is to be kept."""
    tree, result = os.path.join(place, "build"), os.path.join(place, "result")
    node.make_dir(os.path.join(tree, "src"), mode=0o700)
    for name, data in content.items():
        node.write(os.path.join(tree, name), data)
    argv = ["make", "-C", tree, f"PG_CONFIG={installation.tool('pg_config')}", f"CC={_compiler(node)}", f"CFLAGS={_FLAGS}", "all"]
    done = node.run(Command(argv), timeout=300)
    if done.code != 0:
        words = [line for line in done.err.splitlines() if "error" in line.lower()] or done.err.strip().splitlines()[-3:]
        raise CapabilityError(
            f"{NAME} does not compile against PostgreSQL {installation.version} in {installation.bin}: {'; '.join(words[:3])}"
        )
    extension = os.path.join(result, "extension")
    node.make_dir(extension, mode=0o755)
    for name in (f"{NAME}.control", f"{NAME}--1.0.sql"):
        node.write(os.path.join(extension, name), content[name])
    node.write(os.path.join(result, "functions.sql"), script(content[f"{NAME}--1.0.sql"].decode()).encode())
    for argv in (
        ["cp", "--", os.path.join(tree, f"{NAME}.so"), os.path.join(result, f"{NAME}.so")],
        ["chmod", "-R", "a+rX,go-w", result],
    ):
        done = node.run(Command(argv))
        if done.code != 0:
            raise CapabilityError(f"{NAME} cannot be kept in {result}: {done.err.strip()}")
    return result


def _insist_readable(directory: str, account: str | None) -> None:
    blocked = unreachable(directory, account)
    if blocked is not None:
        raise CapabilityError(
            f"servers run as '{account}', which cannot enter {blocked} to load {NAME}; set XDG_CACHE_HOME to a directory that it can enter"
        )


def _compiler(node: Node) -> str | None:
    return next((name for name in _COMPILERS if _output(node, name, "--version") is not None), None)


def _output(node: Node, *argv: str) -> str | None:
    """What a program says, or None if it is not there or fails."""
    try:
        done = node.run(Command(argv), timeout=20)
    except (OSError, TimeoutError):
        return None
    return done.out.strip() if done.code == 0 else None
