import contextlib
import threading
import time

import pytest

from pgherd.cluster.interfaces import HostClockOffset
from pgherd.distributed import cluster_backend
from pgherd.distributed.agent import FileChunk, HostInfo, HostResult, HostSnapshot, HostWindows
from pgherd.distributed.agent_pool import AgentPool
from pgherd.distributed.clock_alignment import Clocks
from pgherd.distributed.cluster_backend import LEAD_S, ClusterBackend, agents_run
from pgherd.model.analysis import Check, Thresholds
from pgherd.model.errors import PgherdError, TrialError
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import transaction_timeout
from pgherd.model.result import OomKill, PhaseResult, TargetResult
from pgherd.model.run import Cluster, RunEnvironment
from pgherd.model.trial import Trial
from pgherd.runner.execute.measurement_window import CommonWindow
from pgherd.runner.loop import _MAX_CONSECUTIVE_FAILURES
from pgherd.runner.progress import RunObserver
from pgherd.store.live_state import SPOOL
from pgherd.store.samples import read_samples, write_samples

LIMITS = Thresholds()
FACTS = HostFacts(hostname="h", kernel="6.1", cores=2, logical_cpus=2, memory=2**33)
RUN = "20261122-093000-density-ab12"


class Agent:
    """Plays at once, as if all went as planned by its own clock."""

    def __init__(self, scratch):
        self.scratch, self.said, self.files, self.opened = scratch, [], [], None
        self.late, self.behind, self.trouble, self.until = 0.0, 0.0, None, None

    def hello(self):
        return HostInfo(FACTS, "0", (), {}, 0)

    def open(self, run, surroundings, postgres):
        self.opened = run, surroundings, postgres
        return ["removed a directory"]

    def put(self, name, data):
        self.said.append(("put", name, data))
        return f"/there/{name}"

    def templates(self, step, *arguments):
        self.said.append(("templates", step, *arguments))
        return {}

    def apply(self, part):
        self.said.append(("apply", part))
        return "2 kept"

    def run(self, part, name, begin):
        if self.trouble is not None:
            raise self.trouble
        self.said.append(("play", part, begin))
        if self.until is not None:
            self.until.wait(20)
        spans, at = [], begin
        for phase in part.phases:
            start = at + phase.warmup
            spans.append(CommonWindow(at + self.late, max(start, at + self.late), start + phase.seconds, phase.seconds))
            at = start + phase.seconds
        return HostWindows(spans, 0.0, LEAD_S - 0.1)

    def ways(self, part):
        return {str(place): "a way" for place, *_ in part.deployment.databases() if place.container != "db3"}

    def learn(self, ways):
        self.said.append(("learn", ways))

    def results(self, part, windows, limits, others=None):
        self.said.append(("results", windows))
        self.counted = part, others
        part = (
            part if others is None else part.model_copy(update={"phases": tuple(p.model_copy(update={"loads": {}}) for p in part.phases)})
        )
        found = []
        for phase, (start, end) in zip(part.phases, windows, strict=True):
            raw = {target: [f"drivers/00-p/{target.replace('/', '.')}/stdout"] for target in phase.loads}
            counts = {"driver": "pgbench", "transactions": 10, "throughput": 1, "first": start + self.behind, "last": end}
            targets = [TargetResult(target=target, raw=raw[target], **counts) for target in phase.loads]
            metrics = {"host": {"cpu.user": 1.0}}
            found.append(PhaseResult(phase=phase.name, start=start, end=end, overlap=1, targets=targets, metrics=metrics))
        host = part.deployment.hosts[0].name
        samples = [(at, "cpu", "host", {"cpu.user": value}) for at, value in zip(windows[0], (1.0, 2.0), strict=True)]
        write_samples(self.scratch, samples)
        self.files = [FileChunk("samples/cpu.parquet", (self.scratch / "samples/cpu.parquet").read_bytes())]
        self.files += [FileChunk(path, host.encode()) for one in found for target in one.targets for path in target.raw]
        self.files += [FileChunk("samples/not-read.txt", b"x"), FileChunk("samples/not-read.txt", b"y")]
        verdict = Check(name="steal", kind="noise", result="pass", observed="0 %", expected="≤ 2 %")
        return HostResult(found, [verdict], (OomKill(container=f"{host}x", processes=1, time=windows[0][0]),))

    def collect(self, at=(0, 0)):
        number = at[0]
        return [self.files[number]], (number + 1, 0) if number + 1 < len(self.files) else None

    def discard(self):
        self.said.append(("discard",))

    def failed(self, part, limits):
        self.said.append(("failed",))
        return HostResult([], [], ())

    def settings(self, target):
        return {"work_mem": "8MB"} if target != "b/db2/pg/bench" else {"work_mem": "9MB"}

    def probe(self, part):
        return {"database_bytes": 1.0}

    def glimpse(self):
        return HostSnapshot([(time.time(), "cpu", "host", {"cpu.user": 1.0})], [])

    def step(self):
        return "cloning"

    def call_off(self):
        self.said.append(("call_off",))

    def close(self):
        self.said.append(("close",))
        return ["not undone: a mount"]


class Notes(RunObserver):
    def __init__(self):
        self.notes, self.phases = [], []

    def note(self, text):
        self.notes.append(text)

    def phase(self, name, ramp, seconds):
        self.phases.append(name)


def cluster(**fields):
    hosts = [{"name": name, "cores": cores, "memory": 100 * cores} for name, cores in (("a", 2), ("b", 2))]
    return Cluster.model_validate({"address": "x", "hosts": hosts, **fields})


def trial(script="builtin:select-only", seconds=0.2):
    made = [{"name": f"db{i}", "vcpus": 1, "servers": [{"bin": "/pg", "version": "18.6"}]} for i in (1, 2, 3)]
    loads = {f"local/db{i}/pg/bench": {"scripts": [{"source": script}]} for i in (1, 2)}
    return Trial.model_validate(
        {
            "point": {"databases": 2},
            "deployment": {"hosts": [{"name": "local", "cores": 4, "containers": made}]},
            "phases": [{"name": "p", "warmup": 0.1, "seconds": seconds, "loads": loads}],
            "validity_checks": ["cached"],
        }
    )


@pytest.fixture
def scene(engine_of, tmp_path):
    """A bench over two hosts, one of which is a hundred seconds ahead and the other fifty behind."""
    engine = engine_of(["a", "b"], {"a": (100.0, 0.001), "b": (-50.0, 0.002)})
    made = []

    def make():
        made.append(Agent(tmp_path / f"agent{len(made)}"))
        made[-1].scratch.mkdir()
        return made[-1]

    watcher = Notes()

    def backend(**fields):
        pool = AgentPool(engine, make)
        found = ClusterBackend(
            pool, cluster(**fields), RUN, RunEnvironment(runtime="cgroup", cores=4, memory=400), {"/pg": "18.6"}, watcher
        )
        found.open()
        return found

    backend.engine, backend.watcher, backend.directory = engine, watcher, tmp_path / "trial"
    backend.directory.mkdir()
    return backend


def play(backend, scene, wanted=None):
    placed = backend.placed(wanted or trial())
    words = backend.apply(placed)
    return placed, words, backend.run(placed, "0001", scene.directory, LIMITS, scene.watcher)


def test_each_host_is_opened_with_its_own_budget_and_name(scene):
    scene()
    found = {host: agent.opened for host, agent in scene.engine.actors_of.items()}
    assert {host: (s.cores, s.memory, p) for host, (_, s, p) in found.items()} == {h: (2, 200, {"/pg": "18.6"}) for h in ("a", "b")}
    names = {run for run, *_ in found.values()}
    assert len(names) == 2 and names == {agents_run(RUN, "a"), agents_run(RUN, "b")}
    assert all(name.startswith("20261122-093000-density-") and len(name) == len(RUN) for name in names)
    assert scene.watcher.notes == ["on host a: removed a directory", "on host b: removed a directory"]


def test_the_facts_of_each_host_are_read_when_the_run_is_opened(scene, monkeypatch):
    assert scene().facts == {"a": FACTS, "b": FACTS}
    later = FACTS.model_copy(update={"kernel": "6.9"})
    monkeypatch.setattr(Agent, "hello", lambda agent: HostInfo(later, "0", (), {}, 0))
    assert scene().facts == {"a": later, "b": later}


def test_a_trial_is_played_in_step_and_put_together(scene):
    backend = scene()
    before = time.time()
    _, words, played = play(backend, scene)
    assert words == "a: 2 kept; b: 2 kept"
    agents = scene.engine.actors_of
    begins = {host: next(said[2] for said in agent.said if said[0] == "play") for host, agent in agents.items()}
    assert begins["a"] - 100.0 == pytest.approx(begins["b"] + 50.0, abs=1e-6), "one instant, by two clocks"
    assert begins["a"] - 100.0 > before + 0.5 * LEAD_S
    (phase,) = played.phases
    assert [target.target for target in phase.targets] == ["a/db1/pg/bench", "b/db2/pg/bench"]
    assert phase.end - phase.start == pytest.approx(0.2, abs=1e-6) and phase.overlap == pytest.approx(1 - 0.004 / 0.2, abs=1e-6)
    assert phase.targets[0].first == pytest.approx(phase.targets[1].first, abs=1e-6)
    assert phase.metrics["host"] == {"cpu.user": 2.0} and phase.metrics["host:b"] == {"cpu.user": 1.0}
    assert {kill.container for kill in played.oom_kills} == {"ax", "bx"}
    verdicts = {one.name: one.result for one in played.checks}
    assert verdicts == {"steal": "pass", "overlap": "pass", "clock-offset": "pass", "start-skew": "pass", "all-hosts-present": "pass"}


def test_templates_are_looked_for_before_the_deployment_and_anew_when_all_begin_anew(scene):
    backend = scene()
    for _ in range(2):
        backend.apply(backend.placed(trial()))
    agent = scene.engine.actors_of["b"]
    assert [said[:2] for said in agent.said if said[0] in ("templates", "apply")][:2] == [
        ("templates", "lacks"),
        ("apply", agent.said[-1][1]),
    ]
    assert sum(said[0] == "templates" for said in agent.said) == 1
    lacked = next(said[2] for said in agent.said if said[0] == "templates")
    assert [host.name for host in lacked.deployment.hosts] == ["b"]
    scene.engine.lose("a")
    with contextlib.suppress(TrialError):
        backend.apply(backend.placed(trial()))
    scene.engine.find("a")
    backend.apply(backend.placed(trial()))
    assert sum(said[0] == "templates" for said in scene.engine.actors_of["b"].said) == 1, "by the agents that were made then"


def test_files_of_all_hosts_stand_where_a_reader_looks_for_them(scene):
    backend = scene()
    _, _, played = play(backend, scene)
    (phase,) = played.phases
    times = read_samples(scene.directory, "cpu", "cpu.user")
    assert [(entity, value) for _, entity, value in times] == [("host:a", 1.0), ("host:b", 1.0), ("host:a", 2.0), ("host:b", 2.0)]
    assert times[0][0] == pytest.approx(phase.start, abs=1e-3) and times[3][0] == pytest.approx(phase.end, abs=1e-3)
    for target in phase.targets:
        assert (scene.directory / target.raw[0]).read_text() == target.target[0]
    files = sorted(str(path.relative_to(scene.directory)) for path in scene.directory.rglob("*") if path.is_file())
    assert files == [
        "drivers/00-p/a.db1.pg.bench/stdout",
        "drivers/00-p/b.db2.pg.bench/stdout",
        "hosts/a/samples/not-read.txt",
        "hosts/b/samples/not-read.txt",
        "samples/cpu.parquet",
    ]
    assert (scene.directory / "hosts/a/samples/not-read.txt").read_text() == "xy"
    assert all(agent.said[-1] == ("discard",) for agent in scene.engine.actors_of.values())


def test_while_it_is_played_something_of_it_is_shown(scene, monkeypatch):
    monkeypatch.setattr(cluster_backend, "_QUIET_S", 0.0)
    monkeypatch.setattr(cluster_backend, "FORWARD_INTERVAL_S", 0.1)
    shown = threading.Event()

    class Looking(Notes):
        def phase(self, name, ramp, seconds):
            threading.Thread(target=self.look, daemon=True).start()

        def look(self):
            deadline = time.monotonic() + 20
            while time.monotonic() < deadline and not shown.is_set():
                with contextlib.suppress(OSError):
                    text = (scene.directory / SPOOL).read_text()
                    if '"host:a"' in text and '"host:b"' in text:
                        shown.set()
                time.sleep(0.01)

    backend = scene()
    for agent in scene.engine.actors_of.values():
        agent.until = shown
    placed = backend.placed(trial())
    backend.apply(placed)
    backend.run(placed, "0001", scene.directory, LIMITS, Looking())
    assert shown.is_set() and not (scene.directory / SPOOL).exists(), "and it is gone when all samples are there"


def test_a_host_that_hands_over_other_files_is_refused(scene):
    backend = scene()
    agent = scene.engine.actors_of["b"]
    results = agent.results

    def evil(*arguments):
        found = results(*arguments)
        agent.files.append(FileChunk("../../../outside", b"x"))
        return found

    agent.results = evil
    with pytest.raises(TrialError, match="outside of the trial's directory"):
        play(backend, scene)


def test_a_file_that_arrives_after_ctrl_c_is_not_written(scene, monkeypatch):
    """By then the run has removed the trial."""
    backend = scene()
    asked, answer = threading.Event(), threading.Event()

    def collect(at):
        asked.set()
        answer.wait(20)
        return [FileChunk("drivers/00-p/stdout", b"x")], None

    monkeypatch.setattr(scene.engine.actors_of["b"], "collect", collect)
    fetching = []

    def interrupted(work, hosts):
        fetching.extend(threading.Thread(target=work, args=(host,)) for host in hosts)
        fetching[0].start()
        asked.wait(20)
        raise KeyboardInterrupt

    monkeypatch.setattr(backend._pool, "side_by_side", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend._collect(["b"], scene.directory, Clocks(), 0.0)
    scene.directory.rmdir()
    answer.set()
    fetching[0].join(20)
    assert not fetching[0].is_alive() and not scene.directory.exists()


def test_hosts_that_begin_late_are_seen(scene):
    backend = scene()
    scene.engine.actors_of["b"].late = 0.15
    _, _, played = play(backend, scene)
    verdicts = {one.name: one for one in played.checks}
    assert verdicts["start-skew"].result == "fail" and "b was the last" in verdicts["start-skew"].observed
    assert verdicts["overlap"].result == "fail" and played.phases[0].overlap == pytest.approx((0.15 - 0.004) / 0.2, abs=1e-6)


def test_targets_that_switch_apart_on_two_hosts_are_seen(scene):
    backend, asked = scene(), trial()
    (phase,) = asked.phases
    asked = asked.model_copy(update={"phases": tuple(phase.model_copy(update={"name": name}) for name in ("w1", "w2"))})
    for behind, result in ((0.05, "pass"), (0.15, "fail")):
        scene.engine.actors_of["b"].behind = behind
        _, _, played = play(backend, scene, asked)
        assert [one.skew for one in played.phases] == pytest.approx([behind + 0.004] * 2, abs=1e-6), "by the corrected clocks"
        (found,) = [one for one in played.checks if one.name == "switch-skew"]
        assert found.result == result and found.observed.startswith(f"{1000 * behind + 4:.0f} ms (w"), found
        assert "b/db2/pg/bench the last, over all hosts" in found.observed
        scene.directory = scene.directory.with_name(f"after-{result}")
        scene.directory.mkdir()


def test_a_clock_that_was_set_while_it_was_played_is_seen(scene):
    backend = scene()
    now = time.time()
    rough = {"uncertainty": 0.02, "round_trip": 0.04, "n": 1}
    set_and_back, before = HostClockOffset(seconds=101.0, at=now + 1.0, **rough), HostClockOffset(seconds=99.0, at=now - 60.0, **rough)
    scene.engine.beats_of = {"a": [before], "b": [HostClockOffset(seconds=-50.01, at=now + 1.0, **rough)]}
    _, _, played = play(backend, scene)
    assert next(one for one in played.checks if one.name == "clock-offset").result == "pass", "rough ones spoil nothing"
    scene.engine.beats_of["a"].append(set_and_back)
    scene.directory = scene.directory.with_name("another")
    scene.directory.mkdir()
    _, _, played = play(backend, scene)
    found = next(one for one in played.checks if one.name == "clock-offset")
    assert found.result == "fail" and found.observed == "a: +100000.00 ms ± 980 ms, the least certain", found


def test_the_lead_follows_what_the_hosts_need(scene):
    backend = scene()
    play(backend, scene)
    scene.directory = scene.directory.with_name("another")
    scene.directory.mkdir()
    began = time.time()
    play(backend, scene, trial())
    begin = [said[2] for said in scene.engine.actors_of["b"].said if said[0] == "play"][-1] + 50.0
    assert begin - began < LEAD_S, "it was ready in a tenth of a second"


def test_the_longest_lead_is_tried_before_the_run_is_given_up(scene):
    backend = scene()
    placed = backend.placed(trial())
    for _ in range(_MAX_CONSECUTIVE_FAILURES - 1):
        backend.failed(placed, LIMITS)
    assert backend._lead == cluster_backend.MAX_LEAD_S


def test_loading_may_take_as_long_as_on_one_host(scene):
    """An SQL file alone may take a day. Whether a host is lost, its heartbeats tell."""
    backend = scene()
    timeouts, call = {}, backend._pool.call

    def noted(host, method, *arguments, timeout=60.0):
        timeouts[method] = timeout
        return call(host, method, *arguments, timeout=timeout)

    backend._pool.call = noted
    placed = backend.placed(trial())
    backend.apply(placed)
    backend.probe(placed)
    assert timeouts["apply"] > 24 * 3600 < timeouts["probe"]


def test_the_user_s_scripts_go_to_each_host_once(scene, tmp_path):
    backend = scene()
    script = tmp_path / "new.sql"
    script.write_text("SELECT 1;")
    play(backend, scene, trial(str(script)))
    for agent in scene.engine.actors_of.values():
        assert [said for said in agent.said if said[0] == "put"] == [("put", "000-new.sql", b"SELECT 1;")]
        part = next(said[1] for said in agent.said if said[0] == "play")
        assert {script.source for load in part.phases[0].loads.values() for script in load.scripts} == {"/there/000-new.sql"}


def test_a_host_that_is_lost_taints_the_trial_and_the_run_goes_on_with_the_rest(scene):
    backend = scene()
    placed = backend.placed(trial())
    backend.apply(placed)
    scene.engine.lose("b", "it hangs")
    with pytest.raises(TrialError, match="host b is lost: it hangs"):
        backend.run(placed, "0001", scene.directory, LIMITS, scene.watcher)
    failed = backend.failed(placed, LIMITS)
    (verdict,) = failed.checks
    assert (verdict.name, verdict.result) == ("all-hosts-present", "fail") and "it hangs" in verdict.reason
    again = backend.placed(trial())
    assert [(host.name, len(host.containers)) for host in again.deployment.hosts] == [("a", 3)]
    backend.apply(again)
    played = backend.run(again, "0002", scene.directory, LIMITS, scene.watcher)
    assert {one.name: one.result for one in played.checks}["all-hosts-present"] == "fail"


def test_hosts_that_are_lost_one_after_the_other_end_no_run(scene, tmp_path):
    backend = scene()
    script = tmp_path / "new.sql"
    script.write_text("SELECT 1;")
    placed = backend.placed(trial(str(script)))
    scene.engine.lose("a")
    with pytest.raises(TrialError, match="host a is lost"):
        backend.apply(placed)
    scene.engine.lose("b")
    assert {one.name: one.result for one in backend.failed(placed, LIMITS).checks} == {"all-hosts-present": "fail"}


def test_a_host_that_comes_back_is_used_again(scene):
    backend = scene()
    placed = backend.placed(trial())
    scene.engine.lose("b")
    with pytest.raises(TrialError):
        backend.apply(placed)
    scene.engine.find("b")
    again = backend.placed(trial())
    assert [host.name for host in again.deployment.hosts] == ["a", "b"]
    assert any("b has returned" in note for note in scene.watcher.notes)
    assert scene.engine.actors_of["b"].opened is not None


def test_a_run_that_is_to_stop_says_how_to_go_on(scene):
    backend = scene(on_lost_host="stop")
    placed = backend.placed(trial())
    scene.engine.lose("b", "it hangs")
    with pytest.raises(TrialError):
        backend.apply(placed)
    with pytest.raises(PgherdError, match=rf"host b is lost \(it hangs\), and the run stops then .*pgherd resume {RUN}"):
        backend.placed(trial())


def test_without_any_host_a_run_ends(scene):
    backend = scene()
    placed = backend.placed(trial())
    scene.engine.lose("a"), scene.engine.lose("b")
    with pytest.raises(TrialError):
        backend.apply(placed)
    backend.failed(placed, LIMITS)
    with pytest.raises(PgherdError, match="no host remains"):
        backend.placed(trial())


def test_a_run_does_not_begin_without_all_its_hosts(scene):
    scene.engine.lose("b", "it has not joined")
    with pytest.raises(TrialError, match=r"not all hosts of the run are present: b \(it has not joined\)"):
        scene()


def test_a_driver_that_fails_on_one_host_ends_the_trial_on_all(scene):
    backend = scene()
    placed = backend.placed(trial())
    backend.apply(placed)
    scene.engine.actors_of["a"].trouble = TrialError("pgbench ended early")
    with pytest.raises(TrialError, match="on host a: pgbench ended early"):
        backend.run(placed, "0001", scene.directory, LIMITS, scene.watcher)
    backend.failed(placed, LIMITS)
    assert all(agent.said[-1] == ("failed",) for agent in scene.engine.actors_of.values())
    assert backend.placed(trial()).deployment.hosts[1].name == "b", "no host is lost by that"


def test_placements_that_do_not_fit_are_told(scene):
    with pytest.raises(PgherdError, match="has no host for container db2"):
        scene(placement="listed:db1=a").placed(trial())


def test_settings_and_probes_come_from_the_host_that_has_them(scene):
    backend = scene()
    assert backend.settings() == {"work_mem": "8MB"} and backend.settings("b/db2/pg/bench") == {"work_mem": "9MB"}
    assert backend.probe(backend.placed(trial())) == {"database_bytes": 1.0}


def test_the_end_reaches_every_host(scene):
    backend = scene()
    backend.close()
    assert all(agent.said[-1] == ("close",) for agent in scene.engine.actors_of.values())
    assert "on host b: not undone: a mount" in scene.watcher.notes


def test_phases_are_shown_as_they_begin(scene):
    backend = scene()
    placed = backend.placed(trial())
    backend.apply(placed)
    agent = scene.engine.actors_of["a"]
    quick = agent.run

    def slow(part, name, begin):
        time.sleep(max(0.0, begin - 100.0 - time.time()) + 0.6)
        return quick(part, name, begin)

    agent.run = slow
    backend.run(placed, "0001", scene.directory, LIMITS, scene.watcher)
    assert scene.watcher.phases == ["p"]


def test_a_command_that_ends_by_itself_may_take_as_long_as_it_may(scene):
    """Nobody planned its seconds; its host is not lost for that."""
    backend = scene()
    asked = Trial.model_validate(
        {
            "point": {"hosts": 2},
            "deployment": {"hosts": [{"name": "a"}, {"name": "b"}]},
            "phases": [{"name": "command", "seconds": 600, "until": "drivers", "loads": {"a": {"driver": "command"}}}],
        }
    )
    assert asked.open_ended
    timeouts, call = [], backend._pool.call

    def noted(host, method, *arguments, timeout=0.0):
        if method == "run":
            timeouts.append((host, timeout))
        return call(host, method, *arguments, timeout=timeout or 60.0)

    backend._pool.call = noted
    for agent in scene.engine.actors_of.values():
        agent.results = lambda part, windows, limits: (
            windows is None and HostResult([PhaseResult(phase="command", start=1, end=2, overlap=1, targets=[])], [], ())
        )
        agent.collect = lambda at: ([], None)
    played = backend.run(backend.placed(asked), "0001", scene.directory, LIMITS, scene.watcher)
    assert [host for host, _ in timeouts] == ["a"], "host b has no command, and nothing to wait for"
    assert timeouts[0][1] > 600 + transaction_timeout(600), "the last transactions may take as long as the phase"
    assert "overlap" not in {one.name for one in played.checks}


def served_from_another(scene):
    """A bench whose clients run on host b; its agents know of ways."""
    backend = scene(client="b")
    return backend, scene.engine.actors_of["a"], scene.engine.actors_of["b"]


def test_clients_on_a_host_of_their_own_are_told_the_way_and_their_counts_judged_by_the_servers_host(scene):
    backend, servers, clients = served_from_another(scene)
    assert servers.opened[1].listen == "127.0.0.1" and clients.opened[1].listen is None
    placed, words, played = play(backend, scene)
    assert words == "a: 2 kept; b: 2 kept"
    applied = {host: next(said[1] for said in agent.said if said[0] == "apply") for host, agent in (("a", servers), ("b", clients))}
    assert len(list(applied["a"].deployment.servers())) == 3 and not list(applied["b"].deployment.servers())
    assert sorted(applied["a"].phases[0].loads) == ["a/db1/pg/bench", "a/db2/pg/bench"], "what is to be written is known to the servers"
    assert next(said[1] for said in clients.said if said[0] == "learn") == {"a/db1/pg/bench": "a way", "a/db2/pg/bench": "a way"}
    driven = {host: next(said[1] for said in agent.said if said[0] == "play") for host, agent in (("a", servers), ("b", clients))}
    assert driven["a"].phases[0].loads == {} and sorted(driven["b"].phases[0].loads) == ["a/db1/pg/bench", "a/db2/pg/bench"]
    assert clients.counted[0].validity_checks == () and clients.counted[1] is None
    part, others = servers.counted
    assert part.validity_checks == placed.validity_checks == ("cached",) and [[target.target for target in one] for one in others] == [
        ["a/db1/pg/bench", "a/db2/pg/bench"]
    ]
    (phase,) = played.phases
    assert [target.target for target in phase.targets] == ["a/db1/pg/bench", "a/db2/pg/bench"], "none of them twice"


def test_of_hosts_that_take_turns_a_lost_one_is_missed_by_its_own_trials_only(scene):
    backend = scene(in_turn=True)
    scene.engine.lose("b")
    with contextlib.suppress(TrialError):
        backend._pool.call("b", "step")
    pinned = trial()
    hosts = tuple(host.model_copy(update={"labels": {"host": "b"}}) for host in pinned.deployment.hosts)
    pinned = pinned.model_copy(update={"deployment": pinned.deployment.model_copy(update={"hosts": hosts})})
    placed, _, played = play(backend, scene, pinned)
    assert [host.name for host in placed.deployment.hosts] == ["a"]
    assert {one.name: one.result for one in played.checks}["all-hosts-present"] == "pass"


def test_a_trial_of_which_nothing_is_left_fails_at_once(scene):
    backend = scene()
    link = {"name": "b", "kind": "hosts", "near": "a", "host": "10.0.0.2"}
    wanted = Trial.model_validate(
        {
            "point": {"link": "a/b"},
            "deployment": {"hosts": [{"name": "a"}, {"name": "b"}], "links": [link]},
            "phases": [{"loads": {"a/b": {"driver": "iperf3"}}}],
        }
    )
    assert backend.placed(wanted) is wanted
    scene.engine.lose("b")
    backend._pool.lost["b"] = "no sign of life for 8 s"
    with pytest.raises(TrialError, match=r"host b is lost \(no sign of life for 8 s\), and this trial has nothing to load without it"):
        backend.apply(backend.placed(wanted))


def test_whether_clients_on_a_host_of_their_own_were_the_limit_is_judged_there(scene):
    backend, servers, clients = served_from_another(scene)
    play(backend, scene, trial().model_copy(update={"validity_checks": ("cached", "not-client-bound")}))
    assert clients.counted[0].validity_checks == ("not-client-bound",) and servers.counted[0].validity_checks == ("cached",)
