import contextlib
import json
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.cluster import labels
from pgherd.distributed import agent as host_agent
from pgherd.distributed.agent import SHOWN, HostAgent, LiveSampler, make_agent
from pgherd.model.analysis import Thresholds
from pgherd.model.deployment import Volume
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.result import OomKill, PhaseResult
from pgherd.model.run import RunEnvironment
from pgherd.model.trial import Trial
from pgherd.node.protocol import Command
from pgherd.postgres.installations import TOOLS, Installation
from pgherd.prepare.prepared_study import VolumeContents
from pgherd.report.live_status import _SAMPLERS
from pgherd.runner.execute.measurement_window import CommonWindow
from pgherd.store.live_state import SPOOL, output_name

pytestmark = pytest.mark.usefixtures("own_directories")

SURROUNDINGS = RunEnvironment(runtime="process", cores=1, memory=2**30)
FACTS = HostFacts(hostname="a", kernel="6", cores=2, logical_cpus=2, memory=2**33)
PART = Trial.model_validate({"point": {"n": 1}, "deployment": {"hosts": [{"name": "a"}]}, "phases": [{"loads": {}}]})
KILL = OomKill(container="a", processes=1, time=5.0)


class FakeDeployer:
    """Deploys nothing, and knows in which thread it did that."""

    def __init__(self, session, installations, watcher):
        self.installations, self.watcher = installations, watcher
        self.facts, self.scratch, self.watched, self.account = FACTS, session.work / "out", [], None
        self.threads, self.closed, self.distrusted = [], False, False

    def apply(self, part):
        self.threads.append(threading.get_ident())
        self.watcher.setup("cloning")
        return self, "1 kept"

    def endpoint(self, target):
        return target

    def check(self):
        pass

    def readings(self):
        return {}

    def oom_kills(self):
        return (KILL,)

    def stop_phase_targets(self):
        self.rested = True

    def mark_unhealthy(self):
        self.distrusted = True

    def settings(self, target):
        return {"work_mem": "8MB"}

    def probe(self, part):
        return {"database_bytes": 2.0}

    def close(self):
        self.closed = True


@pytest.fixture
def agent(monkeypatch, tmp_path):
    """An agent whose sessions and fleets are made up."""
    work = tmp_path / "work"

    @contextlib.contextmanager
    def session(node, run, surroundings, watcher):
        work.mkdir()
        (work / "out").mkdir()
        yield SimpleNamespace(work=work, account=None, run=run)
        watcher.note("warning: not undone: a mount")
        node.remove_tree(str(work))

    def drive(node, part, stage, directory, scratch, watcher, watched, begin):
        stage.endpoint("a")
        while time.time() < begin:
            stage.check()
            time.sleep(0.01)
        stage.endpoint("a")
        (directory / "drivers").mkdir()
        (directory / "drivers" / "stdout").write_bytes(b"tps " * 10)
        (directory / "samples").mkdir()
        (directory / "samples" / "cpu.parquet").write_bytes(b"")

        def results(windows, write):
            return [PhaseResult(phase="p", start=start, end=end, overlap=1, targets=[]) for start, end in windows]

        return SimpleNamespace(spans=lambda: [CommonWindow(begin, begin, begin + 1, 1.0)], jump=0.125, results=results)

    there = [Installation("/pg", "18.6", 18, "system"), Installation("/old", "15.18", 15, "system")]
    monkeypatch.setattr(host_agent, "open_session", session)
    monkeypatch.setattr(host_agent, "Deployer", FakeDeployer)
    monkeypatch.setattr(host_agent.phases, "drive", drive)
    monkeypatch.setattr(host_agent.installations, "find_all", lambda node: there)
    monkeypatch.setattr(host_agent, "runnable", lambda node, bin_, version, opened: next(one for one in there if one.bin == bin_))
    monkeypatch.setattr(host_agent.merge_results, "of_part", lambda *_: ["judged"])
    monkeypatch.setattr(host_agent.memory_checks, "judge_memory", lambda *_: [])
    made = make_agent()
    made.work = work
    yield made
    made.lost()


def test_it_says_what_its_host_is(agent, monkeypatch):
    monkeypatch.setenv(labels.VARIABLE, "disk=ssd, rack=2,nonsense")
    found = agent.hello()
    assert found.facts.cores > 0 and found.postgres == (("18.6", "/pg"), ("15.18", "/old"))
    assert found.labels == {"disk": "ssd", "rack": "2"} and found.free_bytes > 0


def test_it_says_which_version_lies_in_a_directory(agent, tmp_path, monkeypatch):
    monkeypatch.setattr(host_agent.installations, "_read", lambda node, directory: Installation(directory, "17.2", 17, "system"))
    assert agent.version_in(str(tmp_path)) is None
    for tool in TOOLS:
        (tmp_path / tool).touch()
    assert agent.version_in(str(tmp_path)) == "17.2"


def test_it_looks_at_volumes_before_a_run_is_opened(agent, tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="there is no user 'pgherd-nobody-at-all' on this host"):
        agent.check_volumes((), "pgherd-nobody-at-all")
    monkeypatch.setattr(host_agent, "server_account", lambda run_as: None)
    here, there = (VolumeContents(Volume(name="v", path=str(path)), "servers' data", 1) for path in (tmp_path, tmp_path / "none"))
    agent.check_volumes((here,), None)
    with pytest.raises(UsageError, match="none does not exist; create it"):
        agent.check_volumes((here, there), None)


def test_a_run_is_opened_with_the_version_wherever_it_lies(agent):
    agent.open("run", SURROUNDINGS, {"/elsewhere/bin": "15.18", "/pg": "18.6"})
    assert {bin_: one.bin for bin_, one in agent._deployer.installations.items()} == {"/elsewhere/bin": "/old", "/pg": "/pg"}
    with pytest.raises(UsageError, match=r"PostgreSQL 17\.2 in /x, but this host has 18\.6 in /pg, 15\.18 in /old"):
        agent.open("run", SURROUNDINGS, {"/x": "17.2"})
    assert not agent.work.exists(), "what was opened for it is gone"
    with pytest.raises(TrialError, match="no open run"):
        agent.apply(PART)


def test_templates_are_carried_while_a_run_is_open(agent):
    with pytest.raises(TrialError, match="no open run"):
        agent.templates("lacks", PART)
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    assert agent.templates("lacks", PART) == {} == agent.templates("has", {"x": "/pg"})
    carrier = agent._carrier
    dropped = []
    carrier.drop = lambda: dropped.append(True)
    assert agent.apply(PART) == "1 kept" and len(dropped) == 1, "it holds the lock under which the copy is now made here"
    agent.close()
    assert len(dropped) == 2 and agent._carrier is None, "what has come half way goes with the run"


def test_a_trial_from_end_to_end(agent):
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    assert agent.apply(PART) == "1 kept" and agent.step() == "cloning"
    drove = agent.run(PART, "0001", time.time() + 2.0)
    assert drove.jump == 0.125 and 0 < drove.ready <= 2.0 and len(drove.spans) == 1
    counted = agent.results(PART, [(1.0, 2.0)], Thresholds())
    assert (counted.phases[0].start, counted.checks, counted.kills) == (1.0, ["judged"], (KILL,))
    assert agent._deployer.distrusted, "a server was killed, though the trial finished"
    pieces, more = agent.collect()
    assert more is None and {piece.path: piece.data for piece in pieces} == {"drivers/stdout": b"tps " * 10, "samples/cpu.parquet": b""}
    agent.discard()
    assert not list(agent.work.glob("trial-*")) and not list((agent.work / "out").iterdir())
    assert agent.collect() == ([], None)
    assert agent.settings(None) == {"work_mem": "8MB"} and agent.probe(PART) == {"database_bytes": 2.0}


def test_large_files_come_in_pieces(agent, monkeypatch):
    monkeypatch.setattr(host_agent, "CHUNK_BYTES", 7)
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    agent.run(PART, "0001", time.time())
    agent.results(PART, [(1.0, 2.0)], Thresholds())
    found, at, calls = {}, (0, 0), 0
    while at is not None:
        pieces, at = agent.collect(at)
        calls += 1
        for piece in pieces:
            found[piece.path] = found.get(piece.path, b"") + piece.data
    assert calls == 6 and found == {"drivers/stdout": b"tps " * 10, "samples/cpu.parquet": b""}


def test_all_work_is_done_in_one_thread(agent):
    """The kernel ends a server when the thread that started it ends."""
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    callers = [threading.Thread(target=agent.apply, args=(PART,)) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(agent._deployer.threads) == 3 and len(set(agent._deployer.threads)) == 1


def test_a_play_is_called_off_at_once(agent):
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    threading.Timer(0.2, agent.call_off).start()
    began = time.monotonic()
    with pytest.raises(TrialError, match="called off"):
        agent.run(PART, "0001", time.time() + 30)
    assert time.monotonic() - began < 10
    failed = agent.failed(PART, Thresholds())
    assert failed.kills == (KILL,) and agent._deployer.distrusted
    assert agent.apply(PART) == "1 kept", "the next trial begins as any"


def test_a_step_that_takes_long_is_called_off(agent, monkeypatch):
    begun = threading.Event()

    def warm(self, part):
        begun.set()
        while True:
            self.watcher.check_cancelled()
            time.sleep(0.01)

    monkeypatch.setattr(FakeDeployer, "apply", warm)
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    caller = threading.Thread(target=lambda: begun.wait() and agent.call_off())
    caller.start()
    with pytest.raises(TrialError, match="called off"):
        agent.apply(PART)
    caller.join()


def test_data_that_are_being_loaded_are_called_off(agent, monkeypatch):
    """Loading takes hours, and the driver waits for the end of what it calls off."""

    def load(self, part):
        threading.Timer(0.2, agent.call_off).start()
        agent._node.run(Command(["sleep", "60"], can_be_called_off=True), timeout=70)

    monkeypatch.setattr(FakeDeployer, "apply", load)
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    began = time.monotonic()
    with pytest.raises(TrialError, match="called off"):
        agent.apply(PART)
    assert time.monotonic() - began < 30
    agent.failed(PART, Thresholds())


def test_what_is_called_off_before_it_has_begun_does_not_begin(agent):
    """Another host may fail at once: nobody waits for what this one would do all the same."""
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    agent.call_off()
    with pytest.raises(TrialError, match="called off"):
        agent.apply(PART)
    agent.failed(PART, Thresholds())
    assert agent.apply(PART) == "1 kept"


def test_files_of_the_driver_are_kept_until_the_end(agent):
    path = Path(agent.put("../new.sql", b"SELECT 1;"))
    assert path.name == "new.sql" and path.read_bytes() == b"SELECT 1;"
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    assert path.exists(), "they may have come before the run was opened"
    assert agent.close() == ["warning: not undone: a mount"]
    assert not path.exists() and not agent.work.exists()


def test_an_agent_that_lost_its_driver_takes_everything_back(agent):
    agent.open("run", SURROUNDINGS, {"/pg": "18.6"})
    deployer = agent._deployer

    def play():
        with pytest.raises(TrialError):
            agent.run(PART, "0001", time.time() + 30)

    playing = threading.Thread(target=play)
    playing.start()
    time.sleep(0.1)
    agent.lost()
    playing.join(10)
    assert deployer.closed and not agent.work.exists() and not playing.is_alive()
    agent.lost()


def test_a_child_dies_with_the_agent_s_thread_not_before(agent):
    """Started in the agent's own thread, it outlives the call that asked for it."""
    started = []

    def start():
        from pgherd.node.protocol import Command

        started.append(agent._node.spawn(Command(["sleep", "60"])))

    caller = threading.Thread(target=lambda: agent._do(start))
    caller.start()
    caller.join()
    time.sleep(0.2)
    assert started[0].poll() is None
    os.kill(started[0].pid, 9)
    started[0].wait(10)


def test_an_agent_is_made_without_arguments():
    assert isinstance(make_agent(), HostAgent)


LOOKOUT_PART = Trial.model_validate(
    {
        "point": {"databases": 1},
        "deployment": {"hosts": [{"name": "a", "containers": [{"name": "db1", "servers": [{"bin": "/pg", "version": "18.6"}]}]}]},
        "phases": [
            {"name": "p", "loads": {"a/db1/pg/bench": {}, "a": {"driver": "command"}}},
            {"name": "q", "loads": {"a/db1/pg/bench": {}}},
        ],
    }
)
SOURCES = {
    "sources": [["cgroup_cpu", "container:db1", "file", "/x", "v1 usage"], ["vmstat", "host", "file", "/proc/vmstat", ""]],
    "first": 0,
}


def test_what_is_shown_is_what_is_looked_at():
    assert SHOWN == _SAMPLERS


def test_a_glimpse_holds_what_has_been_added_since(tmp_path):
    sampler = LiveSampler(LOOKOUT_PART, tmp_path, tmp_path / "out")
    first = sampler.snapshot()
    assert (first.readings, first.told) == ([], [])
    readings = [{"t": 1.0 + n, "i": 0, "raw": f"{n}000000000\n"} for n in range(4)]
    with open(tmp_path / SPOOL, "w") as spool:
        for document in (SOURCES, *readings, {"t": 4.5, "i": 1, "raw": "pswpin 3\n"}):
            spool.write(json.dumps(document, separators=(",", ":")) + "\n")
    for phase, target, text in ((0, "a/db1/pg/bench", "progress: 1\nprogr"), (0, "a", "progress: 9\n"), (1, "a/db1/pg/bench", "ready\n")):
        place = tmp_path / "out" / output_name(phase, target)
        place.mkdir(parents=True)
        (place / "stderr").write_text(text)
    seen = sampler.snapshot()
    assert seen.readings == [
        (1.0, "cgroup_cpu", "container:db1", {"cpu.usage": 0.0}),
        (4.0, "cgroup_cpu", "container:db1", {"cpu.usage": 3.0}),
    ], "the first and the last of what is shown; nothing of other samplers"
    assert seen.told == [(0, "a/db1/pg/bench", "pgbench", "progress: 1\n"), (1, "a/db1/pg/bench", "pgbench", "ready\n")], "whole lines"
    assert sampler.snapshot().readings == [] and sampler.snapshot().told == []
