"""The work of getting from what is up to what a trial wants, with servers that are only pretended; tests/it starts real ones."""

import contextlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import psycopg
import pytest

from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.host.swap import ActiveSwap
from pgherd.host.undo_actions import Kill, ReleaseSharedMemory
from pgherd.model.deployment import Container, Database, Deployment, Host, Server, Volume
from pgherd.model.errors import TrialError
from pgherd.model.load import Load, Phase, Script
from pgherd.model.run import RunEnvironment, Swap
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.postgres.templates import Template
from pgherd.runner.deploy import data_directories
from pgherd.runner.deploy import deployer as module
from pgherd.runner.deploy.data_directories import DataDirectories
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.deploy.memory_budget import MemoryBudget
from pgherd.runner.progress import RunObserver
from pgherd.runner.session import RunSession
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.study.study import Study

NODE = LocalNode()
GOLDEN = Template("key", "/golden", "18.1", ("pgbench",), True, 1, {"bench": 1}, 0.0, 0.0, parts={})


class Pretended:
    """A server: ``events`` is what was done to which, ``broken`` names those that do not start."""

    user, access = "postgres", None
    events: ClassVar[list[tuple[str, str]]] = []
    broken: ClassVar[set[str]] = set()
    log = "LOG:  fine\n"

    def __init__(self, *, node, installation, data_dir, socket_dir, port, account, name, opening=None):
        self.node, self.installation, self.data_dir, self.socket_dir, self.name = node, installation, data_dir, socket_dir, name
        self.port, self.running, self.pid = port, False, 4711

    def write_settings(self, settings):
        self.events.append(("settings", self.name))

    def reload(self):
        self.events.append(("reload", self.name))

    def disconnect(self, databases=()):
        """Nothing is kept."""

    def sql(self, statement, *, database):
        return [(0,)]

    def checkpoint(self):
        self.events.append(("checkpoint", self.name))

    def conninfo(self, database="postgres"):
        return f"host=/nowhere dbname={database}"

    def differing(self):
        if not self.running:
            raise psycopg.OperationalError("it has gone")
        return {"work_mem": "8MB"}

    def ending(self):
        return "was ended by signal SIGKILL"

    def log_tail(self, lines):
        return self.log


def start_all(launches):
    for instance, _, _ in launches:
        if instance.name in Pretended.broken:
            raise TrialError(f"server {instance.name} ended with exit code 1 while starting")
        instance.running = True
        Pretended.events.append(("start", instance.name))


def stop_all(instances, mode):
    for instance in instances:
        if instance.running:
            Pretended.events.append((f"stop {mode}", instance.name))
        instance.running = False


class Rooms:
    """A runtime that has containers in name only, and refuses to make one twice as control groups do."""

    def __init__(self, name="process"):
        self.name = name
        self.made = set()
        self.groups = {}

    def create(self, container):
        assert container.name not in self.made, "it stands there already"
        assert container.runtime == self.name
        self.made.add(container.name)
        return ContainerHandle(container.name, groups=self.groups)

    def destroy(self, name):
        self.made.discard(name)


class Pretense:
    """The runtimes of a run, open as soon as they are asked for."""

    def __init__(self):
        self.open = {}

    def get(self, name):
        return self.open.setdefault(name, Rooms(name))


@pytest.fixture
def session(tmp_path):
    journal = Journal.open(NODE, tmp_path / "state", "run")
    for name in ("work", "sockets", "cache"):
        (tmp_path / name).mkdir()
    yield RunSession(NODE, gather(NODE), journal, Pretense(), None, tmp_path / "work", tmp_path / "sockets", tmp_path / "cache")
    journal.close()


@pytest.fixture
def deployer(session, monkeypatch):
    monkeypatch.setattr(data_directories, "Instance", Pretended)
    monkeypatch.setattr(module, "start_all", start_all)
    monkeypatch.setattr(module, "stop_all", stop_all)
    monkeypatch.setattr(data_directories.templates, "ensure", lambda *_, **__: GOLDEN)
    monkeypatch.setattr(data_directories, "loaders", lambda *_: [])
    monkeypatch.setattr(
        data_directories.clones, "clone_all", lambda node, jobs, *_, **__: Pretended.events.extend(("clone", data) for _, data in jobs)
    )
    monkeypatch.setattr(
        data_directories.clones, "drop_cache", lambda node, paths: Pretended.events.extend(("drop", path) for path in paths)
    )
    monkeypatch.setattr(Deployer, "_warm", lambda self, key, server: Pretended.events.append(("warm", "/".join(key))))
    monkeypatch.setattr(DataDirectories, "settling", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(module, "contexts", lambda *_: {"work_mem": "user", "shared_buffers": "postmaster"})
    monkeypatch.setattr(Pretended, "events", [])
    monkeypatch.setattr(Pretended, "broken", set())
    return Deployer(session, {"/pg": Installation("/pg", "18.1", 18, "system")}, RunObserver())


def trial(*names, vcpus=None, settings=None, state="warm", load=None, runtime="process", sched_batch=False):
    server = Server(bin="/pg", version="18.1", settings=settings or {}, databases=(Database(),), sched_batch=sched_batch)
    containers = tuple(Container(name=name, runtime=runtime, vcpus=vcpus, servers=(server,)) for name in names)
    deployment = Deployment(hosts=(Host(containers=containers),))
    loads = {f"local/{names[0]}/pg/bench": load or Load()}
    return Trial(point={"databases": 1}, deployment=deployment, state=state, phases=(Phase(name="p", warmup=0, seconds=1, loads=loads),))


def done(deployer):
    events, Pretended.events[:] = [*Pretended.events], []
    return [(what, name.rpartition("/work/")[2]) for what, name in events]


def test_servers_are_cloned_started_and_warmed_and_then_kept(deployer):
    assert deployer.apply(trial("a", "b"))[1] == "2 restored"
    assert [what for what, _ in done(deployer)] == ["clone", "clone", "settings", "settings", "start", "start", "warm", "warm"]
    assert deployer.apply(trial("a", "b"))[1] == "2 kept" and not done(deployer)
    assert deployer.apply(trial("a", "b", settings={"work_mem": "8MB"}))[1] == "2 reloaded"
    assert [what for what, _ in done(deployer)] == ["settings", "reload", "settings", "reload"]
    assert deployer.apply(trial("b", settings={"work_mem": "8MB"}))[1] == "1 kept, 1 removed"
    assert done(deployer) == [("stop fast", "a/pg")]
    assert deployer.settings() == {"work_mem": "8MB"}
    deployer.close()
    assert done(deployer) == [("stop immediate", "b/pg")]
    assert deployer.settings() == {}, "no server answers any more"


def test_restarted_servers_of_limited_containers_lose_cached_files(deployer, tmp_path):
    """Also those on volumes, where a run may have all tables."""

    def limited(memory, state):
        one = trial("a", "b", state=state)
        (host,) = one.deployment.hosts
        first, second = host.containers
        server = first.servers[0].model_copy(update={"tablespaces": ("fast",)})
        first = first.model_copy(update={"memory": memory, "servers": (server,)})
        volumes = (Volume(name="fast", path=str(tmp_path)),)
        deployment = Deployment(hosts=(host.model_copy(update={"containers": (first, second)}),), volumes=volumes)
        return one.model_copy(update={"deployment": deployment})

    (tmp_path / "fast").mkdir()
    deployer.apply(limited(2**26, "fresh"))
    done(deployer)
    deployer.apply(limited(2**27, "restarted"))
    dropped = [path for what, path in Pretended.events if what == "drop"]
    (server,) = [directory for directory in dropped if directory.endswith("/001-a-pg/data")]
    assert len(dropped) == 2 and set(dropped) - {server} == set(deployer._housing._volume_directories["a", "pg"])
    deployer.close()


def test_a_server_of_pgherd_ends_where_an_external_one_takes_its_name(deployer, monkeypatch):
    attached = []
    monkeypatch.setattr(deployer._attached, "attach", lambda servers: attached.extend(servers))
    deployer.apply(trial("a"))
    one = trial("a", runtime="external")
    (host,) = one.deployment.hosts
    (container,) = host.containers
    theirs = container.model_copy(update={"servers": (container.servers[0].model_copy(update={"dsn": "host=h"}),)})
    deployment = Deployment(hosts=(host.model_copy(update={"containers": (theirs,)}),))
    done(deployer)
    assert deployer.apply(one.model_copy(update={"deployment": deployment}))[1] == "1 attached, 1 removed"
    assert ("stop fast", "a/pg") in done(deployer) and attached == [("a", "pg")]
    deployer.check()
    assert not deployer._instances


def test_servers_restart_with_another_scheduling_policy(deployer):
    found = {}
    for sched_batch in (False, True, True, False):
        summary = deployer.apply(trial("a", sched_batch=sched_batch))[1]
        found[len(found)] = summary, deployer.server("a", "pg").sched_batch
    assert [*found.values()] == [("1 restored", False), ("1 restarted", True), ("1 kept", True), ("1 restarted", False)]


def test_each_container_is_made_by_the_runtime_that_it_names(deployer, session):
    """One after the other under one name, as variants are compared; a runtime that no container names is never opened."""
    deployer.apply(trial("a", "b"))
    assert list(session.runtimes.open) == ["process"] and session.runtime("process").made == {"a", "b"}
    assert deployer.apply(trial("a", runtime="cgroup"))[1] == "1 restarted, 1 removed"
    assert session.runtime("cgroup").made == {"a"} and not session.runtime("process").made
    assert deployer.apply(trial("a"))[1] == "1 restarted"
    assert session.runtime("process").made == {"a"} and not session.runtime("cgroup").made


def test_a_load_that_writes_begins_after_a_checkpoint(deployer):
    writes = Load(scripts=(Script(source="builtin:tpcb-like"),))
    deployer.apply(trial("a", "b", load=writes))
    assert ("checkpoint", "a/pg") not in done(deployer), "a server that has just started needs none"
    deployer.apply(trial("a", "b", load=writes))
    assert done(deployer)[-1] == ("checkpoint", "a/pg")


def test_the_data_of_a_server_that_is_replaced_is_removed(deployer, session):
    deployer.apply(trial("a"))
    (first,) = session.work.glob("*-a-pg")
    deployer.apply(trial("a", state="fresh"))
    (second,) = session.work.glob("*-a-pg")
    assert first != second, "sockets and data of the old one are never met again"


def test_a_server_is_in_the_journal_from_before_its_start_until_after_its_end(deployer, session, monkeypatch):
    seen = []

    def watched(launches):
        seen.extend(session.journal.pending())
        start_all(launches)

    monkeypatch.setattr(module, "start_all", watched)
    monkeypatch.setattr(module.processes, "start_time", lambda *_: 12345)
    deployer.apply(trial("a"))
    (released,) = [undo for undo in seen if isinstance(undo, ReleaseSharedMemory)]
    assert released.data_directory.endswith("-a-pg/data")
    assert [undo for undo in session.journal.pending() if isinstance(undo, Kill)] == [Kill(pid=4711, start=12345)]
    monkeypatch.setattr(Kill, "play", lambda *_: None)
    deployer.close()
    assert not session.journal.pending()


def test_a_server_that_died_is_named_with_its_last_words_and_restored(deployer, monkeypatch):
    deployer.apply(trial("a", "b"))
    deployer._instances["a", "pg"].running = False
    monkeypatch.setattr(Pretended, "log", "LOG:  a\nLOG:  b\nPANIC:  could not write\nSTATEMENT:  x\n")
    with pytest.raises(
        TrialError, match="server a/pg was ended by signal SIGKILL during the trial; the server's log ends with:\nPANIC:  could not"
    ):
        deployer.check()
    deployer.mark_unhealthy()
    assert deployer.apply(trial("a", "b"))[1] == "2 restored"
    deployer.check()
    deployer._instances["a", "pg"].running = False
    assert deployer.apply(trial("a", "b"))[1] == "1 kept, 1 restored", "it died between two trials"


def test_a_trial_whose_memory_is_no_longer_locked_fails(deployer):
    deployer.apply(trial("a"))
    deployer.check()
    deployer._budget._process = SimpleNamespace(poll=lambda: -9)
    with pytest.raises(TrialError, match="the process that locks memory ended during the trial"):
        deployer.check()


def test_what_the_kernel_killed_for_memory_is_said_once(deployer, session, tmp_path):
    session.runtime("process").groups["memory"] = str(tmp_path)
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    deployer.apply(trial("a"))
    assert deployer.error_text("local/a/pg/bench") == "the server's log ends with:\nLOG:  fine"
    (tmp_path / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert "container a exceeded its memory limit, and the kernel killed 2 processes in it: raise --memory" in deployer.error_text(
        "local/a/pg/bench"
    )
    assert "kernel" not in deployer.error_text("local/a/pg/bench")


def test_a_transition_that_fails_is_begun_anew(deployer, session):
    """Nothing that it left half done is in the way of the next: no container, no data, no server."""
    deployer.apply(trial("a"))
    Pretended.broken.add("b/pg")
    for _ in range(2):
        with pytest.raises(TrialError, match="server b/pg ended with exit code 1 while starting"):
            deployer.apply(trial("a", "b"))
    assert session.runtime("process").made == {"a", "b"}
    Pretended.broken.clear()
    assert deployer.apply(trial("a", "b"))[1] == "1 kept, 1 restored"
    assert len(list(session.work.glob("*-b-pg"))) == 1
    Pretended.broken.add("a/pg")
    with pytest.raises(TrialError):
        deployer.apply(trial("a", "b", state="restarted"))
    Pretended.broken.clear()
    deployer.mark_unhealthy()
    assert deployer.apply(trial("a", "b"))[1] == "2 restored"


def test_a_copy_that_fails_is_begun_anew(deployer, session, monkeypatch):
    def full(*_, **__):
        raise TrialError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(data_directories.clones, "clone_all", full)
        with pytest.raises(TrialError, match="no space"):
            deployer.apply(trial("a"))
    assert not list(session.work.glob("*-a-pg")), "what was half made is gone"
    assert deployer.apply(trial("a"))[1] == "1 restored"
    assert len(list(session.work.glob("*-a-pg"))) == 1


def test_no_server_is_warmed_in_memory_that_was_taken_away(deployer, session, monkeypatch):
    """Where one of another deployment must be started, all are stopped, and have the whole until they are warm."""
    for name in ("change_budget", "empty"):
        monkeypatch.setattr(Rooms, name, lambda self, *given, name=name: Pretended.events.append((name, f"{given}")), raising=False)
    around = RunEnvironment(runtime="cgroup", cores=2, memory=800, swap=Swap(kind="zram", size=1))
    deployer._budget = MemoryBudget(replace(session, environment=around, swap=ActiveSwap("/dev/zram1", 1, 1)))

    def short(*names):
        whole = trial(*names, runtime="cgroup")
        host = whole.deployment.hosts[0].model_copy(update={"memory": 500})
        return whole.model_copy(update={"deployment": Deployment(hosts=(host,))})

    def steps():
        left_out = ("clone", "settings", "empty", "drop")
        return [what if what != "change_budget" else given for what, given in done(deployer) if what not in left_out]

    assert deployer.apply(short("a"))[1] == "1 restored"
    assert steps() == ["(800,)", "start", "warm", "(500,)"]
    assert deployer.apply(short("a"))[1] == "1 kept" and not steps()
    assert deployer.apply(short("a", "b"))[1] == "1 restarted, 1 restored"
    assert steps() == ["stop fast", "(800,)", "start", "start", "warm", "warm", "(500,)"]
    deployer.mark_unhealthy()
    assert deployer.apply(short("a", "b"))[1] == "2 restored"
    assert steps() == ["stop fast", "stop fast", "(800,)", "start", "start", "warm", "warm", "(500,)"]


def test_memory_is_taken_away_once_what_was_copied_is_on_the_disk(deployer, monkeypatch):
    @contextlib.contextmanager
    def settling(self, restored):
        yield
        Pretended.events.append(("settled", ""))

    monkeypatch.setattr(DataDirectories, "settling", settling)
    monkeypatch.setattr(MemoryBudget, "tighten", lambda self: Pretended.events.append(("tightened", "")))
    deployer.apply(trial("a"))
    assert [what for what, _ in done(deployer)][-3:] == ["warm", "settled", "tightened"]


def test_a_connection_lost_while_servers_are_made_ready_fails_the_trial_only(deployer, monkeypatch):
    def lost(self, key, server):
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    with monkeypatch.context() as patch:
        patch.setattr(Deployer, "_warm", lost)
        words = "server a/pg could not be prepared: server closed the connection unexpectedly; the server's log ends with:\nLOG:  fine"
        with pytest.raises(TrialError, match=words):
            deployer.apply(trial("a"))
    assert deployer.apply(trial("a"))[1] == "1 restored", "a server that is not warm is not kept"
    with monkeypatch.context() as patch:
        patch.setattr(Deployer, "_warm", lost)
        with pytest.raises(TrialError, match=words):
            deployer.apply(trial("a", state="restarted"))
    assert deployer.apply(trial("a"))[1] == "1 restored", "nor one that has been up before"


def test_targets_are_reached_over_their_sockets(deployer, session):
    stage, _ = deployer.apply(trial("a"))
    reach = stage.endpoint("local/a/pg/bench")
    assert (
        reach.bin == "/pg" and reach.database == "bench" and reach.host.startswith(str(session.sockets)) and reach.handle.container == "a"
    )
    with pytest.raises(TrialError, match="local/a/pg/other is not part of this deployment"):
        stage.endpoint("local/a/pg/other")
    view = stage.view()
    assert [one.name for one in view.containers] == ["a"] and [one.name for one in view.servers] == ["a/pg"]


def test_servers_that_should_be_idle_are_marked_for_the_samplers(deployer):
    stage, _ = deployer.apply(trial("a", "b").model_copy(update={"quiet": ("b",)}))
    view = stage.view()
    assert {one.name: one.quiet for one in view.containers} == {"a": False, "b": True}
    assert {one.name: one.quiet for one in view.servers} == {"a/pg": False, "b/pg": True}


def test_scripts_lie_where_the_servers_account_can_read_them(deployer, session, tmp_path):
    (tmp_path / "mine.sql").write_text("SELECT 1;\n")
    script = Script(source=str(tmp_path / "mine.sql"), weight=3)
    staged = deployer.script(script)
    assert staged.weight == 3 and staged.source.startswith(str(session.work)) and Path(staged.source).read_text() == "SELECT 1;\n"
    assert deployer.script(script) == staged
    builtin = Script(source="builtin:select-only")
    assert deployer.script(builtin) == builtin


def test_the_probe_of_the_study_of_its_name_measures(deployer, monkeypatch):
    monkeypatch.setattr(Study, "hook", lambda self, module, name: lambda session, *_: {f"{self.name}_{session.work.name}": 1.0})
    assert deployer.probe(SimpleNamespace(probe="compression")) == {"compression_work": 1.0}


@pytest.mark.parametrize("probe", ["smell", "density"])
def test_a_study_without_a_probe_is_refused(deployer, probe):
    with pytest.raises(TrialError, match=f"no probe '{probe}'"):
        deployer.probe(SimpleNamespace(probe=probe))


def test_containers_are_deployed_without_a_trial(deployer, session):
    both = [container for _, container in trial("a", "b").deployment.containers()]
    deployer.deploy(both[1])
    deployer.deploy(*both)
    assert [what for what in done(deployer) if what[0] == "start"] == [("start", "b/pg"), ("start", "a/pg")]
    assert deployer.server("a").name == "a/pg" and session.runtime("process").made == {"a", "b"}
    with pytest.raises(TrialError, match="container a has no running guest"):
        deployer.guest("a")
