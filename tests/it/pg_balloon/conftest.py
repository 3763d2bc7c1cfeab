"""Real servers with pg_balloon: the extension built once for each PostgreSQL, a cluster made once for each, and a copy for each test."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, initdb

IT = Path(__file__).parents[1]


def _load(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


built_module = _load("pg_balloon_built", IT.parent / "extension/built.py")
further = _load("further_postgres", IT / "further_postgres.py")
asserting = _load("asserting_postgres", Path(__file__).with_name("asserting_postgres.py"))

NODE = LocalNode()
SETTINGS = {
    "shared_preload_libraries": "pg_balloon",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "fsync": "off",
    "autovacuum_naptime": "1s",
    "pg_balloon.min_buffers": "8MB",
    "pg_balloon.min_buffers_per_backend": "64kB",
}
PATIENCE = 60.0
DROP_ALL = """DO $$ DECLARE name regclass; BEGIN
    FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        EXECUTE format('DROP TABLE %s', name);
    END LOOP;
END $$"""
INJECTED = "-DPG_BALLOON_INJECTION"
FURTHER = [path for path in os.environ.get("PGHERD_TEST_POSTGRES", "").split(":") if path]
"""More bin directories to test with, as in PGHERD_TEST_POSTGRES=/opt/pg16/bin:/opt/pg17/bin."""


class Workshop:
    """The extension in private copies of installations, each made when it is first asked for, with a cluster beside it."""

    def __init__(self, account: str | None) -> None:
        self.account = account
        self.root = Path(tempfile.mkdtemp(prefix="pgherd-balloon-", dir="/tmp"))
        self.root.chmod(0o755)
        self._built: dict[tuple[str, str], Any] = {}

    def __call__(self, which: str | int, options: str = "") -> Any:
        """Built for the newest 'system' one, the 'embedded', an 'asserting' one, a major's, or a bin directory; skips if it cannot be."""
        try:
            return self._make(self._find(which), options)
        except (CapabilityError, further.NotToBeHad, asserting.NotToBeHad) as error:
            pytest.skip(f"PostgreSQL {which}: {error}")

    def _find(self, which: str | int) -> Installation:
        if isinstance(which, str) and which.startswith("asserting"):
            major = which.partition("-")[2]
            return installations.choose(NODE, asserting.bin_of(NODE, int(major) if major else None))
        if which in further.MAJORS:
            return installations.choose(NODE, further.bin_of(which))
        if isinstance(which, str) and which.startswith("/"):
            return installations.choose(NODE, which)
        found = [one for one in installations.find_all(NODE) if which in (one.kind, one.major)]
        if not found:
            raise CapabilityError("there is none here")
        return found[0]

    def _make(self, installation: Installation, options: str) -> Any:
        key = installation.bin, options
        if key not in self._built:
            root = self.root / str(len(self._built))
            root.mkdir(mode=0o755)
            self._built[key] = built_module.build(installation, root, options)
            if options == INJECTED:
                _hinder(Path(self._built[key].installation.bin), root)
        return self._built[key]

    def cluster(self, built: Any) -> Path:
        """A stopped cluster with checksums of pages, the extension, and what looks for damage; made once, to be copied."""
        home = Path(built.root, "cluster")
        if not home.exists():
            with tempfile.TemporaryDirectory(prefix="pgherd-test-", dir="/tmp") as place:
                os.chmod(place, 0o755)
                server = _instance(built, self.account, place)
                initdb(NODE, built.installation, server.data_dir, account=self.account, checksums=True)
                server.write_settings(SETTINGS)
                try:
                    server.start()
                    server.wait_ready()
                    for extension in ("pg_balloon", "amcheck", "pg_buffercache"):
                        Balloon(server).run(f"CREATE EXTENSION {extension}")
                finally:
                    server.stop()
                os.rename(server.data_dir, home)
        return home

    @contextlib.contextmanager
    def started(self, built: Any) -> Iterator[Balloon]:
        """A server with the extension in it and checksums of pages."""
        place = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
        place.chmod(0o755)
        server = _instance(built, self.account, str(place))
        try:
            subprocess.run(["cp", "-a", "--reflink=auto", "-T", self.cluster(built), server.data_dir], check=True)
            server.write_settings(SETTINGS)
            server.start()
            server.wait_ready()
            yield Balloon(server)
        finally:
            server.stop("immediate", 10)
            shutil.rmtree(place, ignore_errors=True)


def _instance(built: Any, account: str | None, place: str) -> Instance:
    return Instance(NODE, built.installation, f"{place}/data", f"{place}/s", account=account, name="balloon")


def _hinder(bin_: Path, root: Path) -> None:
    """Make the copy's server load hindrances.c, which looks for its files in ``root``."""
    library = root / "hindrances.so"
    source = Path(__file__).with_name("hindrances.c")
    flags = ["-shared", "-fPIC", "-O1", f'-DDIRECTORY="{root}"', str(source), "-o", str(library), "-ldl"]
    done = subprocess.run(["gcc", *flags], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library.chmod(0o755)
    (bin_ / "postgres").rename(bin_ / "postgres.real")
    (bin_ / "postgres").write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec "{bin_}/postgres.real" "$@"\n')
    (bin_ / "postgres").chmod(0o755)


class Balloon:
    """A server with the extension, and what tests ask of it."""

    def __init__(self, server: Instance) -> None:
        self.server = server
        self._crashes = 0

    def __call__(self, statement: str, *parameters: Any) -> Any:
        """The first column of the first row, on a connection of its own."""
        with psycopg.connect(self.server.conninfo(), autocommit=True) as connection:
            row = connection.execute(statement, parameters).fetchone()
            return row[0] if row else None

    def run(self, *statements: str, database: str = "postgres") -> None:
        with psycopg.connect(self.server.conninfo(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def status(self, column: str) -> Any:
        with psycopg.connect(self.server.conninfo(), autocommit=True) as connection:
            cursor = connection.execute("SELECT * FROM pg_balloon_status()")
            assert cursor.description
            return dict(zip([c.name for c in cursor.description], cursor.fetchone() or (), strict=True))[column]

    def write(self, others: Mapping[str, str] | None = None, **settings: str) -> None:
        """Change settings below pg_balloon., and others, in the file."""
        self.server.write_settings(SETTINGS | {f"pg_balloon.{name}": value for name, value in settings.items()} | dict(others or {}))

    def set(self, **settings: str) -> None:
        """Change settings below pg_balloon. and reload."""
        self.write(**settings)
        self.server.reload()

    def wait_until(self, done: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, self.server.log_tail(15)
            time.sleep(0.05)

    def back_in_use(self) -> None:
        """Wait until it serves again after a crash of one of its processes: at first it may not have noticed, and still answer."""
        self.wait_until(lambda: Path(self.server.log).read_text(errors="replace").count("; reinitializing") > self._crashes)
        self._crashes += 1

        def answers() -> bool:
            with contextlib.suppress(psycopg.Error):
                return bool(self("SELECT 1"))
            return False

        self.wait_until(answers)

    def sound(self) -> None:
        """No rule broken, no assertion failed, no page damaged; indexes hold what their tables hold."""
        assert self("SELECT pg_balloon_check()") == 0
        assert self("SELECT count(*) FROM pg_class, verify_heapam(oid::regclass) WHERE relkind = 'r' AND relpersistence = 'p'") == 0
        self.run("""
            SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = relam
            WHERE amname = 'btree' AND relkind = 'i' AND relpersistence = 'p'""")
        log = Path(self.server.log).read_text(errors="replace")
        for bad in ("PANIC", "TRAP", "no unpinned buffers", "invalid page", "checksum", "could not release memory"):
            assert bad not in log, self.server.log_tail(30)


@pytest.fixture(scope="session")
def account() -> str | None:
    return server_account()


@pytest.fixture(scope="session")
def workshop(account: str | None) -> Iterator[Workshop]:
    made = Workshop(account)
    yield made
    shutil.rmtree(made.root, ignore_errors=True)


ASSERTING = [
    pytest.param(which, marks=[pytest.mark.long, pytest.mark.timeout(3600)])
    for which in ("asserting", *(f"asserting-{major}" for major in asserting.SUITES))
]
"""Who is first must wait until it is built."""
FURTHER_MAJORS = [pytest.param(major, marks=pytest.mark.long) for major in further.MAJORS]


@pytest.fixture(scope="session", params=["system", "embedded", *FURTHER_MAJORS, *ASSERTING, *FURTHER])
def built(request: pytest.FixtureRequest, workshop: Workshop) -> Any:
    """The extension in a copy of the newest system installation, of the embedded one, and of those for the long check."""
    return workshop(request.param)


@pytest.fixture(scope="session", params=["system", pytest.param("embedded", marks=pytest.mark.long), *FURTHER_MAJORS])
def injected(request: pytest.FixtureRequest, workshop: Workshop) -> Any:
    """The extension with its points of injection, in a private copy whose server is also hindered while files say so (hindrances.c)."""
    return workshop(request.param, INJECTED)


@pytest.fixture
def started(workshop: Workshop) -> Callable[[Any], AbstractContextManager[Balloon]]:
    """Start a server of what was built."""
    return workshop.started


@pytest.fixture(scope="module")
def shared(built: Any, workshop: Workshop) -> Iterator[Balloon]:
    with workshop.started(built) as one:
        yield one


@pytest.fixture
def calm(shared: Balloon) -> Balloon:
    """A server for tests that leave it whole: it begins with no table, no buffer in the balloon, no other session, and counters at zero."""
    shared.set()
    shared.run(DROP_ALL, "SELECT pg_balloon_deflate(1024 * 1024 * 1024)", "SELECT pg_balloon_reset()")
    shared.server.disconnect()
    shared.wait_until(lambda: shared("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'") == 1)
    assert shared.status("ballooned_bytes") == 0
    return shared


@pytest.fixture
def balloon(built: Any, workshop: Workshop) -> Iterator[Balloon]:
    """A server of its own, for a test that may break it."""
    with workshop.started(built) as one:
        yield one


@pytest.fixture
def as_account(account: str | None) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program as the servers' account."""
    prefix: list[str] = []
    if account:
        prefix = ["setpriv", f"--reuid={account}", "--init-groups", f"--regid={pwd.getpwnam(account).pw_gid}", "--"]

    def run(argv: list[str], timeout: float = 280, **more: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*prefix, *argv], capture_output=True, text=True, timeout=timeout, **more)

    return run


@pytest.fixture
def own_place(account: str | None) -> Iterator[Path]:
    """An empty directory of the servers' account."""
    place = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
    place.chmod(0o755)
    if account:
        shutil.chown(place, account)
    yield place
    shutil.rmtree(place, ignore_errors=True)
