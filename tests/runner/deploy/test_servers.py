"""What is read of the servers after a trial, and that restarted ones begin without cached files."""

from __future__ import annotations

import signal
import threading
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from pgherd.host.cgroup_memory import OomVictim
from pgherd.host.server_cgroup import ServerCgroup
from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.errors import CapabilityError, LostServerError, TrialError, UsageError
from pgherd.model.load import Load, Phase
from pgherd.model.result import OomKill
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.postgres.external_server import LibpqAddress
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import WRITABLE
from pgherd.runner.deploy import servers as module
from pgherd.runner.deploy.servers import ExternalServers, MemoryKills, require_consistent, server_view, warm_all, with_victims
from pgherd.runtimes.runtime import ContainerHandle

KEY = ("theirs", "pg")


class Pretended:
    """Somebody's server; ``refuses`` those that let nobody in, ``gone`` those that answer no more."""

    major, pid, version = 17, 0, "17.1 (Debian 17.1-1)"
    refuses: set = set()  # noqa: RUF012
    gone: set = set()  # noqa: RUF012
    let_go: list = []  # noqa: RUF012
    writable: set = set()  # noqa: RUF012

    def __init__(self, node, dsn, *, name, passfile, account, allow_writes, query_timeout, direct):
        if dsn in self.refuses:
            raise UsageError(f"{dsn}: no connection")
        self.dsn, self.passfile, self.tried = dsn, passfile, []

    def address(self, *, writes):
        return LibpqAddress("h", 1, "u", "app", {} if writes else {"PGOPTIONS": "ro"}, conninfo="dbname=app sslmode=require")

    def require_read_only(self, bin_):
        if self.dsn in self.writable:
            raise UsageError("is not read-only")
        self.tried.append(bin_)

    def conninfo(self):
        return self.dsn

    def sql(self, statement):
        assert statement == "SHOW server_version"
        return [(self.version,)]

    def differing(self):
        if self.dsn in self.gone:
            raise psycopg.OperationalError("gone")
        return {"work_mem": "5MB"}

    def disconnect(self):
        self.let_go.append(self.dsn)


@pytest.fixture
def attached(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ExternalServer", Pretended)
    for name in ("refuses", "gone"):
        monkeypatch.setattr(Pretended, name, set())
    monkeypatch.setattr(Pretended, "let_go", [])
    return ExternalServers(SimpleNamespace(node=None, work=tmp_path, account=None))


def wanted(dsn="host=h"):
    server = Server(bin="/pg", version="17.1", dsn=dsn, databases=(Database(scale=4),))
    return {KEY: (Container(name="theirs", runtime="external", servers=(server,)), server)}


def test_the_way_there_is_read_only_unless_the_load_writes(attached):
    attached.attach(wanted())
    assert KEY in attached and ("other", "pg") not in attached
    for writes, environment in ((False, {"PGOPTIONS": "ro"}), (True, {})):
        reach = attached.endpoint(KEY, ContainerHandle("theirs"), "/usable", Database(scale=4), writes=writes)
        assert (reach.bin, reach.host, reach.port, reach.database, reach.user, reach.scale) == (
            *("/usable", "h", 1, "dbname=app sslmode=require", "u", 4),
        ), "all parameters, not only the name of the database"
        assert reach.environment == environment


def test_a_load_that_only_reads_starts_after_pgbench_was_tried(attached, monkeypatch):
    attached.attach(wanted())
    attached.endpoint(KEY, ContainerHandle("theirs"), "/usable", Database(scale=4), writes=True)
    assert attached[KEY].tried == []
    attached.endpoint(KEY, ContainerHandle("theirs"), "/usable", Database(scale=4), writes=False)
    assert attached[KEY].tried == ["/usable"]
    monkeypatch.setattr(Pretended, "writable", {"host=h"})
    with pytest.raises(UsageError, match="not read-only"):
        attached.endpoint(KEY, ContainerHandle("theirs"), "/usable", Database(scale=4), writes=False)


def test_what_is_seen_of_it_is_what_it_says(attached):
    assert attached.settings() is None
    attached.attach(wanted())
    (view,) = attached.views()
    assert (view.name, view.conninfo, view.major, view.pid) == ("theirs/pg", "host=h", 17, 0)
    assert attached.settings() == {"work_mem": "5MB"}
    Pretended.gone.add("host=h")
    assert attached.settings() is None


def test_one_that_never_was_there_ends_the_run_and_one_that_was_fails_a_trial(attached):
    Pretended.refuses.add("host=h")
    with pytest.raises(UsageError, match="no connection"):
        attached.attach(wanted())
    Pretended.refuses.clear()
    attached.attach(wanted())
    Pretended.refuses.add("host=h")
    attached.attach(wanted())
    assert KEY in attached and not attached.answers(KEY) and not attached.views()
    with pytest.raises(TrialError, match="no connection") as caught:
        reach(attached, KEY)
    assert not isinstance(caught.value, LostServerError), "no other server is left"


def test_one_that_was_upgraded_ends_a_resumed_run_and_fails_a_trial_of_a_running_one(attached, monkeypatch):
    monkeypatch.setattr(Pretended, "version", "17.2")
    with pytest.raises(UsageError, match=r"host=h is PostgreSQL 17\.2 now, but was 17\.1 before; start a new run"):
        attached.attach(wanted())
    assert KEY not in attached and Pretended.let_go == ["host=h"]
    monkeypatch.setattr(Pretended, "version", "17.1")
    attached.attach(wanted())
    monkeypatch.setattr(Pretended, "version", "17.2")
    attached.attach(wanted())
    with pytest.raises(TrialError, match=r"is PostgreSQL 17\.2 now"):
        reach(attached, KEY)


def reach(attached, key):
    return attached.endpoint(key, ContainerHandle("theirs"), "/usable", Database(scale=4), writes=True)


def test_a_lost_server_fails_only_the_trials_that_load_it(attached):
    other = ("other", "pg")
    both = wanted() | {other: wanted("host=o")[KEY]}
    attached.attach(both)
    Pretended.refuses.add("host=h")
    attached.attach(both)
    assert reach(attached, other).host == "h" and [view.name for view in attached.views()] == ["other/pg"]
    with pytest.raises(LostServerError, match="no connection"):
        reach(attached, KEY)
    Pretended.refuses.clear()
    attached.attach(both)
    assert reach(attached, KEY).host == "h", "it is back"


def test_a_cgroup_of_two_servers_is_neithers_and_without_a_named_one_a_server_is_lost(attached, monkeypatch):
    groups = {"pid:7": "/shared", "/own": "/own"}

    def resolve(node, text, option):
        if text not in groups:
            raise UsageError(f"{option} {text}: there is no such cgroup")
        return ServerCgroup(groups[text], {"v2": groups[text]}, cores=2)

    monkeypatch.setattr(module.server_cgroup, "resolve", resolve)
    monkeypatch.setattr(Pretended, "pid", 7)
    three = {}
    for name, cgroup in (("a", None), ("b", None), ("c", "/own")):
        ((container, server),) = wanted(f"host={name}").values()
        three[name, "pg"] = (container.model_copy(update={"name": name, "cgroup": cgroup}), server)
    attached.attach(three)
    assert list(attached.cgroups) == ["c"] and attached.readings() == {"container:c": {"cpu.limit": 2.0}}
    del groups["/own"]
    attached.attach(three)
    assert not attached.cgroups and not attached.answers(("c", "pg")) and reach(attached, ("a", "pg")).host == "h"
    with pytest.raises(LostServerError, match="cgroup of c: /own: there is no such cgroup"):
        reach(attached, ("c", "pg"))


def test_it_is_let_go(attached):
    attached.attach(wanted())
    attached.attach(wanted("host=other"))
    assert Pretended.let_go == ["host=h"] * 2 + ["host=other"], "once each after its version was read"
    attached.detach(KEY)
    attached.detach(KEY)
    assert Pretended.let_go == ["host=h"] * 2 + ["host=other"] * 2 and not attached.views()


HOST = LocalNode()


@pytest.fixture(autouse=True)
def built(monkeypatch):
    """What pgherd has built of the extension: nothing, unless a test says so."""
    monkeypatch.setattr(module.pg_balloon, "find_balloon", lambda node, installation, cache: None)


class ServerViewsPretended:
    installation = Installation("/pg", "18.1", 18, "system")
    pid = 4711
    access = None

    def __init__(self, answer):
        self.answer, self.asked, self.node = answer, [], None

    def conninfo(self, database):
        return f"dbname={database}"

    def sql(self, statement):
        self.asked.append(statement)
        if isinstance(self.answer, Exception):
            raise self.answer
        return [(self.answer,)]

    def disconnect(self, databases):
        self.asked.append("disconnect")


@pytest.mark.parametrize(
    ("settings", "answer", "remote"),
    [
        ({"shared_preload_libraries": "pg_balloon"}, True, True),
        ({"shared_preload_libraries": "'$libdir/pg_balloon', auto_explain"}, False, False),
        ({"shared_preload_libraries": "pg_balloon"}, psycopg.OperationalError("gone"), False),
    ],
)
def test_a_server_that_loads_the_balloon_is_asked(settings, answer, remote):
    instance = ServerViewsPretended(answer)
    view = server_view(HOST, "a/pg", instance, settings, "/cache")
    assert (view.name, view.conninfo, view.major, view.pid, view.balloon) == ("a/pg", "dbname=postgres", 18, 4711, remote)
    assert instance.asked[-1] == "disconnect"


def test_any_other_is_not_asked():
    instance = ServerViewsPretended(True)
    assert not server_view(HOST, "a/pg", instance, {"shared_buffers": "1GB"}, "/cache").balloon
    assert instance.asked == []


def test_missing_functions_are_made(monkeypatch):
    instance, created = ServerViewsPretended(False), []

    def create(node, installation, library, conninfo):
        created.append((node, library, conninfo))
        instance.answer = True

    monkeypatch.setattr(module.pg_balloon, "find_balloon", lambda node, installation, cache: f"{cache}/lib")
    monkeypatch.setattr(module.pg_balloon, "create_functions", create)
    assert server_view(HOST, "a/pg", instance, {"shared_preload_libraries": "pg_balloon"}, "/cache").balloon
    assert created == [(HOST, "/cache/lib", "dbname=postgres")], "from the host, even for a server in a guest"


def test_functions_that_cannot_be_made_are_done_without(monkeypatch):
    def create(*_):
        raise CapabilityError("no")

    monkeypatch.setattr(module.pg_balloon, "find_balloon", lambda node, installation, cache: "lib")
    monkeypatch.setattr(module.pg_balloon, "create_functions", create)
    assert not server_view(HOST, "a/pg", ServerViewsPretended(False), {"shared_preload_libraries": "pg_balloon"}, "/cache").balloon


class Vacuumed:
    """A server whose autovacuum has run so often, or that does not answer."""

    def __init__(self, runs):
        self.runs, self.closed = runs, []

    def sql(self, statement, *, database):
        if self.runs is None:
            raise psycopg.OperationalError("gone")
        return [(self.runs,)]

    def disconnect(self, databases=()):
        self.closed += databases


def test_autovacuum_is_counted_of_idle_servers_between_two_readings():
    containers = tuple(
        Container(name=name, servers=(Server(bin="/pg", version="18.1", databases=(Database(name="x"), Database(name="y"))),))
        for name in ("a", "b", "busy")
    )
    trial = Trial(point={}, deployment=Deployment(hosts=(Host(containers=containers),)), phases=(), quiet=("a", "b"))
    instances = {("a", "pg"): Vacuumed(3), ("b", "pg"): Vacuumed(1), ("busy", "pg"): Vacuumed(9)}
    before = module.autovacuum_runs(trial, instances)
    assert before == {"server:a/pg": {"autovacuum.runs": 6}, "server:b/pg": {"autovacuum.runs": 2}}, "of both databases"
    assert instances["a", "pg"].closed == ["x", "y"] and instances["busy", "pg"].closed == [], "an idle server has no session"
    instances["a", "pg"].runs, instances["b", "pg"].runs = 5, None
    assert module.increase(module.autovacuum_runs(trial, instances), before) == {"server:a/pg": {"autovacuum.runs": 4}}
    assert module.autovacuum_runs(trial.model_copy(update={"quiet": ()}), instances) == module.autovacuum_runs(None, instances) == {}


def test_a_guests_pid_means_nothing_on_the_host():
    instance = ServerViewsPretended(False)
    instance.access = object()
    assert server_view(HOST, "a/pg", instance, {}, "/cache").pid == 0


class Node:
    def __init__(self):
        self.ran, self.left = [], []

    def run(self, command, timeout=60.0):
        self.ran.append(list(command.argv))

    def disconnect(self, conninfo):
        self.left.append(conninfo)


class Instance:
    data_dir = "/data"

    def __init__(self, rows=((100, 60, 120, 8192),), broken=False):
        self.rows, self.broken, self.said = list(rows), broken, []

    def sql(self, statement, parameters=(), *, database="postgres"):
        self.said.append((database, statement))
        if self.broken:
            raise psycopg.errors.UndefinedFile("no such extension")
        return self.rows

    def conninfo(self, database="postgres"):
        return f"dbname={database}"


@pytest.fixture
def trial():
    server = Server(bin="/b", version="18", databases=(Database(),))
    deployed = Deployment(hosts=(Host(containers=(Container(name="db01", servers=(server,)),)),))
    return Trial(point={"x": 1}, deployment=deployed, phases=(Phase(loads={"local/db01/pg/bench": Load()}),), final_readings=("buffers",))


def test_buffers_of_each_server(trial):
    node, instance = Node(), Instance()
    result = module.buffer_readings(node, trial, {("db01", "pg"): instance})
    assert result == {"server:db01/pg": {"buffers.used": 819200.0, "buffers.reused": 491520.0, "buffers.filled": 983040.0}}
    assert {database for database, _ in instance.said} == {"postgres"}, "the workload's own database stays as it was"
    assert instance.said[0][1] == WRITABLE, "transactions may be read-only by default"
    assert node.left


def test_nothing_is_asked_unless_the_trial_wants_it(trial):
    instance = Instance()
    assert module.buffer_readings(Node(), trial.model_copy(update={"final_readings": ()}), {("db01", "pg"): instance}) == {}
    assert module.buffer_readings(Node(), None, {("db01", "pg"): instance}) == {}
    assert instance.said == []


def test_a_server_that_cannot_say_costs_no_trial(trial):
    assert module.buffer_readings(Node(), trial, {("db01", "pg"): Instance(broken=True)}) == {}


def test_readings_of_several_kinds_go_together():
    assert module.merge_readings({"a": {"x": 1.0}}, {"a": {"y": 2.0}, "b": {"z": 3.0}}) == {"a": {"x": 1.0, "y": 2.0}, "b": {"z": 3.0}}


PATIENCE = 60.0


def nobody():
    """Calls nothing off."""


class WarmedServer:
    """Answers whoever waits for it once it is told to shut down."""

    def __init__(self, reached=True):
        self.modes, self.down, self.reached = [], threading.Event(), reached

    def signal_stop(self, mode):
        self.modes.append(mode)
        self.down.set()
        if not self.reached:
            raise OSError("the guest does not answer")


@pytest.fixture
def interruptible():
    """Whoever runs the tests may ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_all_are_warmed_side_by_side():
    servers, together = {("a", "pg"): WarmedServer(), ("b", "pg"): WarmedServer()}, threading.Barrier(2, timeout=PATIENCE)
    warmed = []
    warm_all(servers, lambda key: warmed.append((key, together.wait())), nobody)
    assert sorted(key for key, _ in warmed) == sorted(servers) and not any(server.modes for server in servers.values())


def test_one_that_fails_is_told_once_the_others_are_warm():
    servers, failed, warmed = {("a", "pg"): WarmedServer(), ("b", "pg"): WarmedServer()}, threading.Event(), []

    def warm(key):
        if key == ("a", "pg"):
            failed.set()
            raise OSError("it is gone")
        assert failed.wait(PATIENCE)
        warmed.append(key)

    with pytest.raises(OSError, match="it is gone"):
        warm_all(servers, warm, nobody)
    assert warmed == [("b", "pg")] and not servers["b", "pg"].modes


def test_an_interruption_ends_all_that_are_still_read(interruptible):
    servers, begun, answered = (
        {("a", "pg"): WarmedServer(reached=False), ("b", "pg"): WarmedServer()},
        threading.Barrier(2, timeout=PATIENCE),
        [],
    )
    waiting = threading.Event()  # set by whoever waits for both threads: before that, one of them may not be known to the pool

    def warm(key):
        if begun.wait() == 0:
            assert waiting.wait(PATIENCE)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        answered.append(servers[key].down.wait(PATIENCE))

    with pytest.raises(KeyboardInterrupt):
        warm_all(servers, warm, waiting.set)
    assert [server.modes for server in servers.values()] == [["immediate"]] * 2 and answered == [True, True]


def test_what_is_called_off_ends_all_that_are_still_read():
    servers, answered = {("a", "pg"): WarmedServer(), ("b", "pg"): WarmedServer()}, []

    def called_off():
        raise TrialError("called off by the driver")

    with pytest.raises(TrialError, match="called off"):
        warm_all(servers, lambda key: answered.append(servers[key].down.wait(PATIENCE)), called_off)
    assert [server.modes for server in servers.values()] == [["immediate"]] * 2 and answered == [True, True]


ORDERS = Database(name="shop", workload="orders")


class ConsistencyServer:
    """Answers with the twelve conditions, of which ``broken`` do not hold."""

    name = "db01/pg"

    def __init__(self, broken: dict[int, int] | None = None, error: Exception | None = None) -> None:
        self.broken, self.error = broken or {}, error
        self.asked: list[tuple[str, str]] = []
        self.closed: list[str] = []

    def sql(self, statement: str, parameters: Any = (), *, database: str = "postgres") -> list[tuple[Any, ...]]:
        self.asked.append((database, statement))
        if statement.startswith("SELECT"):
            return []
        if self.error:
            raise self.error
        return [(number, self.broken.get(number, 0), "district 1.7") for number in range(1, 13)]

    def disconnect(self, databases: Any = ()) -> None:
        self.closed.extend(databases)


def test_a_consistent_database_passes_and_is_left() -> None:
    server = ConsistencyServer()
    require_consistent(server, ORDERS)
    assert {database for database, _ in server.asked} == {"shop"}
    assert server.closed == ["shop"]


def test_the_consistency_of_a_schema_is_asked_in_its_database() -> None:
    server = ConsistencyServer()
    require_consistent(server, ORDERS.model_copy(update={"name": "db1", "schema_of": "shop"}))
    assert server.asked[0] == ("shop", 'SET search_path = "db1"')
    assert {database for database, _ in server.asked} == {"shop"} and server.closed == ["shop"]


def test_a_violation_names_database_condition_and_example() -> None:
    server = ConsistencyServer({4: 2, 9: 1})
    with pytest.raises(TrialError, match=r"database shop of server db01/pg is inconsistent .*condition 4 .*district 1\.7; condition 9"):
        require_consistent(server, ORDERS)
    assert server.closed == ["shop"]


def test_what_cannot_be_asked_fails_the_trial_too() -> None:
    with pytest.raises(TrialError, match="cannot be checked: gone"):
        require_consistent(ConsistencyServer(error=psycopg.OperationalError("gone")), ORDERS)


def test_a_workload_without_rules_is_not_asked() -> None:
    server = ConsistencyServer({1: 1})
    require_consistent(server, Database(workload="pgbench"))
    assert server.asked == []


LOG = """\
2026-01-01 10:00:00.000 UTC [10] LOG:  database system is ready to accept connections
2026-01-01 10:00:01.000 UTC [11] ERROR:  relation "things" does not exist at character 15
2026-01-01 10:00:02.000 UTC [10] LOG:  server process (PID 11) was terminated by signal 9: Killed
2026-01-01 10:00:02.100 UTC [12] FATAL:  the database system is in recovery mode
2026-01-01 10:00:03.000 UTC [10] LOG:  database system is shut down""".splitlines()


def test_of_a_log_what_tells_of_trouble():
    lines = module.log_ending(LOG).splitlines()
    assert lines[0] == "the server's log ends with:"
    assert lines[1:] == LOG[1:3], "that others could not connect meanwhile tells nothing"


def test_of_a_long_log_the_last_four():
    errors = [f"ERROR:  number {n}" for n in range(9)]
    assert module.log_ending(errors).splitlines()[1:] == errors[-4:]


def test_of_a_log_that_tells_of_none_its_end():
    assert module.log_ending([LOG[0], LOG[4]]).splitlines()[1:] == [LOG[0], LOG[4]]
    assert module.log_ending([]) == "the server's log cannot be read"


def test_of_memory_what_to_do():
    text = module.memory_kill_message("db01", 2)
    assert "container db01" in text and "killed 2 processes in it" in text and "raise --memory" in text


KILL = OomKill(container="db1", processes=1, time=100.0)


def victim(at=99.0, group="/pgherd-x/db1", limited="/pgherd-x", pid=12):
    return OomVictim(at, 7.0, "postgres", pid, group, limited)


def test_the_log_tells_who_when_and_at_whose_limit():
    expected = OomKill(container="db1", processes=1, time=99.0, names=("postgres (12)",), limit="run")
    assert with_victims(KILL, [victim()], 90.0) == expected
    assert with_victims(KILL, [victim(limited="/pgherd-x/db1")], 90.0).limit == "container"


@pytest.mark.parametrize(("at", "time"), [(-7200.0, 90.0), (99.0, 99.0), (7200.0, 100.0)])
def test_the_time_of_a_kill_is_in_its_trial_when_the_clock_of_the_log_has_drifted(at, time):
    found = with_victims(KILL, [victim(at=at)], 90.0)
    assert (found.time, found.names) == (time, ("postgres (12)",))


def test_what_the_log_says_of_others_is_left_out():
    assert with_victims(KILL, [], 90.0) == KILL
    assert with_victims(KILL, [victim(group="/pgherd-x/db2")], 90.0) == KILL


def test_no_more_names_than_were_counted():
    assert with_victims(KILL, [victim(pid=1), victim(pid=2)], 90.0).names == ("postgres (1)",)


def test_victims_of_the_trial_before_are_left_out_by_the_clock_of_the_log(tmp_path):
    """That clock is hours behind the wall clock here, as after the host was suspended."""
    line = "<6>[{}] oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/pgherd-x,task_memcg=/pgherd-x/db1,task=postgres,pid={},uid=1\n"
    log = [line.format("100.250000", 1)]

    class Suspended(LocalNode):
        def run(self, command, timeout=60.0):
            return Completed(0, "".join(log), "")

        def read(self, path):
            return b"9000.00 1.00\n" if path == "/proc/uptime" else super().read(path)

    (events := tmp_path / "memory.events").write_text("oom_kill 0\n")
    kills, began = MemoryKills(Suspended()), LocalNode().now()
    kills.begin()
    log.append(line.format("101.500000", 2))
    events.write_text("oom_kill 1\n")
    (kill,) = kills.seen({"db1": {"v2": str(tmp_path)}})
    assert kill.names == ("postgres (2)",) and kill.time >= began


def test_a_trials_kills_are_what_its_groups_have_counted_since_it_began(tmp_path, monkeypatch):
    monkeypatch.setattr(module.cgroup_memory, "victims", lambda node, since: [])
    events = tmp_path / "memory.events"
    events.write_text("oom 1\noom_kill 1\n")
    kills = MemoryKills(LocalNode())
    groups = {"db1": {"v2": str(tmp_path)}}
    kills.begin()
    assert [(item.container, item.processes) for item in kills.seen(groups)] == [("db1", 1)]
    kills.begin()
    assert kills.seen(groups) == ()
    events.write_text("oom 1\noom_kill 3\n")
    assert kills.poll("db1", groups["db1"]) == 2
    assert [element.processes for element in kills.seen(groups)] == [2], "looked at before, and noted once"
    kills.forget("db1")
    kills.begin()
    assert [item.processes for item in kills.seen(groups)] == [3], "a new group counts from the start"


@pytest.mark.parametrize("between_trials", [True, False])
def test_a_group_that_was_made_again_counts_from_the_start(tmp_path, monkeypatch, between_trials):
    """An external server was killed, and restarts in a new group of the same path."""
    monkeypatch.setattr(module.cgroup_memory, "victims", lambda node, since: [])
    events, kills, groups = tmp_path / "memory.events", MemoryKills(LocalNode()), {"db1": {"v2": str(tmp_path)}}
    events.write_text("oom_kill 5\n")
    kills.begin()
    kills.watch(groups)
    events.write_text("oom_kill 6\n")
    assert [item.processes for item in kills.seen(groups)] == [1]
    kills.begin()
    if between_trials:
        events.write_text("oom_kill 0\n")
    kills.watch(groups)
    events.write_text("oom_kill 6\n" if between_trials else "oom_kill 1\n")
    assert [item.processes for item in kills.seen(groups)] == [6 if between_trials else 1]
