"""Golden copies, clones and workloads for real, on the newest system PostgreSQL and on the embedded one."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from pgherd.host import processes
from pgherd.model.deployment import Database
from pgherd.model.errors import PgherdError, TrialError, UsageError
from pgherd.model.load import Script
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres.clones import clone, clone_all, drop_cache, prewarm, rehearsal
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, checksums_default, start_all, stop_all
from pgherd.postgres.settings import choose_settings
from pgherd.postgres.templates import Template, ensure, find, key_of, prune
from pgherd.workloads.pgbench import size_estimate
from pgherd.workloads.registry import loaders
from pgherd.workloads.user_script import dry_run, pace

_spec = importlib.util.spec_from_file_location("postgres_conftest", Path(__file__).parents[1] / "postgres/conftest.py")
assert _spec and _spec.loader
_shared = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_shared)
node, account, installation = _shared.node, _shared.account, _shared.installation


@dataclass(frozen=True)
class Made:
    """A template of pgbench's tables at scale 1, twice, with the cache that it lies in."""

    golden: Template
    cache: Path


@pytest.fixture(scope="module")
def cached(node: LocalNode, installation: Installation, account: str | None) -> Iterator[Made]:
    cache = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
    cache.chmod(0o755)
    contents = loaders(node, [Database(name="bench", scale=1), Database(name="twin", scale=1)], {})
    try:
        yield Made(ensure(node, installation, contents, account=account, cache_dir=str(cache), socket_dir=str(cache / "s")), cache)
    finally:
        shutil.rmtree(cache)


def load(node, installation: Installation, account: str | None, place: Path, *databases: Database, **options) -> Template:
    contents = loaders(node, databases, {})
    return ensure(node, installation, contents, account=account, cache_dir=str(place), socket_dir=str(place / "s"), **options)


def test_a_template_is_whole_stopped_and_the_accounts(cached: Made, node, installation: Installation, account: str | None) -> None:
    golden = cached.golden
    assert set(golden.databases) == {"bench", "twin"}
    assert all(size == pytest.approx(size_estimate(1), rel=0.02) for size in golden.databases.values())
    assert sum(golden.databases.values()) < golden.bytes < 200 * 2**20
    assert golden.checksums == checksums_default(installation.major)
    output = node.run(Command([installation.tool("pg_controldata"), golden.data_dir], user=None)).out
    assert [line.split(":")[1].strip() for line in output.splitlines() if line.startswith("Database cluster state")] == ["shut down"]
    assert not node.exists(f"{golden.data_dir}/postmaster.pid")
    assert Path(golden.data_dir).owner() == Path("/proc/self").owner()
    assert [name for name in node.listdir(str(cached.cache / "golden")) if name != ".locks"] == [golden.key]


def test_it_is_made_once(cached: Made, node, installation: Installation, account: str | None) -> None:
    messages: list[str] = []
    contents = loaders(node, [Database(name="bench", scale=1), Database(name="twin", workload="select-only", scale=1)], {})
    result = ensure(node, installation, contents, account=account, cache_dir=str(cached.cache), socket_dir="/nowhere", say=messages.append)
    assert (result, messages) == (cached.golden, [])
    assert find(node, installation, contents[:1], str(cached.cache)) is None


def test_three_clones_side_by_side_warm_and_equal(cached: Made, node, installation: Installation, account: str | None, place: Path) -> None:
    homes = [place / str(number) for number in range(3)]
    clone_all(node, [(cached.golden, str(home)) for home in homes], account)
    drop_cache(node, [str(home) for home in homes])
    chosen = choose_settings(major=installation.major, database_bytes=sum(cached.golden.databases.values()), clients=2)
    servers = [
        Instance(node, installation, str(home), str(place / f"s{number}"), account=account, name=f"db{number}")
        for number, home in enumerate(homes)
    ]
    for server in servers:
        server.write_settings(chosen.settings)
    try:
        start_all([(server, (), None) for server in servers])
        assert all(server.differing() == chosen.settings for server in servers)
        assert len({server.sql("SELECT system_identifier FROM pg_control_system()")[0] for server in servers}) == 1
        warm = servers[0]
        for database in ("bench", "twin"):
            finished = prewarm(warm, database)
            assert finished.method == "pg_prewarm"
            assert finished.bytes == pytest.approx(cached.golden.databases[database], rel=0.1)
        plan = "EXPLAIN (ANALYZE, BUFFERS, FORMAT json) SELECT sum(abalance) FROM pgbench_accounts"
        (top,) = warm.sql(plan, database="bench")[0][0]
        assert top["Plan"]["Shared Read Blocks"] == 0
        assert top["Plan"]["Shared Hit Blocks"] >= 1640
        warm.disconnect(["bench"])
    finally:
        stop_all(servers, "immediate", 10)


def test_a_written_clone_goes_back_to_fresh(cached: Made, node, installation: Installation, account: str | None, place: Path) -> None:
    home = place / "data"
    server = Instance(node, installation, str(home), str(place / "s"), account=account)
    for _ in range(2):
        clone(node, cached.golden, str(home), account)
        server.write_settings({"shared_buffers": "16MB"})
        try:
            server.start()
            server.wait_ready()
            assert server.sql("SELECT count(*) FROM pgbench_history", database="bench") == [(0,)]
            server.sql("INSERT INTO pgbench_history SELECT 1, 1, 1, 1 FROM generate_series(1, 100)", database="bench")
            server.disconnect(["bench"])
            server.kill()
        finally:
            server.stop("immediate", 5)


def test_prewarm_without_the_extension_scans(cached: Made, node, installation: Installation, account: str | None, place: Path) -> None:
    with rehearsal(node, cached.golden, installation, account=account, directory=str(place), socket_dir=str(place / "s")) as server:
        server.sql("DROP EXTENSION pg_prewarm", database="bench")
        finished = prewarm(server, "bench")
        assert finished.method == "sequential scans"
        assert finished.bytes > 13_000_000
    assert os.listdir(place) == ["s"], "a rehearsal leaves nothing but the socket directory"


def test_dry_runs(cached: Made, node, installation: Installation, account: str | None, place: Path) -> None:
    """Scripts that the account cannot read: they come in by standard input."""
    private = place / "private"
    private.mkdir(mode=0o700)
    good = "\\set aid random(1, 100000 * :scale)\nBEGIN;\nUPDATE pgbench_accounts SET abalance = 1 WHERE aid = :aid;\nEND;\n"
    bad = {
        "table.sql": ("SELECT 1;\n\nSELECT *\n FROM nope;\n", r"table\.sql:4: ERROR:  relation \"nope\" does not exist at 'FROM nope"),
        "unset.sql": ("SELECT 1;\nSELECT :nope;\n", r"unset\.sql:2: ERROR:  syntax error at or near \":\""),
        "meta.sql": ("SELECT 1;\n\\sett a 1\n", r"meta\.sql:2: invalid command"),
        "pipe.sql": ("\\startpipeline\nSELECT 1;\nSELECT 1/0;\n\\endpipeline\n", r"pipe\.sql:\d: ERROR:  division by zero"),
        "slow.sql": ("SELECT pg_sleep(30);\n", r"slow\.sql: one transaction takes longer than 1 s"),
    }
    (private / "good.sql").write_text(good)
    with rehearsal(node, cached.golden, installation, account=account, directory=str(place), socket_dir=str(place / "s")) as server:
        dry_run(server, "bench", [Script(source=str(private / "good.sql")), Script(source="builtin:tpcb-like")], scale=1)
        server.sql("SELECT 1")
        assert server.sql("SELECT count(*) FROM pgbench_accounts WHERE abalance = 1", database="bench")[0][0] >= 1
        server.disconnect(["bench"])
        (private / "once.sql").write_text("INSERT INTO pgbench_branches VALUES (99, 0);\n")
        once, sleep = Script(source=str(private / "once.sql")), Script(source=str(private / "sleep.sql"), weight=3)
        (private / "sleep.sql").write_text("SELECT pg_sleep(0.1);\n")
        settled = {"scale": 1, "protocol": "prepared", "read_only": False}
        assert 0.1 <= pace(server, "bench", [sleep], **settled) < 5
        assert pace(server, "bench", [sleep, once], **settled) is None, "it cannot be repeated"
        for name, (text, message) in bad.items():
            (private / name).write_text(text)
            with pytest.raises(UsageError, match=message):
                dry_run(server, "bench", [Script(source=str(private / name))], timeout=1.0 if name == "slow.sql" else 60.0)
        with pytest.raises(UsageError, match=r"--script .*nowhere\.sql cannot be read"):
            dry_run(server, "bench", [Script(source=str(place / "nowhere.sql"))])


INIT = """CREATE TABLE item AS SELECT generate_series(1, :scale * 100) AS id;
CREATE INDEX CONCURRENTLY ON item (id);
VACUUM item;
SELECT 'no output of this shows';
"""


def test_an_init_file_with_its_scale_outside_of_a_transaction(node, installation: Installation, account: str | None, place: Path) -> None:
    private = place / "private"
    private.mkdir(mode=0o700)
    (private / "init.sql").write_text(INIT)
    golden = load(node, installation, account, place, Database(workload="script", scale=3, init=str(private / "init.sql")))
    with rehearsal(node, golden, installation, account=account, directory=str(place), socket_dir=str(place / "s")) as server:
        assert server.sql("SELECT count(*) FROM item", database="bench") == [(300,)]
        server.disconnect(["bench"])


def test_data_that_an_init_file_reads_are_part_of_the_contents(node, installation: Installation, account: str | None, place: Path) -> None:
    (place / "init.sql").write_text("CREATE TABLE item (id int);\n\\copy item FROM ids.csv\n")
    (place / "ids.csv").write_text("1\n2\n")
    (place / "ids.csv").chmod(0o644)
    database = Database(workload="script", init=str(place / "init.sql"))
    golden = load(node, installation, account, place, database)
    with rehearsal(node, golden, installation, account=account, directory=str(place), socket_dir=str(place / "s")) as server:
        assert server.sql("SELECT sum(id) FROM item", database="bench") == [(3,)]
        server.disconnect(["bench"])
    assert find(node, installation, loaders(node, [database], {}), str(place)) == golden
    (place / "ids.csv").write_text("1\n20\n")
    assert find(node, installation, loaders(node, [database], {}), str(place)) is None


def test_an_error_in_an_init_file_names_its_line_and_leaves_nothing(node, installation: Installation, account, place: Path) -> None:
    init = place / "init.sql"
    init.write_text("CREATE TABLE a (x int);\n\nINSERT INTO a VALUES ('b');\n")
    with pytest.raises(
        UsageError, match=r"init\.sql:3: ERROR:  invalid input syntax for type integer: \"b\".*correct the --init-script file"
    ):
        load(node, installation, account, place, Database(workload="script", init=str(init)))
    assert [name for name in os.listdir(place / "golden") if name != ".locks"] == []


def test_an_init_file_that_ends_inside_a_transaction_is_refused(node, installation: Installation, account, place: Path) -> None:
    init = place / "init.sql"
    for text in (
        "CREATE TABLE a (x int);\nBEGIN;\nINSERT INTO a VALUES (1);\n",
        "CREATE TABLE a (x int);\n\\set AUTOCOMMIT off\nINSERT INTO a VALUES (1);\n",
    ):
        init.write_text(text)
        with pytest.raises(UsageError, match=r"--init-script .*init\.sql ends inside a transaction; add COMMIT"):
            load(node, installation, account, place, Database(workload="script", init=str(init)))
    assert [name for name in os.listdir(place / "golden") if name != ".locks"] == []
    init.write_text("\\set AUTOCOMMIT off\nCREATE TABLE a (x int);\nCOMMIT;\nBEGIN;\nSELECT 1;\n")
    assert load(node, installation, account, place, Database(workload="script", init=str(init))).databases["bench"] > 0


def test_checksums_are_a_choice_and_recorded(node, installation: Installation, account: str | None, place: Path) -> None:
    golden = load(node, installation, account, place, checksums=not checksums_default(installation.major))
    assert golden.checksums != checksums_default(installation.major)
    output = node.run(Command([installation.tool("pg_controldata"), golden.data_dir])).out
    version = int(next(line.split(":")[1] for line in output.splitlines() if line.startswith("Data page checksum version")))
    assert (version != 0) == golden.checksums


def test_two_builders_make_one(node, installation: Installation, account: str | None, place: Path) -> None:
    messages: list[str] = []
    collected: list[Template | Exception] = []

    def build(number: int) -> None:
        try:
            contents = loaders(node, [Database(scale=1)], {})
            sockets = str(place / f"s{number}")
            collected.append(
                ensure(LocalNode(), installation, contents, account=account, cache_dir=str(place), socket_dir=sockets, say=messages.append)
            )
        except PgherdError as error:
            collected.append(error)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(collected) == 2
    assert collected[0] == collected[1]
    assert len([message for message in messages if "creating a template" in message]) == 1


def test_torn_copies_are_discarded(node, installation: Installation, account: str | None, place: Path) -> None:
    contents = loaders(node, [Database(scale=1)], {})
    key = key_of(installation, contents, checksums_default(installation.major))
    parent = place / "golden"
    (parent / f".unfinished-{key}-01234567/data").mkdir(parents=True)
    (parent / key / "data").mkdir(parents=True)
    (parent / key / "golden.json").write_text(json.dumps({"schema": "pgherd/golden/1"}))
    golden = load(node, installation, account, place, Database(scale=1))
    assert golden.databases["bench"] > 0
    assert [name for name in os.listdir(parent) if name != ".locks"] == [key]


def test_a_loader_that_fails_is_told_with_its_words(node, installation: Installation, account: str | None, place: Path) -> None:
    class Failing(LocalNode):
        def run(self, command: Command, timeout: float = 60.0):
            if command.argv[0].endswith("pgbench"):
                command = Command([*command.argv[:-1], "no_such_database"], user=command.user)
            return super().run(command, timeout)

    with pytest.raises(TrialError, match=r"pgbench cannot load scale 1: .*no_such_database"):
        load(Failing(), installation, account, place, Database(scale=1))


BUILDER = """
import sys
from pgherd.model.deployment import Database
from pgherd.node.local import LocalNode
from pgherd.postgres.templates import ensure
from pgherd.postgres.installations import Installation
from pgherd.workloads.registry import loaders

bin_, version, major, place, account = sys.argv[1:]
node = LocalNode()
contents = loaders(node, [Database(workload="script", init=place + "/slow.sql")], {})
installation = Installation(bin_, version, int(major), "system")
ensure(node, installation, contents, account=account or None, cache_dir=place, socket_dir=place + "/s")
"""


def test_a_builder_that_is_killed_leaves_no_server_and_is_cleaned_up_after(node, installation, account: str | None, place: Path) -> None:
    (place / "slow.sql").write_text("SELECT pg_sleep(120);\n")
    argv = [sys.executable, "-c", BUILDER, installation.bin, installation.version, str(installation.major), str(place), account or ""]
    builder = subprocess.Popen(argv, cwd="/")
    try:
        assert processes.wait_until(lambda: _loading(node, place) is not None or builder.poll() is not None, 60)
        pid = _loading(node, place)
        assert pid is not None
        os.kill(builder.pid, signal.SIGKILL)
        builder.wait()
        assert processes.wait_until(lambda: processes.start_time(node, pid) is None, 30)
        # The lock went with its holder, so what it guarded is seen to be dead.
        assert processes.wait_until(lambda: len(prune(node, str(place))) == 1, 10)
        assert [name for name in os.listdir(place / "golden") if name != ".locks"] == []
    finally:
        builder.kill()
        builder.wait()


def _loading(node: LocalNode, place: Path) -> int | None:
    """Pid of the loading server once it serves."""
    for pid_file in place.glob("golden/.unfinished-*/data/postmaster.pid"):
        lines = pid_file.read_text().splitlines()
        if len(lines) >= 8 and lines[7].strip() == "ready":
            return int(lines[0])
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts servers as another user")
def test_sql_of_an_init_file_cannot_make_root_write_through_a_link(node, installation: Installation, account, place: Path) -> None:
    """The server that loads the data runs whatever it likes as its user, beside its data, too, and leaves a process behind."""
    victim, init = place / "victim", place / "init.sql"
    victim.write_text("kept")
    victim.chmod(0o600)
    attack = f"ln -s {victim} ../golden.json; ln -s {victim} victim; ln -s /etc secrets; setsid sleep 30 >/dev/null 2>&1 & true"
    init.write_text(f"CREATE TABLE a (x int);\nCOPY (SELECT 1) TO PROGRAM $$ {attack} $$;\n")
    golden = load(node, installation, account, place, Database(workload="script", init=str(init)))
    home = place / "home"
    clone(node, golden, str(home), account)
    assert victim.read_text() == "kept" and victim.owner() == "root" and Path("/etc").owner() == "root"
    assert {path.owner() for path in Path(golden.path).rglob("*") if not path.is_symlink()} == {"root"}
    assert home.owner() == account and os.readlink(home / "victim") == str(victim)
    server = Instance(node, installation, str(home), str(place / "s"), account=account)
    (home / "postgresql.conf").unlink()
    (home / "postgresql.conf").symlink_to(victim)
    server.write_settings({})
    start_all([(server, (), None)])
    stop_all([server])
    assert victim.read_text() == "kept"
