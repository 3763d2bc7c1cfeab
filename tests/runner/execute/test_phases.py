"""Phases, with drivers that are small shell scripts: what is ended when, and what becomes of one that fails.

Guests are nodes that read this machine; tests/it/test_vm.py samples real ones.
"""

import errno
import gzip
import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from pgherd.drivers.command import ENDED
from pgherd.drivers.driver import DriverSpan
from pgherd.metrics.sampler import SamplingView
from pgherd.model.deployment import Container, Deployment, Host
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.load import Load, Phase
from pgherd.model.result import TargetResult
from pgherd.model.trial import Trial
from pgherd.node import interruption
from pgherd.node.local import LocalNode
from pgherd.node.process import real_time
from pgherd.runner.deploy.targets import TargetEndpoint
from pgherd.runner.execute import driver_launch, phases
from pgherd.runner.execute.phases import GuestSamplers
from pgherd.runner.progress import RunObserver
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.runtimes.vm.guest_spool import GuestClock, GuestClockOffset

TARGETS = ("local/db01/pg/bench", "local/db02/pg/bench")


class Shell:
    """A driver: the load's option ``script`` is what it does; it counts one transaction a line."""

    name, stop_signal, exit_codes = "shell", signal.SIGTERM, (0,)

    def argv(self, load, endpoint, seconds):
        return ["/bin/sh", "-c", load.options["script"], "sh", endpoint.target]

    def span(self, files, started, stop):
        if "stdout" not in files:
            raise ValueError("it wrote nothing")
        if "late" in files["stdout"]:
            return DriverSpan(stop, stop + 1)
        return DriverSpan(started, stop)

    def result(self, load, files, started, window, target):
        return TargetResult(
            target=target, driver=self.name, transactions=1, throughput=1 / (window.end - window.start), first=started, last=window.stop
        )


@pytest.fixture(autouse=True)
def _shell(monkeypatch):
    monkeypatch.setattr(driver_launch, "driver_named", lambda name: Shell())


class Stage:
    """Two databases that need not exist."""

    account = None

    def __init__(self):
        self.dies = False

    def endpoint(self, target):
        return TargetEndpoint(ContainerHandle(target.split("/")[1]), "/bin", "/nowhere", 1, "bench", "postgres", 1)

    def script(self, script):
        return script

    def view(self):
        return SamplingView()

    def guests(self):
        return {}

    def check(self):
        if self.dies:
            raise TrialError("server db01/pg has died")

    def error_text(self, target):
        return f"the log of {target}"


class Heard(RunObserver):
    def __init__(self):
        self.phases = []

    def phase(self, name, ramp, seconds):
        self.phases.append((name, ramp, seconds))


RUNS_ON = "trap 'echo ended; exit 0' TERM; echo begun; while :; do sleep 0.02; done"


class Listening(RunObserver):
    """Waits at the start of each phase until its drivers listen, as ``Patient`` does for those that are spawned then."""

    def __init__(self, scratch):
        self.scratch = scratch
        self.number = 0

    def phase(self, name, ramp, seconds):
        deadline = time.monotonic() + 60
        outputs = list(self.scratch.glob(f"{self.number:02d}/*/stdout"))
        while not all("begun" in path.read_text() for path in outputs):
            assert time.monotonic() < deadline, f"not all drivers of {name} have begun after a minute"
            time.sleep(0.005)
        self.number += 1


class Patient(LocalNode):
    """What runs on until it is told to end is spawned when it listens: a busy machine may take longer for that than a phase lasts."""

    def spawn(self, command):
        process = super().spawn(command)
        deadline = time.monotonic() + 60
        held = command.stdin is not None  # it waits for its phase
        while not held and any(RUNS_ON in word for word in command.argv) and "begun" not in Path(command.stdout).read_text():
            assert time.monotonic() < deadline, f"{command.argv} has not begun after a minute"
            if process.poll() is not None:
                break
            time.sleep(0.005)
        return process


def trial(*scripts, seconds=0.3, ramp=0.0, until="clock"):
    """One phase for each script, which all targets run."""
    played = [
        Phase.model_construct(
            name=f"p{number}",
            warmup=ramp,
            seconds=seconds,
            loads={target: Load(driver="shell", options={"script": script}) for target in TARGETS},
            until=until,
        )
        for number, script in enumerate(scripts)
    ]
    return Trial.model_construct(point={"databases": 2}, repeat=0, phases=tuple(played), validity_checks=())


@pytest.fixture
def play(tmp_path):
    """Play a trial; where its results lie, and where its drivers work."""
    for name in ("trial", "scratch"):
        (tmp_path / name).mkdir()

    def play(wanted, resolver=None, watcher=None, node=None):
        return phases.run(
            node or Patient(), wanted, resolver or Stage(), tmp_path / "trial", tmp_path / "scratch", watcher or RunObserver()
        )

    return play


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(autouse=True)
def _no_driver_outlives_its_trial():
    before = _children()
    yield
    assert _children() <= before


def test_all_drivers_of_a_phase_run_together_and_end_when_told(play, tmp_path):
    watcher = Heard()
    results, jump = play(trial(RUNS_ON), watcher=watcher)
    (result,) = results
    assert watcher.phases == [("p0", 0.0, 0.3)]
    assert [target.target for target in result.targets] == list(TARGETS)
    assert result.seconds >= 0.3 and isinstance(jump, float)
    for target in result.targets:
        texts = [(tmp_path / "trial" / raw).read_text() for raw in target.raw]
        assert "begun\nended\n" in texts, "its output lies in the trial's directory"
        assert target.client_cpu is not None and target.client_cpu_seconds >= 0
    assert list((tmp_path / "trial/samples").glob("*.parquet")) and not (tmp_path / "trial/spool.jsonl").exists()


def test_the_ramp_is_not_counted(play):
    ((result,), _) = play(trial(RUNS_ON, seconds=0.2, ramp=0.4))
    assert result.start >= min(target.first for target in result.targets) + 0.35


def test_phases_follow_each_other(play):
    results, _ = play(trial(RUNS_ON, RUNS_ON))
    assert [result.phase for result in results] == ["p0", "p1"]
    assert results[1].start >= results[0].end


class Noting(Patient):
    def __init__(self):
        super().__init__()
        self.held = []

    def spawn(self, command):
        self.held.append(command.stdin is not None)
        return super().spawn(command)


def test_drivers_are_spawned_in_the_warmup_of_the_phase_before(play, tmp_path):
    node = Noting()
    results, _ = play(trial(RUNS_ON, RUNS_ON, seconds=0.5, ramp=2.0), watcher=Listening(tmp_path / "scratch"), node=node)
    assert node.held == [False, False, True, True]
    assert results[1].start >= results[0].end and all(len(result.targets) == 2 for result in results)


def test_drivers_that_wait_end_with_a_trial_that_fails(play):
    node = Noting()
    with pytest.raises(TrialError, match="ended early with exit code 3"):
        play(trial("sleep 3; exit 3", RUNS_ON, seconds=60, ramp=2.0), node=node)
    assert node.held == [False, False, True, True], "two waited"


class Limited(Stage):
    """A container of which the kernel takes a limit at the third attempt, or never."""

    def __init__(self, refused=2, error=None):
        super().__init__()
        self.refused, self.error = refused, error
        self.attempts = []
        self.policies = []

    def try_memory(self, container, memory):
        self.attempts.append((container, memory))
        self.policies.append(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK)
        if self.error is not None:
            raise self.error
        self.refused -= 1
        return self.refused < 0


def limited(*limits):
    host = Host(containers=(Container(name="db01", memory=1000),))
    one = trial(*[RUNS_ON] * len(limits))
    phases_ = [
        phase.model_copy(update={"memory": {"db01": limit} if limit else {}}) for phase, limit in zip(one.phases, limits, strict=True)
    ]
    return one.model_copy(update={"phases": tuple(phases_), "deployment": Deployment(hosts=(host,))})


def test_a_limit_is_tried_until_it_is_taken_and_given_back(play):
    stage = Limited()
    (first, second), _ = play(limited(None, 500), stage)
    assert first.limited_after == {} and 0 < second.limited_after["db01"] < 0.3
    assert stage.attempts == [("db01", 500)] * 4 + [("db01", 1000)], "once more at the end of the phase"


def test_limits_are_written_in_real_time(play):
    """On a full host an ordinary thread waits for a CPU while the kernel should reclaim, for up to the whole phase."""
    with real_time():
        able = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
    if not able:
        pytest.skip("this user may not use SCHED_FIFO")
    stage = Limited()
    play(limited(500), stage)
    assert stage.policies[:3] == [os.SCHED_FIFO] * 3


class Reclaimed(Limited):
    """A guest that has taken its memory back by the end of the phase."""

    def try_memory(self, container, memory):
        super().try_memory(container, memory)
        return len(self.attempts) != 2


def test_a_limit_that_is_left_again_is_none(play):
    stage = Reclaimed()
    ((result,), _) = play(limited(500), stage)
    assert result.limited_after == {"db01": None} and stage.attempts == [("db01", 500)] * 2 + [("db01", 1000)]


def test_a_limit_that_is_never_taken_is_a_result(play):
    stage = Limited(refused=10**6)
    ((result,), _) = play(limited(500), stage)
    assert result.limited_after == {"db01": None} and len(stage.attempts) > 2
    assert stage.attempts[-1] == ("db01", 1000)


class Reclaiming(Limited):
    """A kernel that reclaims memory during one write, until the load has ended."""

    def __init__(self, node):
        super().__init__(refused=0)
        self.node = node

    def try_memory(self, container, memory):
        drivers = [] if self.attempts else self.node.spawned
        for driver in drivers:
            driver.wait(60)
        return super().try_memory(container, memory)


class Remembering(Patient):
    def __init__(self):
        super().__init__()
        self.spawned = []

    def spawn(self, command):
        process = super().spawn(command)
        self.spawned.append(process)
        return process


def test_a_write_that_lasts_longer_than_the_phase_does_not_delay_its_end(play):
    """Without a thread for it, the write would wait for drivers that nothing ends."""
    node = Remembering()
    stage = Reclaiming(node)
    ((result,), _) = play(limited(500), stage, node=node)
    assert result.limited_after == {"db01": None}, "it was taken after the load had ended"
    assert result.limit_wait > 0
    assert stage.attempts == [("db01", 500), ("db01", 1000)]


class Stuck(Limited):
    """A kernel that reclaims memory during one write for longer than pgherd waits."""

    def __init__(self):
        super().__init__(refused=0)
        self.freed = threading.Event()

    def try_memory(self, container, memory):
        if not self.attempts:
            self.attempts.append((container, memory))
            self.freed.wait(60)
        return super().try_memory(container, memory)


def test_a_write_that_does_not_end_fails_the_trial(play, monkeypatch):
    monkeypatch.setattr(phases, "_LIMIT_TIMEOUT_S", 0.1)
    stage = Stuck()
    try:
        with pytest.raises(TrialError, match="still reclaims memory for the limit of db01 0 s after the phase"):
            play(limited(500), stage)
        assert stage.attempts == [("db01", 500), ("db01", 1000)], "the limit is restored"
    finally:
        stage.freed.set()


def test_a_limit_that_cannot_be_changed_fails_the_trial(play):
    stage = Limited(error=CapabilityError("no limits here"))
    with pytest.raises(TrialError, match="no limits here"):
        play(limited(500), stage)
    assert stage.attempts[-1] == ("db01", 1000)


def test_phases_keep_to_an_agreed_instant(tmp_path):
    """As on several hosts: the first begins then, and every border is counted from it."""
    for name in ("trial", "scratch"):
        (tmp_path / name).mkdir()
    begin = time.time() + 3
    wanted = trial(RUNS_ON, RUNS_ON, seconds=0.4, ramp=0.2)
    listening = Listening(tmp_path / "scratch")
    driven = phases.drive(Patient(), wanted, Stage(), tmp_path / "trial", tmp_path / "scratch", listening, begin=begin)
    assert [one.start for one in driven.played] == pytest.approx([begin + 0.2, begin + 0.8])
    spans = driven.spans()
    assert all(one.earliest >= begin and one.first >= played.start for one, played in zip(spans, driven.played, strict=True))
    windows = [(one.first + 0.1, one.last - 0.1) for one in spans]
    results = driven.results(windows)
    assert [(one.start, one.end) for one in results] == windows
    assert [one.overlap for one in results] == pytest.approx(
        [(end - start) / span.planned for (start, end), span in zip(windows, spans, strict=True)]
    )


def test_an_agreed_instant_that_is_over_fails_the_trial(tmp_path):
    for name in ("trial", "scratch"):
        (tmp_path / name).mkdir()
    with pytest.raises(TrialError, match=r"should have begun \d+\.\d\d s before everything was ready"):
        phases.drive(LocalNode(), trial(RUNS_ON), Stage(), tmp_path / "trial", tmp_path / "scratch", RunObserver(), begin=time.time() - 5)


ENDS = "echo begun; case $1 in */db02/*) sleep 0.3;; esac; exit 3"


def test_a_phase_that_ends_with_its_drivers_lasts_until_the_last_of_them(play, tmp_path):
    watcher = Heard()
    ((result,), _) = play(trial(ENDS, seconds=60, until="drivers"), watcher=watcher)
    assert watcher.phases == [("p0", 0.0, 60)]
    assert 0.3 <= result.seconds < 30
    written = [tmp_path / "trial" / raw for target in result.targets for raw in target.raw if ENDED in raw]
    endings = [json.loads(gzip.decompress(path.read_bytes())) for path in written]
    assert [one["code"] for one in endings] == [3, 3], "how each ended is kept, and no failure here"
    assert endings[0]["at"] < endings[1]["at"]
    assert result.end == pytest.approx(endings[1]["at"])
    assert list((tmp_path / "trial/samples").glob("*.parquet"))


def test_a_phase_of_either_kind_may_follow_the_other(play):
    first, second = trial(ENDS, seconds=60, until="drivers").phases[0], trial(RUNS_ON).phases[0]
    one, other, last = play(trial().model_copy(update={"phases": (first, second, first)}))[0]
    assert one.end <= other.start and other.end <= last.start


def test_a_driver_that_does_not_end_by_itself_in_time_is_ended(play):
    with pytest.raises(TrialError, match=rf"shell on {TARGETS[0]} had not ended after 0\.3 s"):
        play(trial(RUNS_ON, until="drivers"))


def test_a_server_that_dies_ends_commands_too(play):
    resolver = Stage()
    resolver.dies = True
    with pytest.raises(TrialError, match="server db01/pg has died"):
        play(trial("sleep 60", seconds=60, until="drivers"), resolver)


def test_several_hosts_cannot_follow_a_phase_that_ends_with_its_drivers(tmp_path):
    for name in ("trial", "scratch"):
        (tmp_path / name).mkdir()
    wanted = trial(ENDS, ENDS, until="drivers")
    with pytest.raises(TrialError, match="only one phase, but this one has 2"):
        phases.drive(LocalNode(), wanted, Stage(), tmp_path / "trial", tmp_path / "scratch", RunObserver(), begin=time.time() + 5)


def test_how_far_apart_the_targets_began_is_recorded(play):
    results, _ = play(trial(RUNS_ON, RUNS_ON))
    for result in results:
        first = [target.first for target in result.targets]
        assert result.skew == pytest.approx(max(first) - min(first))


def test_a_load_that_ends_itself_has_no_part_in_the_window(play):
    """One driver ends at once after a late start, and the other one goes on. One that fails is no exception."""
    (phase,) = trial(RUNS_ON).phases
    single = Load(driver="shell", options={"script": "sleep 0.1; echo late", "transactions": "1"})
    failing = Load(driver="shell", options={"script": "exit 3", "transactions": "1"})
    loads = {TARGETS[0]: phase.loads[TARGETS[0]], TARGETS[1]: single}
    ((result,), _) = play(trial().model_copy(update={"phases": (phase.model_copy(update={"loads": loads}),)}))
    assert [target.target for target in result.targets] == list(TARGETS)
    assert result.skew is None and result.overlap == pytest.approx(1, abs=0.5)
    failed = phase.model_copy(update={"loads": {**loads, TARGETS[1]: failing}, "seconds": 60})
    with pytest.raises(TrialError, match="ended early with exit code 3"):
        play(trial().model_copy(update={"phases": (failed,)}))


def test_a_driver_that_ends_early_fails_the_trial_and_ends_the_others(play):
    ends = f"if [ \"$1\" = {TARGETS[0]} ]; then echo 'error: no such thing' >&2; exit 3; fi; {RUNS_ON}"
    words = rf"shell on {TARGETS[0]} ended early with exit code 3: error: no such thing; the log of {TARGETS[0]}"
    with pytest.raises(TrialError, match=words):
        play(trial(ends, seconds=60))


def test_a_driver_killed_from_outside_is_named_by_its_signal(play):
    with pytest.raises(TrialError, match=r"ended early with signal SIGKILL: \(no output\)"):
        play(trial("kill -9 $$", seconds=60))


def test_a_server_that_died_matters_more_than_what_its_driver_says(play):
    resolver = Stage()
    resolver.dies = True
    with pytest.raises(TrialError, match="server db01/pg has died"):
        play(trial("exit 1", seconds=60), resolver)


def test_a_driver_that_ends_with_an_error_when_told_to_end(play):
    with pytest.raises(TrialError, match=r"ended with exit code 5: warning: odd"):
        play(trial("trap 'echo warning: odd >&2; exit 5' TERM; while :; do sleep 0.02; done"))


def test_a_driver_that_its_own_stop_signal_ends_had_not_begun(play):
    with pytest.raises(TrialError, match=r"had not generated load when its time was over, [\d.]+ s after it was started: .*--warmup"):
        play(trial("sleep 20"))


def test_a_driver_that_does_not_end_is_killed(play, monkeypatch):
    monkeypatch.setattr("pgherd.model.load.MIN_TRANSACTION_TIMEOUT_S", 0.1)
    with pytest.raises(TrialError, match="did not end within 0 s after its stop signal"):
        play(trial("trap '' TERM; while :; do sleep 0.02; done"))


def test_a_transaction_in_progress_may_take_as_long_as_the_rehearsal_allows(play, monkeypatch):
    monkeypatch.setattr("pgherd.model.load.MIN_TRANSACTION_TIMEOUT_S", 0.1)
    play(trial("trap 'sleep 0.5; exit 0' TERM; while :; do sleep 0.02; done", seconds=3.0))


def test_output_that_cannot_be_read_fails_the_trial(play, monkeypatch):
    def span(*_):
        raise ValueError("nothing but noise")

    monkeypatch.setattr(Shell, "span", span)
    with pytest.raises(TrialError, match="nothing but noise"):
        play(trial(RUNS_ON))


def test_drivers_that_never_ran_together_measured_nothing(play):
    with pytest.raises(TrialError, match="the drivers of phase 'p0' never ran together"):
        play(trial(f"echo late; {RUNS_ON}"))


def test_ctrl_c_ends_the_drivers_at_once(play, monkeypatch):
    """Also one that nobody was told of: it is remembered."""
    heard = Heard()
    monkeypatch.setattr(heard, "phase", lambda *_: monkeypatch.setattr(interruption, "_asked", True))
    with pytest.raises(KeyboardInterrupt):
        play(trial(RUNS_ON, seconds=3600), watcher=heard)


class Begun:
    """What is begun beside a trial, and notes how it ends."""

    def __init__(self, ends, name):
        self.ends, self.name = ends, name

    def stop(self):
        self.ends.append(f"{self.name} stopped")
        return []

    def abandon(self):
        self.ends.append(f"{self.name} abandoned")


@pytest.fixture
def ends(monkeypatch):
    """What was ended of the sampling, the counters and the I/O view, in order."""
    ended = []

    def sample(self, sources, spool, period=1.0):
        sampling = Begun(ended, "sampling")
        sampling.add, sampling.backends = lambda sources: None, dict
        return sampling

    monkeypatch.setattr(LocalNode, "sample", sample)
    monkeypatch.setattr(phases.perf_counters, "begin", lambda *_: Begun(ended, "counting"))
    monkeypatch.setattr(phases.device_io, "begin", lambda *_: Begun(ended, "watching"))
    return ended


def test_nothing_runs_on_where_its_neighbour_does_not_begin(play, ends, monkeypatch):
    monkeypatch.setattr(phases.device_io, "begin", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        play(trial(RUNS_ON))
    assert ends == ["counting stopped", "sampling stopped"]
    ends.clear()
    monkeypatch.setattr(phases.perf_counters, "begin", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        play(trial(RUNS_ON))
    assert ends == ["sampling stopped"]


def test_a_trace_is_not_left_where_guests_fail_at_the_end(play, ends, monkeypatch):
    def stop(self):
        raise TrialError("the balloon manager did not finish")

    monkeypatch.setattr(phases.GuestSamplers, "stop", stop)
    with pytest.raises(TrialError, match="did not finish"):
        play(trial(RUNS_ON))
    assert ends == ["counting stopped", "watching stopped", "sampling stopped", "watching abandoned"]


def test_a_full_disk_is_told_as_such(play, monkeypatch):
    class Full(Patient):
        def sample(self, sources, spool, period=1.0):
            sampling = super().sample(sources, spool, period)
            sampling.error = OSError(errno.ENOSPC, "No space left on device", spool)
            return sampling

    with pytest.raises(OSError, match="No space left"):
        play(trial(RUNS_ON), node=Full())


class MortalServers:
    """A server that may have died."""

    said = ""

    def endpoint(self, target):
        raise AssertionError

    def check(self):
        if self.said:
            raise TrialError(self.said)


class Guest(LocalNode):
    """A guest whose clock is a hundred seconds ahead."""

    def now(self):
        return super().now() + 100


class Dead(Guest):
    def sample(self, sources, spool, period=1.0):
        raise OSError("guest a does not answer")


def handle(node):
    clock = GuestClock()
    clock.add(GuestClockOffset(0.0, 100.0, 0.001))
    return ContainerHandle("a", node=node, clock=clock)


def test_no_guests_need_nothing(tmp_path):
    sampling = GuestSamplers(tmp_path)
    sampling.begin({})
    sampling.add([], MortalServers())
    sampling.mark()
    sampling.stop()
    assert not list(tmp_path.iterdir())


def test_what_guests_have_read_ends_in_the_trials_spool(tmp_path):
    (tmp_path / "spool.jsonl").write_text(json.dumps({"sources": [["cpu", "host", "file", "/proc/stat", ""]], "first": 0}) + "\n")
    sampling = GuestSamplers(tmp_path)
    sampling.begin({"a": handle(Guest())})
    sampling.mark()
    sampling.stop()
    assert [path.name for path in tmp_path.iterdir()] == ["spool.jsonl"]
    lines = [json.loads(line) for line in (tmp_path / "spool.jsonl").read_text().splitlines()]
    entities = {source[1] for line in lines if "sources" in line for source in line["sources"]}
    assert {"host", "guest:a"} <= entities
    assert any("raw" in line for line in lines)


def test_a_guest_that_does_not_answer_fails_the_trial(tmp_path):
    sampling = GuestSamplers(tmp_path)
    with pytest.raises(TrialError, match="guest a does not answer"):
        sampling.begin({"a": handle(Dead())})
    sampling.abandon()


class Recorder:
    """Notes where it is to write."""

    def __init__(self):
        self.spools = []

    def record(self, spool):
        self.spools.append(spool)


def test_what_the_host_sees_of_the_guests_goes_into_the_trials_spool_once(tmp_path):
    recorder = Recorder()
    (tmp_path / "spool.jsonl").touch()
    handles = {name: replace(handle(Guest()), container=name, balloons=recorder) for name in ("a", "b")}
    sampling = GuestSamplers(tmp_path)
    sampling.begin(handles)
    assert recorder.spools == [tmp_path / "spool.jsonl"]
    sampling.stop()
    assert recorder.spools == [tmp_path / "spool.jsonl", None]
    another = GuestSamplers(tmp_path)
    another.begin(handles)
    another.abandon()
    assert recorder.spools[-1] is None


def test_a_trial_that_has_failed_keeps_its_reason_whatever_the_manager_says_too(tmp_path):
    class Behind(Recorder):
        def record(self, spool):
            if spool is None:
                raise TrialError("the balloon manager did not finish")

    (tmp_path / "spool.jsonl").touch()
    sampling = GuestSamplers(tmp_path)
    sampling.begin({"a": replace(handle(Guest()), balloons=Behind())})
    sampling.abandon()
