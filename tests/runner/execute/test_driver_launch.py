"""What is started for a phase's targets, and where; and loads that take turns: real processes that are stopped and go on.

tests/runner/execute/test_phases.py starts what is launched here.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.drivers.command import DRIVER, ENDED, read_exit
from pgherd.drivers.driver import DriverSpan, MeasuredWindow
from pgherd.metrics.sampler import SamplingView
from pgherd.model.errors import TrialError
from pgherd.model.load import Load, Phase, Script, TimeSlicing
from pgherd.model.result import TargetResult
from pgherd.node import interruption
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.runner.deploy.targets import NO_CONTAINER, TargetEndpoint
from pgherd.runner.execute import driver_launch
from pgherd.runner.execute import driver_launch as module
from pgherd.runner.execute.driver_launch import DriverCommand, RunningDriver, code_words, driver_sources, launches, process_sources
from pgherd.runtimes.runtime import ContainerHandle

SELECT = (Script(source="builtin:select-only"),)


class Stage:
    """Targets in rooms; ``rooms`` maps a target to its own."""

    account = None

    def __init__(self, handles):
        self.handles = handles

    def endpoint(self, target):
        return TargetEndpoint(self.handles[target], "/bin", "/sockets", 5432, "bench", "postgres", 10)

    def script(self, script):
        return script

    def view(self):
        return SamplingView()

    def guests(self):
        return {}


class Guest(LocalNode):
    """A node of its own."""

    name = "guest"


def phase(**loads):
    return Phase(name="p", warmup=1, seconds=2, loads=loads)


def test_a_load_inside_its_container_joins_it_and_one_outside_does_not(tmp_path):
    handle = ContainerHandle("a", join=("/groups/a/cgroup.procs",), cpus=(1,))
    resolver = Stage({"x/a/pg/bench": handle, "x/b/pg/bench": handle})
    wanted = phase(**{"x/a/pg/bench": Load(scripts=SELECT), "x/b/pg/bench": Load(scripts=SELECT, client_placement="outside")})
    inside, outside = launches(LocalNode(), wanted, resolver, tmp_path)
    assert (inside.command.join, inside.command.cpus) == (handle.join, (1,))
    assert (outside.command.join, outside.command.cpus) == ((), None)
    assert inside.output == tmp_path / "x.a.pg.bench" and inside.output.is_dir()
    assert "-T" in inside.command.argv and inside.command.argv[inside.command.argv.index("-T") + 1] == "63"


def test_a_driver_runs_under_the_loads_scheduling_policy(tmp_path):
    resolver = Stage({"x/a/pg/bench": ContainerHandle("a"), "x/b/pg/bench": ContainerHandle("b")})
    wanted = phase(**{"x/a/pg/bench": Load(scripts=SELECT, sched_batch=True), "x/b/pg/bench": Load(scripts=SELECT)})
    assert [launch.command.sched_batch for launch in launches(LocalNode(), wanted, resolver, tmp_path)] == [True, False]


def test_a_load_inside_a_guest_runs_on_the_guests_node(tmp_path):
    host, guest = LocalNode(), Guest()
    resolver = Stage({"x/a/pg/bench": ContainerHandle("a", join=("/groups/a/cgroup.procs",), cpus=(1,), node=guest)})
    (inside,) = launches(host, phase(**{"x/a/pg/bench": Load(scripts=SELECT)}), resolver, tmp_path)
    assert inside.node is guest and inside.command.join == () and inside.command.cpus is None
    (outside,) = launches(host, phase(**{"x/a/pg/bench": Load(scripts=SELECT, client_placement="outside")}), resolver, tmp_path / "o")
    assert outside.node is host


def test_scripts_are_carried_into_the_guest(tmp_path):
    mine = tmp_path / "mine.sql"
    mine.write_text("SELECT 1;\n")
    load = Load(scripts=(Script(source=str(mine)),))
    resolver = Stage({"x/a/pg/bench": ContainerHandle("a", node=Guest())})
    (inside,) = launches(LocalNode(), phase(**{"x/a/pg/bench": load}), resolver, tmp_path / "s")
    carried = next(word for word in inside.command.argv if word.endswith("mine.sql") or "mine.sql@" in word).partition("@")[0]
    assert carried != str(mine) and carried.startswith(str(tmp_path / "s/scripts"))
    (outside,) = launches(
        LocalNode(), phase(**{"x/a/pg/bench": load.model_copy(update={"client_placement": "outside"})}), resolver, tmp_path / "o"
    )
    assert any(word.startswith(str(mine)) for word in outside.command.argv)


@pytest.fixture
def running(tmp_path):
    """A driver that has written its words and ended."""
    resolver = Stage({"x/a/pg/bench": ContainerHandle("a")})
    (launch,) = launches(LocalNode(), phase(**{"x/a/pg/bench": Load(scripts=SELECT)}), resolver, tmp_path)
    said = "echo out; echo 'progress: 1' >&2; echo one >&2; echo two >&2"
    launch = type(launch)(**{**vars(launch), "command": type(launch.command)(**{**vars(launch.command), "argv": ["/bin/sh", "-c", said]})})
    one = RunningDriver.start(launch)
    one.process.wait(10)
    return one, resolver


def test_a_guests_instants_are_brought_to_the_hosts_clock(running):
    """Its clock is a hundred seconds ahead; the driver knows no other."""

    class Ahead:
        def host(self, at):
            return at - 100

        def guest(self, at):
            return at + 100

    class Driver:
        def span(self, files, started, stop):
            return DriverSpan(started + 1, stop)

        def result(self, load, files, started, window, target):
            self.window = window
            return TargetResult(target=target, driver="x", transactions=1, throughput=1, first=started + 1, last=window.stop)

    one, _ = running
    one.clock, one.driver, one.started = Ahead(), Driver(), 110.0
    assert one.span({}, 15.0) == DriverSpan(11.0, 15.0)
    found = one.result({}, MeasuredWindow(12.0, 14.0, 15.0))
    assert one.driver.window == MeasuredWindow(112.0, 114.0, 115.0)
    assert (found.first, found.last) == (11.0, 15.0)


def test_a_guest_that_no_longer_answers_fails_the_trial(running):
    one, _ = running
    one.output = one.output / "gone"
    with pytest.raises(OSError):
        one.files()
    one.clock = object()
    with pytest.raises(TrialError, match="cannot be fetched from its guest"):
        one.files()


def test_what_a_driver_wrote_is_read_where_it_ran(running):
    one, _ = running
    assert one.files() == {"stdout": b"out\n", "stderr": b"progress: 1\none\ntwo\n"}
    assert one.last_words() == "one / two"


def test_errors_are_its_last_words_and_silence_is_said(running):
    one, _ = running
    (one.output / "stderr").write_text("one\nerror: no such thing\ntwo\n")
    assert one.last_words() == "error: no such thing"
    (one.output / "stderr").unlink()
    assert one.last_words() == "(no output)"


def test_each_driver_is_watched_on_its_own_node(running):
    one, resolver = running
    entities = {source.entity for source in driver_sources([one], resolver, one.node)}
    assert entities == {"driver:x/a/pg/bench", "container:a"}, "no control group counts it in its container"
    assert not driver_sources([one], resolver, LocalNode())
    resolver.handles["x/a/pg/bench"] = NO_CONTAINER
    assert {source.entity for source in driver_sources([one], resolver, one.node)} == {"driver:x/a/pg/bench"}


def test_no_processes_need_no_sources():
    assert process_sources([]) == []


def test_exit_codes_in_words():
    assert code_words(3) == "exit code 3"
    assert code_words(-signal.SIGKILL) == "signal SIGKILL"


HELD = "read -r _"


@pytest.fixture
def group(tmp_path):
    """Drivers of one phase on two targets of this host, one in a guest, and one that ends by itself."""
    node, guest = LocalNode(), Guest()

    def one(target, on, **options):
        (tmp_path / target).mkdir()
        command = Command(["/bin/sh", "-c", "echo began; exec sleep 60"], stdout=str(tmp_path / target / "stdout"))
        return DriverCommand(target, Load(driver="command", options=options), DRIVER, command, tmp_path / target, on)

    commands = [one("a", node), one("guest", guest), one("once", node, transactions="1"), one("b", node)]
    made = module.PhaseDrivers(node, commands)
    running = []
    yield made, running, tmp_path
    made.abandon()
    for driver in running:
        driver.process.signal(9)
        driver.process.wait(10)


def output_of(directory):
    return {path.parent.name: path.read_text() for path in directory.glob("*/stdout")}


def await_(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def waits(pid):
    """Whether a driver has come to the line that it waits for. Before, it has the words of pgherd, or none in the middle of a change."""
    return any(HELD in word for word in Path(f"/proc/{pid}/cmdline").read_text().split("\0")[2:3])


def test_drivers_wait_for_their_phase_where_they_will_run(group):
    made, running, directory = group
    made.prepare(until=time.time() + 60)
    pids = [driver.process.pid for driver, _ in made._waiting.values()]
    assert list(made._waiting) == ["a", "b"], "of a guest, and of an idle server, nothing is there before"
    await_(lambda: all(waits(pid) for pid in pids))
    assert output_of(directory) == {"a": "", "b": ""}
    before = time.time()
    made.start(running)
    assert [driver.target for driver in running] == ["a", "guest", "once", "b"], "in the order of the loads"
    assert {driver.process.pid for driver in running} > set(pids) and all(driver.started >= before for driver in running)
    await_(lambda: list(output_of(directory).values()) == ["began\n"] * 4)
    assert all(os.readlink(f"/proc/{pid}/fd/0") == "/dev/null" for pid in pids), "as of a driver that has not waited"


def test_what_is_not_spawned_in_time_starts_with_its_phase(group):
    made, running, directory = group
    made.prepare(until=time.time())
    assert not made._waiting
    made.start(running)
    await_(lambda: list(output_of(directory).values()) == ["began\n"] * 4)


def test_a_driver_that_waits_ends_with_its_phase_or_with_pgherd(group):
    made, _, directory = group
    made.prepare(until=time.time() + 60)
    (killed, _), (left, pipe) = made._waiting.values()
    await_(lambda: waits(left.process.pid))
    os.close(pipe)  # as the end of this process does
    assert left.process.wait(60) == 96 and output_of(directory) == {"a": "", "b": ""}
    made._waiting["b"] = left, os.open("/dev/null", os.O_WRONLY)
    made.abandon()
    assert killed.process.poll() == -signal.SIGKILL and not made._waiting


class OwnEndStage:
    """Nothing that could die, unless told so."""

    def __init__(self, dies=False):
        self.dies = dies

    def check(self):
        if self.dies:
            raise TrialError("a server has died")


@pytest.fixture
def start(tmp_path):
    started = []

    def one(*words, target="local"):
        output = tmp_path / target
        output.mkdir()
        launch = DriverCommand(target, Load(driver="command"), DRIVER, Command(list(words)), output, LocalNode())
        started.append(RunningDriver.start(launch))
        return started[-1]

    yield one
    for running in started:
        running.process.signal(9)
        running.process.wait(10)


def ending(running):
    return read_exit({ENDED: running.files()[ENDED].decode()})


def test_it_waits_for_the_last_and_keeps_how_each_ended(start):
    quick, slow = start("sh", "-c", "exit 3", target="a"), start("sleep", "0.3", target="b")
    module.wait_until_ended(LocalNode(), time.time() + 20, [quick, slow], OwnEndStage())
    assert ending(quick).code == 3 and ending(slow).code == 0
    assert 0.25 < ending(slow).at - slow.started < 15
    assert ending(quick).at < ending(slow).at and slow.ended == ending(slow).at


def test_a_signal_is_an_ending_too(start):
    one = start("sh", "-c", "kill -9 $$")
    module.wait_until_ended(LocalNode(), time.time() + 20, [one], OwnEndStage())
    assert ending(one).code == -9


def test_what_does_not_end_is_a_failure_that_says_what_to_do(start):
    one = start("sleep", "60")
    with pytest.raises(TrialError, match=r"command on local had not ended after 0\.2\d* s.*--timeout.*--duration"):
        module.wait_until_ended(LocalNode(), time.time() + 0.2, [one], OwnEndStage())
    assert ENDED not in one.files()


def test_what_else_dies_meanwhile_fails_the_trial(start):
    with pytest.raises(TrialError, match="a server has died"):
        module.wait_until_ended(LocalNode(), time.time() + 20, [start("sleep", "60")], OwnEndStage(dies=True))


def test_a_signal_to_us_ends_the_waiting(start, monkeypatch):
    monkeypatch.setattr(interruption, "_asked", True)
    with pytest.raises(KeyboardInterrupt):
        module.wait_until_ended(LocalNode(), time.time() + 20, [start("sleep", "60")], OwnEndStage())


def test_what_cannot_be_ended_keeps_nobody_from_being_ended(start, monkeypatch):
    stubborn, deaf, other = start("sleep", "60", target="a"), start("sleep", "60", target="b"), start("sleep", "60", target="c")

    class Refusing:
        pid = stubborn.process.pid

        def signal(self, number):
            raise PermissionError(1, "Operation not permitted")

        def wait(self, timeout):
            raise TimeoutError

    class Deaf(Refusing):
        pid = deaf.process.pid

        def signal(self, number):
            pass

    started = [replace(stubborn, process=Refusing()), replace(deaf, process=Deaf()), other]
    monkeypatch.setattr(module, "_end_session", lambda one: None)
    module.end_all(started)
    assert other.process.poll() is not None and stubborn.process.poll() is None


def test_nothing_to_wait_for_is_over_at_once():
    module.wait_until_ended(LocalNode(), time.time(), [], OwnEndStage())
    assert not list(Path.cwd().glob(ENDED))


@pytest.mark.parametrize("what", ["soft link", "pipe", "endless", "directory"])
def test_only_regular_files_of_a_bounded_size_are_kept(running, tmp_path, what):
    one, _ = running
    out = one.output / "secret"
    if what == "soft link":
        out.symlink_to("/etc/passwd")
    elif what == "pipe":
        os.mkfifo(out)
    elif what == "directory":
        out.mkdir()
    else:
        with open(out, "wb") as sparse:
            sparse.truncate(2**40)
    with pytest.raises(TrialError, match="the output of .* cannot be kept: .*secret"):
        one.files()


def test_the_end_of_a_command_is_not_written_through_its_link(start, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    one = start("sh", "-c", f"ln -s {victim} {tmp_path}/local/ended.json; mkfifo {tmp_path}/local/stderr2")
    module.wait_until_ended(LocalNode(), time.time() + 20, [one], OwnEndStage())
    assert victim.read_text() == "kept"
    with pytest.raises(TrialError, match="ended.json is a link"):
        one.files()


def test_last_words_are_not_read_through_a_link(running):
    one, _ = running
    (one.output / "stderr").unlink()
    (one.output / "stderr").symlink_to("/etc/passwd")
    assert one.last_words() == "(no output)"


@pytest.mark.parametrize("name", ["../../../etc/x", "/etc/x", "..", "a/b", ""])
def test_a_name_of_a_guest_is_no_path(running, monkeypatch, name):
    one, _ = running
    monkeypatch.setattr(one.node, "listdir", lambda path: [name], raising=False)
    monkeypatch.setattr(one.node, "read_untrusted", lambda path, limit: b"x", raising=False)
    with pytest.raises(TrialError, match="cannot be kept: .* is not the name of a file"):
        one.files()


def test_a_privileged_command_works_in_a_directory_of_its_own_user(tmp_path):
    class Privileged(Stage):
        account = "nobody"

        def endpoint(self, target):
            return replace(super().endpoint(target), privileged=True)

    made = launches(LocalNode(), phase(**{"x/a/pg/bench": Load()}), Privileged({"x/a/pg/bench": NO_CONTAINER}), tmp_path)
    assert made[0].output.stat().st_uid == os.geteuid() and made[0].command.user is None


WORK = "import time\nwhile True: print(time.time(), flush=True); time.sleep(0.001)"
TURNS = TimeSlicing(of={"a": "one", "b": "two"}, seconds=0.1, counted=0.05, seed="7")


class Process:
    """What ``turns`` wants of a running driver's process."""

    def __init__(self, output) -> None:
        self.popen = subprocess.Popen([sys.executable, "-c", WORK], stdout=output)

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)


class Running:
    """A driver on a database of a container."""

    def __init__(self, container: str, directory) -> None:
        self.target, self.file = f"local/{container}/pg/bench", directory / container
        with open(self.file, "wb") as output:
            self.process = Process(output)

    def said(self) -> list[float]:
        return [float(line) for line in self.file.read_text().splitlines()[:-1]]


@pytest.fixture
def both(tmp_path):
    made = [Running("one", tmp_path), Running("two", tmp_path)]
    until = time.monotonic() + 30
    while not all(one.file.exists() and one.said() for one in made) and time.monotonic() < until:
        time.sleep(0.01)
    yield made
    for one in made:
        one.process.popen.kill()
        one.process.popen.wait()


def test_each_goes_on_in_its_own_turns_alone(both):
    node = LocalNode()
    driver_launch.pause_all(both)
    time.sleep(0.05)
    start = node.now()
    found = driver_launch.run_slices(node, TURNS, start, 1.2, both, lambda: None)
    assert [len(found[one.target]) for one in both] == [6, 6]
    for one in both:
        for at in one.said():
            # A print that was under way when it was stopped is told when it goes on: its time is that of before.
            assert at < start or any(turn.begun - 0.01 <= at <= turn.ended + 0.01 for turn in found[one.target]), at - start
        long = [turn for turn in found[one.target] if turn.ended - turn.begun > 0.08]  # a busy host may wake us late
        assert all(any(turn.begun <= at <= turn.ended for at in one.said()) for turn in long), "it did go on"
    every = sorted((turn.begun, turn.ended) for own in found.values() for turn in own)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(every)), "no two at once"
    assert all(turn.switches > 0 for own in found.values() for turn in own)
    assert all(one.process.popen.poll() is None for one in both)
    driver_launch.continue_all(both)
    for one in both:
        one.process.popen.send_signal(signal.SIGTERM)
        assert one.process.popen.wait(30) == -signal.SIGTERM, "what went on hears it"


def test_nothing_is_stopped_before_it_is_its_program(tmp_path):
    node, gate, looks = LocalNode(), tmp_path / "gate", []
    os.mkfifo(gate)  # stands for a group that takes its time: who joins it waits until somebody reads
    process = node.spawn(Command(["sleep", "60"], join=(str(gate),)))

    def watch() -> None:
        looks.append(process.poll())
        if len(looks) == 3:
            gate.read_bytes()

    try:
        driver_launch.await_programs(node, [SimpleNamespace(process=process, program="sleep")], watch)
        assert len(looks) >= 3 and looks[-1] is None
        assert (Path("/proc") / str(process.pid) / "comm").read_text() == "sleep\n"
    finally:
        process.signal(signal.SIGKILL)
        process.wait(30)


def test_what_ends_before_it_is_its_program_is_told(tmp_path):
    node = LocalNode()
    process = node.spawn(Command(["sleep", "60"], join=(str(tmp_path / "none" / "cgroup.procs"),)))

    def watch() -> None:
        if (code := process.poll()) is not None:
            raise TrialError(f"ended early with {code}")

    with pytest.raises(TrialError, match="ended early with"):
        driver_launch.await_programs(node, [SimpleNamespace(process=process, program="sleep")], watch)


def test_what_is_amiss_ends_the_turns(both):
    def watch():
        raise TrialError("a server died")

    driver_launch.pause_all(both)
    with pytest.raises(TrialError, match="a server died"):
        driver_launch.run_slices(LocalNode(), TURNS, time.time(), 1.0, both, watch)


def test_rounds_hold_each_name_once_in_an_order_of_the_seed_s():
    wide = TimeSlicing(of={"a": "one", "b": "two", "c": "three"}, seconds=0.1, counted=0.1, seed="x")
    found = list(driver_launch.slice_order(wide, 3.0))
    assert len(found) == 30 and all(sorted(found[i : i + 3]) == ["a", "b", "c"] for i in range(0, 30, 3))
    assert (
        found == list(driver_launch.slice_order(wide, 3.0)) != list(driver_launch.slice_order(wide.model_copy(update={"seed": "y"}), 3.0))
    )
    assert len({tuple(found[i : i + 3]) for i in range(0, 30, 3)}) > 1
    assert len(list(driver_launch.slice_order(wide, 0.01))) == 3, "a whole round at least"
