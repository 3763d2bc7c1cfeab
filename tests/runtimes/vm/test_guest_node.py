from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pgherd.metrics.spool import Spool
from pgherd.node.files import FileEnd
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, SampleSource
from pgherd.runtimes.vm import agent_tasks, agent_wire, guest_node
from pgherd.runtimes.vm.guest_node import GuestNode

if TYPE_CHECKING:
    from pgherd.node.protocol import Node

    def _is_a_node(guest: GuestNode) -> Node:
        return guest


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the account")


def test_files_are_written_whole_and_read_back(guest, tmp_path):
    file = str(tmp_path / "knob")
    guest.write(file, b"12\xc0\xdb\0")
    guest.write(file, b"3")
    assert guest.read(file) == b"3"
    assert guest.exists(file) and not guest.exists(f"{file}2")
    assert guest.listdir(str(tmp_path)) == sorted(os.listdir(tmp_path))
    assert os.stat(file).st_mode & 0o777 == 0o600


def test_names_are_bytes(plain_guest, tmp_path):
    name = os.fsdecode(b"\xff\xc0 \n")
    plain_guest.write(str(tmp_path / name), b"x")
    assert name in plain_guest.listdir(str(tmp_path)) and plain_guest.read(str(tmp_path / name)) == b"x"


@pytest.mark.parametrize(
    "size", [0, 1, agent_wire.CHUNK_BYTES - 1, agent_wire.CHUNK_BYTES, agent_wire.CHUNK_BYTES + 1, 3 * agent_wire.CHUNK_BYTES]
)
def test_large_files_come_in_pieces(plain_guest, tmp_path, size):
    data = os.urandom(size)
    (tmp_path / "large").write_bytes(data)
    assert plain_guest.read(str(tmp_path / "large")) == data


def test_directories_get_the_mode_and_trees_vanish(guest, tmp_path):
    path = tmp_path / "a" / "b"
    guest.make_dir(str(path), mode=0o750)
    assert os.stat(path).st_mode & 0o777 == 0o750
    (path / "file").write_text("x")
    (path / "link").symlink_to(tmp_path)
    (path / "deep/er").mkdir(parents=True)
    with pytest.raises(OSError, match="not empty"):
        guest.remove_dir(str(path))
    guest.remove_tree(str(tmp_path / "a"))
    guest.remove_tree(str(tmp_path / "a"))
    assert not (tmp_path / "a").exists() and tmp_path.exists()


def test_a_link_is_not_followed_when_a_tree_is_removed(plain_guest, tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(NotADirectoryError):
        plain_guest.remove_tree(str(tmp_path / "link"))
    assert (tmp_path / "kept/file").exists()


@AS_ROOT
def test_a_directory_gets_its_owner(plain_guest, tmp_path):
    plain_guest.make_dir(str(tmp_path / "a"), user="nobody")
    assert (tmp_path / "a").owner() == "nobody"
    with pytest.raises(OSError, match="no-such-account"):
        plain_guest.make_dir(str(tmp_path / "b"), user="no-such-account")


def test_a_full_disk_is_told(plain_guest):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with pytest.raises(OSError, match="No space left"):
        plain_guest.write("/dev/full", b"x")


def test_exit_code_and_cpu_are_kept(guest):
    process = guest.spawn(Command([sys.executable, "-c", "sum(range(10**6)); raise SystemExit(7)"]))
    assert process.wait(60) == 7
    assert process.poll() == 7
    assert process.cpu_seconds is not None and process.cpu_seconds > 0
    process.signal(signal.SIGTERM)  # has ended: nothing happens


def test_it_runs_until_it_is_told_to_end(guest):
    process = guest.spawn(Command(["sleep", "60"]))
    assert process.poll() is None and process.cpu_seconds is None
    with pytest.raises(TimeoutError, match=f"process {process.pid} of guest db01 still runs after 0 s"):
        process.wait(0.05)
    process.signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM


def test_output_is_appended_to_files(plain_guest, tmp_path):
    out = tmp_path / "out"
    for word in ("one", "two"):
        command = Command(["sh", "-c", f"echo {word}; echo error >&2"], stdout=str(out), stderr=str(out))
        assert plain_guest.spawn(command).wait(30) == 0
    assert out.read_text() == "one\nerror\ntwo\nerror\n"


def test_files_that_cannot_be_opened_are_told_at_once(plain_guest):
    with pytest.raises(FileNotFoundError):
        plain_guest.spawn(Command(["true"], stdout="/nonexistent/out"))
    with pytest.raises(FileNotFoundError):
        plain_guest.run(Command(["true"], stdin="/nonexistent/in"))


@pytest.mark.parametrize("which", ["local", "guest"])
def test_commands_end_alike_on_both_kinds_of_node(plain_guest, tmp_path, which):
    node = plain_guest if which == "guest" else LocalNode()
    file = tmp_path / "in"
    file.write_bytes(b"a\r\nb\xff\n")
    assert node.run(Command(["cat"], stdin=str(file))).out == "a\r\nb\ufffd\n"
    done = node.run(Command(["sh", "-c", "echo out; echo err >&2; exit 3"]))
    assert (done.code, done.out, done.err) == (3, "out\n", "err\n")
    assert node.run(Command(["sh", "-c", "kill -TERM $$"])).code == -signal.SIGTERM
    missing = node.run(Command(["/nonexistent/program"]))
    assert missing.code == 127 and "/nonexistent/program" in missing.err
    assert node.run(Command(["true"], join=("/nonexistent/cgroup.procs",))).code == 97
    environment = node.run(Command(["env"], env={"ADDED": "1=2"})).out
    assert "ADDED=1=2" in environment and "LC_ALL=C" in environment and "TZ=UTC" in environment and "HOME" not in environment
    evil = "$(touch pwned); `id` 'x' \"y\" *"
    assert node.run(Command(["printf", "%s", evil], cwd=str(tmp_path))).out == evil and not (tmp_path / "pwned").exists()
    assert node.run(Command(["pwd"], cwd=str(tmp_path))).out.strip() == str(tmp_path)
    cpu = min(os.sched_getaffinity(0))
    assert node.run(Command([sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], cpus=(cpu,))).out.strip() == f"{{{cpu}}}"
    policy = [sys.executable, "-c", "import os; print(os.sched_getscheduler(0) == os.SCHED_BATCH)"]
    assert [node.run(Command(policy, sched_batch=batch)).out.strip() for batch in (True, False)] == ["True", "False"]
    assert node.run(Command([sys.executable, "-c", "sum(range(10**6))"])).cpu > 0
    with pytest.raises(TimeoutError, match="'sleep 60' did not end within 0 s"):
        node.run(Command(["sleep", "60"]), timeout=0.2)
    ignored = "import signal; print(signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL, signal.getsignal(signal.SIGALRM) is signal.SIG_DFL)"
    assert "True" in node.run(Command(["sh", "-c", "yes | head -1; echo True"])).out
    assert node.run(Command([sys.executable, "-c", ignored])).out.split()[1] == "True"


def test_a_process_joins_its_groups_before_its_program_runs(plain_guest, tmp_path):
    (tmp_path / "group").touch()
    assert plain_guest.run(Command(["cat", str(tmp_path / "group")], join=(str(tmp_path / "group"),))).out == "0\n"


def test_much_output_is_kept(plain_guest):
    script = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 20000); sys.stderr.write('e' * 300000)"
    done = plain_guest.run(Command([sys.executable, "-c", script]))
    assert len(done.out) == 256 * 20000 and len(done.err) == 300000


def test_a_command_that_wants_to_clean_up_is_told_to_end_first(plain_guest, tmp_path):
    script = f"trap 'echo cleaned > {tmp_path}/said; exit 1' TERM; echo begun > {tmp_path}/begun; while :; do sleep 0.05; done"
    with pytest.raises(TimeoutError):
        plain_guest.run(Command(["/bin/sh", "-c", script], death_signal="TERM"), timeout=1.5)
    assert not (tmp_path / "begun").exists() or (tmp_path / "said").read_text() == "cleaned\n"


@AS_ROOT
def test_the_account_is_taken_and_no_group_is_kept(plain_guest):
    done = plain_guest.run(Command(["id"], user="nobody"))
    assert "(nobody)" in done.out and "root" not in done.out


def test_it_starts_at_its_instant(plain_guest, tmp_path):
    at = plain_guest.now() + 0.4
    argv = [sys.executable, "-I", "-S", "-c", "import time, os; os.write(1, b'%f' % time.time())"]
    process = plain_guest.spawn(Command(argv, stdout=str(tmp_path / "out")), at=at)
    assert process.wait(60) == 0
    assert float((tmp_path / "out").read_text()) >= at - 0.1, "the clocks differ by less"
    done = plain_guest.spawn(Command(["true"], stdout=None), at=plain_guest.now() - 5)
    assert done.wait(60) == 0


def test_the_instant_is_kept_by_the_program(plain_guest, tmp_path):
    at = plain_guest.now() + 0.4
    program = "import time, os; os.write(1, b'%f' % time.time())"
    process = plain_guest.spawn(Command([sys.executable, "-I", "-S", "-c", program], stdout=str(tmp_path / "out")), at=at)
    other = plain_guest.spawn(Command(["sleep", "60"]), at=at + 3600)
    assert process.wait(60) == 0
    assert float((tmp_path / "out").read_text()) >= at - 2 * plain_guest.clock.uncertainty
    other.signal(signal.SIGINT)
    assert other.wait(30) == -signal.SIGINT, "it can be ended while it waits"


@pytest.mark.parametrize("kind", ["plain_port", "port_without_ctypes"])
@pytest.mark.parametrize("user", [None, pytest.param("nobody", marks=AS_ROOT)])
def test_children_die_with_a_killed_agent(request, kind, user, ends):
    port = request.getfixturevalue(kind)
    node = GuestNode.connect("db01", port.path, 60)
    processes = [node.spawn(Command(["sleep", "300"], user=user)) for _ in range(3)]
    later = node.spawn(Command(["sleep", "300"], user=user), at=node.now() + 3600)
    assert all(one.poll() is None for one in processes)
    # setpriv asks for the signal before it becomes the program
    while kind == "port_without_ctypes" and any(Path(f"/proc/{one.pid}/comm").read_text() != "sleep\n" for one in processes):
        time.sleep(0.01)
    port.machine_dies()
    assert all(ends(one.pid) for one in [*processes, later])
    node.close()


def test_a_dead_guest_has_no_processes_and_says_so(plain_port):
    node = GuestNode.connect("db01", plain_port.path, 60)
    process = node.spawn(Command(["sleep", "300"]))
    plain_port.machine_dies()
    assert process.wait(20) == -signal.SIGKILL and process.poll() == -signal.SIGKILL
    process.signal(signal.SIGTERM)  # nothing happens
    assert node.lost is not None and "guest db01 has died" in node.lost
    for action in (lambda: node.read("/proc/stat"), lambda: node.run(Command(["true"])), lambda: node.spawn(Command(["true"]))):
        with pytest.raises(OSError, match="guest db01 has died"):
            action()
    node.close()


def test_a_host_that_comes_back_finds_processes_but_nobody_s_commands(plain_port, ends, tmp_path):
    first = GuestNode.connect("db01", plain_port.path, 60)
    kept = first.spawn(Command(["sleep", "300"]))
    first.channel.begin(b"run", 300_000, *guest_node._encoded(Command(["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 300"]), None))
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().endswith("\n"):
        time.sleep(0.01)
    first.close()
    assert process_code(lambda: kept.poll()) == -signal.SIGKILL
    second = GuestNode.connect("db01", plain_port.path, 60)
    assert ends(int((tmp_path / "pid").read_text()))
    assert Path(f"/proc/{kept.pid}").exists()
    assert second.run(Command(["kill", str(kept.pid)])).code == 0
    second.close()


def process_code(ask):
    return ask()


def sampled(guest, tmp_path, sources, seconds=0.35, period=0.1, later=()):
    spool = tmp_path / "spool"
    sampling = guest.sample(sources, str(spool), period)
    if later:
        time.sleep(period * 1.5)
        sampling.add(later)
    time.sleep(seconds)
    sampling.stop()
    return [json.loads(line) for line in spool.read_text().splitlines()]


def test_the_spool_is_that_of_the_host_s_loop(guest, tmp_path):
    sources = [SampleSource("cpu", "host", "file", "/proc/stat"), SampleSource("x", "host", "file", str(tmp_path / "missing"), tag="t")]
    later = [SampleSource("processes", "driver:x", "tree", str(os.getpid()))]
    lines = sampled(guest, tmp_path, sources, later=later)
    (tmp_path / "local").mkdir()
    local = sampled(LocalNode(), tmp_path / "local", sources, later=later)
    assert [line for line in lines if "sources" in line] == [line for line in local if "sources" in line]
    for index in range(3):
        mine, other = ([line for line in some if line.get("i") == index] for some in (lines, local))
        assert len(mine) >= 2 and {tuple(line) for line in mine} == {tuple(line) for line in other}
    assert {line["error"] for line in lines if line.get("i") == 1} == {line["error"] for line in local if line.get("i") == 1}
    times = [line["t"] for line in lines if line.get("i") == 0]
    assert times == sorted(times) and abs(times[0] - time.time()) < 60


def test_the_samplers_understand_it(plain_guest, tmp_path):
    sources = [SampleSource("cpu", "host", "file", "/proc/stat"), SampleSource("vmstat", "host", "file", "/proc/vmstat")]
    sampled(plain_guest, tmp_path, sources)
    spool = Spool((tmp_path / "spool").read_text().splitlines())
    found = list(spool)
    assert {(sampler, entity) for _, sampler, entity, _ in found} == {("cpu", "host"), ("vmstat", "host")}
    assert not spool.failures and not spool.torn


def test_adding_nothing_reads_everything_at_once_beside_the_ticks(plain_guest, tmp_path):
    spool = tmp_path / "spool"
    rare = SampleSource("x", "host", "file", "/proc/loadavg", every=2)
    sampling = plain_guest.sample([SampleSource("x", "host", "file", "/proc/uptime"), rare], str(spool), 3600.0)
    marks = []
    for _ in range(3):
        marks.append(time.time())
        sampling.add(())
    sampling.stop()
    lines = [json.loads(line) for line in spool.read_text().splitlines()]
    times = [line["t"] for line in lines if line.get("i") == 0]
    assert len(times) == 5, "the first tick, three marks, the last"
    assert all(mark <= t + 0.001 for mark, t in zip(marks, times[1:4], strict=True))
    assert sum(line.get("i") == 1 for line in lines) == 2, "what is not read on each tick is left out"
    assert sampling.backends() == {}


def test_readings_arrive_while_it_runs(plain_guest, tmp_path, monkeypatch):
    monkeypatch.setattr(guest_node, "_FETCH_SECONDS", 0.05)
    spool = tmp_path / "spool"
    sampling = plain_guest.sample([SampleSource("x", "host", "file", "/proc/uptime")], str(spool), 0.02)
    while len(spool.read_text().splitlines()) < 10:
        time.sleep(0.01)
    sampling.stop()


def test_two_samplings_at_once_and_one_after_another(plain_guest, tmp_path):
    source = SampleSource("x", "host", "file", "/proc/uptime")
    one, two = (plain_guest.sample([source], str(tmp_path / name), 0.02) for name in ("a", "b"))
    time.sleep(0.1)
    one.stop()
    two.stop()
    assert all(len((tmp_path / name).read_text().splitlines()) > 2 for name in ("a", "b"))
    assert len(sampled(plain_guest, tmp_path, [source])) > 2


def test_sql_is_the_host_s_business(plain_guest, tmp_path):
    with pytest.raises(ValueError, match="guest db01 cannot read SQL sources"):
        plain_guest.sample([SampleSource("database", "server:x", "sql", "host=x", "select 1")], str(tmp_path / "spool"))
    assert not (tmp_path / "spool").exists()


def test_a_guest_that_dies_while_it_is_sampled(plain_port, tmp_path):
    node = GuestNode.connect("db01", plain_port.path, 60)
    sampling = node.sample([SampleSource("x", "host", "file", "/proc/uptime")], str(tmp_path / "spool"), 0.05)
    sampling.fetch()
    plain_port.machine_dies()
    with pytest.raises(OSError, match="guest db01 has died"):
        sampling.stop()
    assert any(json.loads(line).get("raw") for line in (tmp_path / "spool").read_text().splitlines()), "what was fetched is there"
    node.close()


def test_its_clock_is_ours_here(plain_guest):
    """One machine, two processes: the true offset is zero, and lies within what is uncertain."""
    found = plain_guest.measure_clock()
    assert abs(found.offset) <= found.uncertainty + 1e-6
    assert abs(plain_guest.now() - time.time()) < 0.5


class Shifted(GuestNode):
    """A guest whose clock is ahead, and that can be set."""

    def __init__(self, ahead: float, fast: float = 0.0, until: int = 1000) -> None:
        super().__init__("db01")
        self.ahead, self.asked = ahead, 0
        self.fast, self.until, self.began = fast, until, time.time()

    def ask(self, operation, *arguments, timeout=None):
        if operation == "shift_clock":
            self.ahead += arguments[0] / 1e9
            self.asked += 1
            if self.asked == self.until:  # its kernel takes another clock
                self.ahead += self.fast * (time.time() - self.began)
                self.fast = 0.0
            return 0
        now = round((time.time() + self.ahead + self.fast * (time.time() - self.began)) * 1e9)
        return [now, now]


@pytest.mark.parametrize("ahead", [-3600.0, -0.5, 7.25])
def test_a_clock_is_set_to_ours(ahead):
    node = Shifted(ahead)
    left = node.align_clock()
    assert abs(left.offset) < 0.05 and abs(node.ahead) < 0.05 and node.asked >= 1
    assert node.clock.measured[-1] == left and len(node.clock.measured) <= 2
    assert abs(node.now() - time.time()) < 0.1


def test_a_clock_that_runs_away_is_refused(monkeypatch):
    monkeypatch.setattr(guest_node, "_ALIGNMENTS", 3)
    monkeypatch.setattr(guest_node, "_ALIGNMENT_SECONDS", 0.05)
    with pytest.raises(OSError, match="the clock of guest db01 runs 6 times as fast"):
        Shifted(1.0, fast=5.0).align_clock()


def test_a_clock_that_its_kernel_corrects_is_waited_for(monkeypatch):
    monkeypatch.setattr(guest_node, "_ALIGNMENT_SECONDS", 0.05)
    node = Shifted(1.0, fast=5.0, until=3)
    left = node.align_clock()
    assert abs(left.offset) < 0.05 and node.asked >= 3


def test_a_clock_that_is_right_is_left_alone(plain_guest, monkeypatch):
    """It is this machine's own here."""
    asked = []
    ask = plain_guest.ask
    monkeypatch.setattr(plain_guest, "ask", lambda operation, *rest, **more: (asked.append(operation), ask(operation, *rest, **more))[1])
    plain_guest.align_clock()
    assert set(asked) == {"ping"}


def test_files_without_an_end_are_not_read(plain_guest, tmp_path):
    (tmp_path / "zero").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x" * 100)
    with pytest.raises(OSError, match="has more than 3,000,000 bytes"):
        plain_guest.read_untrusted(str(tmp_path / "zero"), 3_000_000)
    with pytest.raises(OSError, match="Illegal seek"):
        plain_guest.read_untrusted(str(tmp_path / "pipe"))
    assert plain_guest.read_untrusted(str(tmp_path / "file"), 100) == b"x" * 100
    with pytest.raises(OSError, match="has more than 99 bytes"):
        plain_guest.read_untrusted(str(tmp_path / "file"), 99)


def test_the_end_of_a_file_is_read(plain_guest, tmp_path):
    (tmp_path / "log").write_bytes(b"0123456789")
    assert plain_guest.read_end(str(tmp_path / "log"), 4) == FileEnd(10, b"6789")
    (tmp_path / "log").write_bytes(b"")
    assert plain_guest.read_end(str(tmp_path / "log")) == FileEnd(0, b"")
    with pytest.raises(FileNotFoundError):
        plain_guest.read_end(str(tmp_path / "missing"))


def test_the_agent_writes_through_no_link(plain_guest, tmp_path):
    (tmp_path / "victim").write_text("kept")
    (tmp_path / "a").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError):
        plain_guest.write(str(tmp_path / "a"), b"x", user="nobody")
    assert (tmp_path / "victim").read_text() == "kept"


@pytest.mark.parametrize("name", [b"../../lib/modules/x.ko", b"/etc/x", b"..", b""])
def test_names_from_a_guest_are_names(plain_guest, monkeypatch, name):
    monkeypatch.setattr(plain_guest, "ask", lambda operation, *arguments: [b"fine", name])
    with pytest.raises(OSError, match="is not the name of a file"):
        plain_guest.listdir("/out")


def test_pieces_of_a_guest_are_bounded(plain_guest, monkeypatch):
    monkeypatch.setattr(plain_guest, "ask", lambda operation, *arguments: b"x" * (2 << 20))
    with pytest.raises(OSError, match="has more than"):
        plain_guest.read("/out")


@pytest.mark.parametrize(("sent", "taken"), [(0, 0), (255, 255), (-15, -15), (256, -9), (-33, -9), (-65, -9), (10**250, -9)])
def test_an_exit_code_that_no_process_has_is_that_of_a_killed_one(plain_guest, monkeypatch, sent, taken):
    """The host looks for the name of a signal."""
    plain_guest._told([b"ended", 77, sent, 0])
    assert plain_guest.ended(77) == (taken, 0.0)
    monkeypatch.setattr(plain_guest, "ask", lambda *_, **__: [sent, 0, b"", b""])
    assert plain_guest.run(Command(["true"])).code == taken
    assert taken >= 0 or signal.Signals(-taken).name


def test_readings_without_an_end_are_not_fetched(plain_guest, monkeypatch, tmp_path):
    sampling = plain_guest.sample([], str(tmp_path / "spool"))
    real, head = plain_guest.ask, agent_tasks.RECORD.pack(1, 0, 2**32 - 1)

    def endless(operation, *arguments, **options):
        return [1, 0, head + bytes(2**20)] if operation == "fetch" else real(operation, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(plain_guest, "ask", endless)
        with pytest.raises(OSError, match="sends readings without end"):
            sampling.fetch()
    sampling._rest = b""
    sampling.stop()
