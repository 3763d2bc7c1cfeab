import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pgherd.model.errors import TrialError
from pgherd.node import interruption, process
from pgherd.node.local import LocalNode
from pgherd.node.process import wrap
from pgherd.node.protocol import Command


def _gone(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_command_without_wishes_is_only_given_a_death_signal():
    argv = wrap(Command(["true"]))
    assert argv[:3] == ["setpriv", "--pdeathsig", "KILL"] and argv[-1] == "true" and str(os.getpid()) in argv


def test_words_are_passed_as_they_are_and_never_read_by_a_shell(tmp_path):
    evil = "$(touch pwned); `id` 'x' \"y\" *"
    done = LocalNode().run(Command(["printf", "%s", evil], join=(str(tmp_path / "group"),), cwd=str(tmp_path)))
    assert done.out == evil
    assert (tmp_path / "group").read_text() == "0\n"
    assert not (tmp_path / "pwned").exists()


def test_a_group_that_cannot_be_joined_stops_the_command():
    done = LocalNode().run(Command(["true"], join=("/nonexistent/cgroup.procs",)))
    assert done.code == 97


def test_affinity_is_set_before_the_program_starts():
    cpu = min(os.sched_getaffinity(0))
    done = LocalNode().run(Command([sys.executable, "-c", "import os; print(os.sched_getaffinity(0))"], cpus=(cpu,)))
    assert done.out.strip() == f"{{{cpu}}}"


def test_a_command_under_sched_batch_passes_it_on_to_its_children():
    policy = "import os; print(os.sched_getscheduler(0) == os.SCHED_BATCH, flush=True)"
    argv = [sys.executable, "-c", f"{policy}; import subprocess, sys; subprocess.run([sys.executable, '-c', '{policy}'])"]
    cpu = min(os.sched_getaffinity(0))
    assert LocalNode().run(Command(argv, sched_batch=True, cpus=(cpu,))).out.split() == ["True", "True"]
    assert LocalNode().run(Command(argv)).out.split() == ["False", "False"]


def test_exit_code_and_cpu_are_kept():
    process = LocalNode().spawn(Command([sys.executable, "-c", "sum(range(10**6)); raise SystemExit(7)"]))
    assert process.wait(60) == 7
    assert process.poll() == 7
    assert process.cpu_seconds is not None and process.cpu_seconds > 0
    process.signal(signal.SIGTERM)  # has ended: nothing happens


def test_the_environment_is_clean(monkeypatch):
    monkeypatch.setenv("PGHOST", "somewhere-else")
    done = LocalNode().run(Command(["env"], env={"ADDED": "1"}))
    assert "PGHOST" not in done.out
    assert "ADDED=1" in done.out and "LC_ALL=C" in done.out


def test_a_command_that_hangs_is_killed():
    with pytest.raises(TimeoutError, match="did not end within 0 s"):
        LocalNode().run(Command(["sleep", "60"]), timeout=0.2)


@pytest.mark.parametrize("can_be_called_off", [True, False])
def test_only_a_command_that_can_be_called_off_is_ended(can_be_called_off):
    ended_at = time.monotonic() + 0.5

    def check_cancelled():
        if time.monotonic() > ended_at:
            raise TrialError("called off")

    command = Command(["sh", "-c", "echo before; sleep 2; echo after"], can_be_called_off=can_be_called_off)
    if can_be_called_off:
        with pytest.raises(TrialError, match="called off"):
            LocalNode(check_cancelled).run(command)
        assert time.monotonic() < ended_at + 1.5
    else:
        assert LocalNode(check_cancelled).run(command).out == "before\nafter\n"


def test_a_command_that_is_not_called_off_has_its_whole_output_and_its_timeout():
    node, checks = LocalNode(lambda: checks.append(1)), []
    command = Command(["sh", "-c", "echo before; sleep 1.2; echo after"], can_be_called_off=True)
    assert node.run(command).out == "before\nafter\n" and len(checks) >= 2
    with pytest.raises(TimeoutError, match="did not end within 1 s"):
        node.run(Command(["sleep", "60"], can_be_called_off=True), timeout=0.8)


def test_a_missing_program_is_said_by_its_exit_code():
    assert LocalNode().run(Command(["/nonexistent/program"])).code != 0


def test_output_is_appended_to_files(tmp_path):
    out = tmp_path / "out"
    for word in ("one", "two"):
        assert LocalNode().spawn(Command(["echo", word], stdout=str(out), stderr=str(out))).wait(30) == 0
    assert out.read_text() == "one\ntwo\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the account")
def test_the_account_is_taken_and_no_group_is_kept():
    done = LocalNode().run(Command(["id"], user="nobody"))
    assert "(nobody)" in done.out and "root" not in done.out


@pytest.mark.parametrize("user", [None, pytest.param("nobody", marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root"))])
def test_children_die_with_a_killed_parent(user):
    script = (
        "import sys, time; from pgherd.node.local import LocalNode; from pgherd.node.protocol import Command\n"
        f"p = LocalNode().spawn(Command(['sleep', '300'], user={user!r}))\n"
        "time.sleep(0.3); print(p.pid, flush=True); time.sleep(300)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert _gone(child)


@pytest.mark.parametrize("user", [None, pytest.param("nobody", marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root"))])
def test_a_parent_killed_before_the_death_signal_is_set_leaves_nothing(user):
    script = (
        "import os; from pgherd.node.local import LocalNode; from pgherd.node.protocol import Command\n"
        f"p = LocalNode().spawn(Command(['sleep', '300'], user={user!r}, join=('/dev/null',)))\n"
        "os.write(1, b'%d' % p.pid); os.kill(os.getpid(), 9)"
    )
    children = [int(subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE).stdout) for _ in range(3)]
    left = [child for child in children if not _gone(child)]
    for child in left:
        os.kill(child, signal.SIGKILL)
    assert not left


def test_output_is_not_translated_and_standard_input_is_closed_again(tmp_path):
    file = tmp_path / "in"
    file.write_bytes(b"a\r\nb\xff\n")
    assert LocalNode().run(Command(["cat"], stdin=str(file))).out == "a\r\nb\ufffd\n"
    assert file not in {entry.resolve() for entry in Path("/proc/self/fd").iterdir()}


@pytest.mark.usefixtures("signals")
def test_a_command_that_wants_to_clean_up_is_told_to_end_first(tmp_path):
    """It sends the interrupt itself, once it is able to clean up."""
    script = f"trap 'echo cleaned > {tmp_path}/said; exit 1' TERM; kill -HUP $PPID; while :; do sleep 0.05; done"
    with pytest.raises(KeyboardInterrupt), interruption.ended_by_signals():
        LocalNode().run(Command(["/bin/sh", "-c", script], death_signal="TERM"))
    assert (tmp_path / "said").read_text() == "cleaned\n"


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("start", ["run", "spawn"])
def test_a_signal_while_a_command_starts_leaves_no_command(tmp_path, monkeypatch, start):
    started = []

    class Interrupted(subprocess.Popen):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            started.append(self.pid)
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.05)  # the handler runs here

    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt), interruption.ended_by_signals():
        getattr(LocalNode(), start)(Command(["sleep", "60"]))
    assert len(started) == 1 and not os.path.exists(f"/proc/{started[0]}")


@pytest.mark.parametrize("able", [True, False])
def test_waiting_ends_with_the_process_or_in_time(able, monkeypatch):
    if not able:  # a kernel before 5.3

        def refused(pid):
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "pidfd_open", refused)
    process = LocalNode().spawn(Command(["sleep", "0.3"]))
    with pytest.raises(TimeoutError, match=f"process {process.pid} still runs after 0 s"):
        process.wait(0.05)
    assert process.wait(30) == 0 and process.wait() == 0 and process.cpu_seconds is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change the account")
@pytest.mark.parametrize("what", ["link", "pipe"])
def test_no_output_of_an_account_goes_where_that_has_put_something_else(tmp_path, what):
    (tmp_path / "secret").write_text("")
    out = tmp_path / "out"
    out.symlink_to(tmp_path / "secret") if what == "link" else os.mkfifo(out)
    with pytest.raises(OSError):
        LocalNode().spawn(Command(["echo", "x"], user="nobody", stdout=str(out), stderr=str(out)))
    assert (tmp_path / "secret").read_text() == ""


INFINITY = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 4096), 4096),
        ((1024, 524288), process.MAX_OPEN_FILES),
        ((1024, INFINITY), process.MAX_OPEN_FILES),
        ((100_000, 524288), None),
        ((4096, 4096), None),
        ((INFINITY, INFINITY), None),
    ],
)
def test_the_soft_limit_is_raised_and_never_lowered(monkeypatch, before, after):
    written = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: before)
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: written.append(limits))
    assert process.allow_many() == (before[0] if after is None else after)
    assert written == ([] if after is None else [(after, before[1])])


def test_a_process_may_do_it():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != INFINITY and hard < 600:
        pytest.skip(f"no process may have more than {hard} files open here")
    script = "from pgherd.node.process import allow_many; allow_many(); print(len([open('/dev/null') for _ in range(500)]))"
    limited = ["sh", "-c", 'ulimit -Sn 64 && exec "$@"', "sh"]
    done = subprocess.run([*limited, sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "500\n", done.stderr


def test_what_it_starts_has_the_limit_of_before():
    lines = [
        "from pgherd.node.process import allow_many",
        "from pgherd.node.local import LocalNode",
        "from pgherd.node.protocol import Command",
    ]
    lines += ["allow_many()", "print(LocalNode().run(Command(['sh', '-c', 'ulimit -S -n; ulimit -H -n'])).out.split())"]
    limited = ["sh", "-c", 'ulimit -Sn 256 && exec "$@"', "sh"]
    done = subprocess.run([*limited, sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert done.stdout == f"{['256', 'unlimited' if hard == INFINITY else str(hard)]}\n", done.stderr


@pytest.mark.parametrize("end_session", [True, False])
def test_the_rest_of_a_session_is_killed_before_its_leader_is_reaped(monkeypatch, tmp_path, end_session):
    """Afterwards another process may have its pid, and lead a session of that number."""
    states = []
    end = process._end_session

    def observed(pid):
        states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
        end(pid)

    monkeypatch.setattr(process, "_end_session", observed)
    script = f"sleep 60 & echo $! > {tmp_path}/child; exit 3"
    one = process.LocalProcess(Command(["sh", "-c", script], end_session=end_session))
    assert one.wait(30) == 3 and one.poll() == 3
    child = int((tmp_path / "child").read_text())
    assert states == (["Z"] if end_session else [])
    if end_session:
        deadline = time.monotonic() + 10
        while Path(f"/proc/{child}").exists() and Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < deadline
            time.sleep(0.01)
    else:
        os.kill(child, 9)


def policy(pid: int = 0) -> int:
    return os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK


def test_a_real_time_thread_starts_ordinary_processes():
    before = policy()
    with process.real_time():
        if policy() == before:
            pytest.skip("this user may not use SCHED_FIFO")
        assert policy() == os.SCHED_FIFO
        child = subprocess.run([sys.executable, "-c", "import os; print(os.sched_getscheduler(0))"], capture_output=True, text=True)
        assert int(child.stdout) == os.SCHED_OTHER
    assert policy() == before


@pytest.mark.skipif(os.getuid() != 0, reason="another account cannot be taken")
def test_an_account_that_has_real_time_priority_may_do_it_repeatedly():
    """Without privilege the flag that children start ordinary cannot be cleared again."""
    script = """
import os
from pgherd.node.process import real_time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
os.setresuid(65534, 65534, 65534)
for _ in range(2):
    with real_time():
        print(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO)
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout.split() == ["True", "True"], ran.stderr


def test_a_user_without_real_time_runs_as_before(monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    with process.real_time():
        assert policy() == os.SCHED_OTHER
