"""The pg_balloon extension: built for an installation, cached, loaded into a private server, and its status in any running server.

Example::

    library = ensure_balloon(node, installation, cache_dir)         # built once per PostgreSQL build and state of the sources
    server = server.model_copy(update={"settings": with_balloon(server.settings, library, {"enabled": "on"})})
    ...                                                             # deploy: the settings are sufficient to load the extension
    create_functions(node, installation, library, conninfo)         # only for pg_balloon_status(), in a database of pgherd

PostgreSQL's directories are left unchanged. ``dynamic_library_path``, which every version has, lists the directory of the
library before ``$libdir``. ``shared_preload_libraries = 'pg_balloon'``, the background worker and the functions therefore
find the library by its plain name. PostgreSQL 18 also finds the control file in another directory
(``extension_control_path``), so CREATE EXTENSION works there. In older versions a script creates the functions, and they
belong to no extension.
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
from typing import Any

from pgherd.host.paths import unreachable
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.units import format_bytes
from pgherd.node.protocol import Command, Node
from pgherd.postgres import external_server
from pgherd.postgres.installations import Installation, user_for

# ---- library


NAME = "pg_balloon"
_SHIPPED = ("Makefile", f"{NAME}.control", f"{NAME}--1.0.sql", "src")
_FLAGS = "-O2 -fno-strict-aliasing -fwrapv -fexcess-precision=standard -fPIC -Wall -Werror=implicit -Werror=incompatible-pointer-types"
"""Flags that PostgreSQL's code requires.

pg_config's CFLAGS are not used, because they may contain options that this compiler lacks. The ABI follows from the headers.
"""
_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class BalloonLibrary:
    """Built pg_balloon library.

    ``directory`` contains ``pg_balloon.so``, ``functions.sql`` and ``extension/``. ``version`` is PostgreSQL's version and
    ``source`` the digest of the sources. ``settings`` load the library, which has no effect until ``pg_balloon.enabled``.
    """

    directory: str
    version: str
    major: int
    source: str
    built: bool = field(default=False, compare=False)
    """True if this call built it, False if it was in the cache."""

    @property
    def library(self) -> str:
        """Path of the shared object."""
        return os.path.join(self.directory, f"{NAME}.so")

    @property
    def sql(self) -> str:
        """Path of the psql script that creates the functions and the view in one database."""
        return os.path.join(self.directory, "functions.sql")

    @property
    def settings(self) -> dict[str, str]:
        """Settings that load it. Use ``with_balloon`` to add them to other settings."""
        settings = {"shared_preload_libraries": NAME, "dynamic_library_path": f"{self.directory}:$libdir"}
        if self.major >= 18:
            settings["extension_control_path"] = f"{self.directory}:$system"
        return settings


def with_balloon(settings: Mapping[str, str], library: BalloonLibrary, options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Add the library to a server's settings and to the libraries that it preloads.

    ``options`` are settings of the extension without their prefix ``pg_balloon.``: ``{"enabled": "on"}``.
    """
    merged = dict(settings)
    for name, value in library.settings.items():
        previous = merged.get(name, "")
        separator = "," if name == "shared_preload_libraries" else ":"
        parts = [part.strip() for part in previous.split(separator) if part.strip()]
        if name != "shared_preload_libraries":  # this directory first, then the previous value in place of the default
            merged[name] = separator.join([library.directory, *(part for part in parts if part != library.directory)]) if parts else value
        else:
            merged[name] = separator.join([*(part for part in parts if part != NAME), NAME])
    return merged | {f"{NAME}.{name}": value for name, value in (options or {}).items()}


def source_dir() -> Path:
    """Return the directory of the extension's sources: in the installed package, or next to ``src`` in a checkout.

    Raises:
        CapabilityError: Both directories are missing.
    """
    packaged = Path(str(files("pgherd"))) / "extension" / NAME
    for directory in (packaged, Path(__file__).parents[3] / "extension" / NAME):
        if (directory / "Makefile").exists():
            return directory
    raise CapabilityError(f"the sources of {NAME} are missing from {packaged}; reinstall pgherd")


def sources(directory: Path | None = None) -> dict[str, bytes]:
    """Return the contents of the library's source files by their path relative to the extension."""
    root = directory or source_dir()
    contents: dict[str, bytes] = {}
    for name in _SHIPPED:
        path = root / name
        files_of_name = [path] if path.is_file() else sorted([*path.glob("*.c"), *path.glob("*.h")])
        contents.update({str(file.relative_to(root)): file.read_bytes() for file in files_of_name})
    return contents


def digest(content: Mapping[str, bytes]) -> str:
    """Return twelve hexadecimal digits that change with the sources and the compiler flags."""
    total = hashlib.sha256(_FLAGS.encode())
    for name, data in sorted(content.items()):
        total.update(f"\0{name}\0{len(data)}\0".encode() + data)
    return total.hexdigest()[:12]


def home_of(node: Node, installation: Installation, cache_dir: str, source: str) -> str:
    """Return the library's directory in the cache: version, hash of the server program, digest of the sources.

    The hash is needed because builds of one version may differ in memory layout (assertions, block size).
    """
    server = hashlib.sha256(node.read(installation.tool("postgres"))).hexdigest()[:12]
    return os.path.join(cache_dir, NAME, f"{installation.version}-{server}-{source}")


def find_balloon(node: Node, installation: Installation, cache_dir: str) -> BalloonLibrary | None:
    """Return the cached library, or None if it was not built from the current sources."""
    source = digest(sources())
    library = BalloonLibrary(home_of(node, installation, cache_dir, source), installation.version, installation.major, source)
    return library if node.exists(library.library) else None


def missing_to_build(node: Node, installation: Installation) -> str:
    """Describe the first missing build requirement and its package. Return '' if the library can be built."""
    package = f"postgresql-server-dev-{installation.major} on Debian, postgresql{installation.major}-devel on Fedora"
    where = f"PostgreSQL {installation.version} in {installation.bin}"
    if user_for(installation.tool("pg_config")) is not None:
        return f"other users can exchange the programs of {where}, and root would run them: use an installation of root"
    reported = _output(node, installation.tool("pg_config"), "--version")
    if reported is None:
        return f"{where} has no pg_config: install {package}"
    match = re.search(r"\d+", reported)
    if match is None or int(match[0]) != installation.major:
        return f"{installation.tool('pg_config')} reports {reported}, but the server is version {installation.version}: install {package}"
    include, pgxs = (_output(node, installation.tool("pg_config"), option) for option in ("--includedir-server", "--pgxs"))
    if not include or not node.exists(os.path.join(include, "storage", "buf_internals.h")):
        return f"{where} has no server headers in {include or '(unknown)'}: install {package}"
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
    content: Mapping[str, bytes] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> BalloonLibrary:
    """Return the library for this installation. Build it (5 to 10 s) unless it is in the cache.

    Args:
        account: User that servers run as. It must be able to read the library.
        again: Rebuild the library even if it is in the cache.
        content: Source files by their path (None: those shipped).
        say: Callback for progress lines.

    Raises:
        CapabilityError: Headers, make or a compiler are missing (the message names the package), the compilation fails,
            or the account cannot enter the cache.
    """
    content = sources() if content is None else content
    source = digest(content)
    home = home_of(node, installation, cache_dir, source)
    cached = BalloonLibrary(home, installation.version, installation.major, source)
    if node.exists(cached.library) and not again:
        _require_readable(home, account)
        return cached
    if requirement := missing_to_build(node, installation):
        raise CapabilityError(f"{NAME} cannot be built: {requirement}")
    node.make_dir(os.path.dirname(home), mode=0o755)
    _require_readable(os.path.dirname(home), account)
    say(f"building {NAME} for PostgreSQL {installation.version}")
    unfinished = os.path.join(os.path.dirname(home), f".unfinished-{uuid.uuid4().hex[:12]}")
    try:
        result = _build(node, installation, content, unfinished)
        if again:
            node.remove_tree(home)
        moved = node.run(Command(["mv", "-T", "--", result, home]))
        if moved.code != 0 and not node.exists(cached.library):  # if it exists, another pgherd built the same files first
            raise CapabilityError(f"{NAME} cannot be moved to {home}: {moved.err.strip()}")
    finally:
        node.remove_tree(unfinished)
    return BalloonLibrary(home, installation.version, installation.major, source, built=True)


def create_functions(node: Node, installation: Installation, library: BalloonLibrary, conninfo: str) -> None:
    """Create pg_balloon's functions and view in one database, which must belong to pgherd, unless they exist.

    Raises:
        TrialError: PostgreSQL reports an error. The message contains it.
    """
    if node.sql(conninfo, "SELECT 1 FROM pg_proc WHERE proname = 'pg_balloon_status'"):
        return
    argv = [installation.tool("psql"), "-X", "-q", "-w", "-v", "ON_ERROR_STOP=1", "--single-transaction", "-d", conninfo, "-f", library.sql]
    psql = node.run(Command(argv, env={"PGOPTIONS": "-c default_transaction_read_only=off"}))  # it may be on in the server's settings
    if psql.code != 0:
        raise TrialError(f"the functions of {NAME} cannot be created: {psql.err.strip()}")


def script(sql: str) -> str:
    r"""Convert the extension's script for psql: remove its ``\quit`` guard, and use the library's plain name."""
    lines = [line for line in sql.splitlines() if not line.startswith("\\")]
    return "\n".join(lines).replace("MODULE_PATHNAME", NAME) + "\n"


def _build(node: Node, installation: Installation, content: Mapping[str, bytes], directory: str) -> str:
    """Compile below ``directory`` and return the directory of the files to keep."""
    tree, result = os.path.join(directory, "build"), os.path.join(directory, "result")
    node.make_dir(os.path.join(tree, "src"), mode=0o700)
    for name, data in content.items():
        node.write(os.path.join(tree, name), data)
    argv = ["make", "-C", tree, f"PG_CONFIG={installation.tool('pg_config')}", f"CC={_compiler(node)}", f"CFLAGS={_FLAGS}", "all"]
    make = node.run(Command(argv), timeout=300)
    if make.code != 0:
        errors = [line for line in make.err.splitlines() if "error" in line.lower()] or make.err.strip().splitlines()[-3:]
        raise CapabilityError(
            f"{NAME} does not compile against PostgreSQL {installation.version} in {installation.bin}: {'; '.join(errors[:3])}"
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
        completed = node.run(Command(argv))
        if completed.code != 0:
            raise CapabilityError(f"{NAME} cannot be copied to {result}: {completed.err.strip()}")
    return result


def _require_readable(directory: str, account: str | None) -> None:
    blocked = unreachable(directory, account)
    if blocked is not None:
        raise CapabilityError(
            f"servers run as '{account}', which cannot enter {blocked} to load {NAME}; set XDG_CACHE_HOME to a directory that it can enter"
        )


def _compiler(node: Node) -> str | None:
    return next((name for name in _COMPILERS if _output(node, name, "--version") is not None), None)


def _output(node: Node, *argv: str) -> str | None:
    """Return a program's output, or None if the program is missing or fails."""
    try:
        completed = node.run(Command(argv), timeout=20)
    except (OSError, TimeoutError):
        return None
    return completed.out.strip() if completed.code == 0 else None


# ---- status in a running server


_LOADED = "SELECT setting FROM pg_settings WHERE name = 'pg_balloon.enabled'"
_SCHEMA = """SELECT n.nspname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace JOIN pg_language l ON l.oid = p.prolang
WHERE l.lanname = 'c' AND p.proname IN ('pg_balloon_status', 'pg_balloon_counters') AND p.prosrc = p.proname AND p.pronargs = 0
GROUP BY n.nspname HAVING count(*) = 2"""
"""Schema of the extension's functions. Any role may create functions of these names, but only a superuser creates one in C."""


@dataclass(frozen=True)
class BalloonStatus:
    """State of a server's balloon.

    ``status`` is the row of pg_balloon_status() and ``counters`` the row of pg_balloon_counters(). Both are empty if
    ``advice`` describes a missing requirement.
    """

    dsn: str
    version: str
    loaded: bool
    enabled: bool = False
    status: dict[str, Any] = field(default_factory=dict)
    counters: dict[str, Any] = field(default_factory=dict)
    advice: str = ""

    def document(self) -> dict[str, Any]:
        """Return plain data for --json."""
        return {
            "server": self.dsn,
            "version": self.version,
            "loaded": self.loaded,
            "enabled": self.enabled,
            "status": self.status or None,
            "counters": self.counters or None,
            "advice": self.advice or None,
        }

    def lines(self) -> list[tuple[str, str]]:
        """Return (name, text) pairs for the terminal."""
        row = self.status
        if not row.get("usable"):
            return [("server", f"PostgreSQL {self.version}"), ("balloon", f"cannot be used: {row.get('unusable_reason')}")]
        share = row["ballooned_bytes"] / row["shared_buffers_bytes"] if row["shared_buffers_bytes"] else 0.0
        target = "" if row["target_bytes"] is None else f", kept at {format_bytes(row['target_bytes'])} by pg_balloon.target"
        resident = "unknown" if row["resident_bytes"] is None else format_bytes(row["resident_bytes"])
        lines = [
            ("server", f"PostgreSQL {self.version}, worker {row['worker_pid'] or 'not running'}"),
            ("enabled", ("yes" if self.enabled else "no: set pg_balloon.enabled = on and reload") + target),
            ("pool", f"{format_bytes(row['shared_buffers_bytes'])}; in memory: {resident}"),
            (
                "balloon",
                f"{format_bytes(row['ballooned_bytes'])} ({share:.0%} of the pool); at most {format_bytes(row['ceiling_bytes'])}, and "
                f"{format_bytes(row['floor_bytes'])} always stay",
            ),
        ]
        if row["balloon_resident_bytes"]:
            lines.append(("stuck", f"{format_bytes(row['balloon_resident_bytes'])} of the balloon are still in memory"))
        if row["limit_bytes"] is not None:
            refaults = "unknown" if row["refaults_per_s"] is None else f"{row['refaults_per_s']:.0f}"
            lines += [
                ("working set", "unknown" if row["working_set_bytes"] is None else format_bytes(row["working_set_bytes"])),
                (
                    "memory",
                    f"{format_bytes(row['available_bytes'])} available of {format_bytes(row['limit_bytes'])} ({row['cgroup_path']})",
                ),
                (
                    "signals",
                    f"{row['source']}: {refaults} refaults/s, swap grows by {format_bytes(row['swap_out_bytes_per_s'])}/s, "
                    f"{row['misses_per_s']:.0f} misses/s" + (f" of {row['page_read_ms']:.3g} ms" if row["page_read_ms"] else ""),
                ),
            ]
        if row["state"]:
            lines.append(("now", row["state"]))
        if row["decision"]:
            lines.append(
                (
                    "last decision",
                    f"{row['decision']} {format_bytes(row['decision_bytes'])} at {row['decision_at']}: {row['decision_reason']}",
                )
            )
        if self.counters:
            taken = self.counters["inflated_unused"] + self.counters["inflated_clean"]
            lines.append(
                (
                    "since reset",
                    f"{taken:,} buffers given, {self.counters['deflated']:,} taken back, "
                    f"{self.counters['prefetched']:,} pages read back, {self.counters['buffers_written']:,} written",
                )
            )
        return lines


def read_status(dsn: str) -> BalloonStatus:
    """Read the balloon's state from the server at ``dsn``, as returned by ``external.normalize_dsn``.

    Raises:
        UsageError: The connection or a statement fails, the version is not supported, or the user lacks privileges.
    """
    from psycopg import sql

    version, (loaded, schemas) = external_server.ask(dsn, [_LOADED, _SCHEMA], option="DSN")
    if not loaded:
        advice = f"PostgreSQL {version} has not loaded pg_balloon; 'pgherd balloon build' prints the settings, which require a restart."
        return BalloonStatus(dsn, version, False, advice=advice)
    enabled = loaded[0]["setting"] == "on"
    if not schemas:
        advice = (
            f"pg_balloon is loaded and {'on' if enabled else 'off'}, but this database lacks its functions; name a database that has them, "
            "or create them: CREATE EXTENSION pg_balloon, or the script that 'pgherd balloon build' prints."
        )
        return BalloonStatus(dsn, version, True, enabled, advice=advice)
    schema = sql.Identifier(schemas[0]["nspname"])
    statements = [
        sql.SQL("SELECT * FROM {}.{}()").format(schema, sql.SQL(function)).as_string()
        for function in ("pg_balloon_status", "pg_balloon_counters")
    ]
    _, (status, counters) = external_server.ask(dsn, statements, option="DSN")
    return BalloonStatus(dsn, version, True, enabled, status[0], counters[0])
