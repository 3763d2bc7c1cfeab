from pathlib import Path

import pytest

from pgherd.node import kernel_threads
from pgherd.node.kernel_threads import KernelThreads


class Proc:
    """A directory like /proc with kernel threads."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.threads: dict[int, tuple[str, int, int]] = {}
        self.write(2, "kthreadd", 0, 0)

    def write(self, pid: int, name: str, user: int, system: int) -> None:
        (self.directory / str(pid)).mkdir(exist_ok=True)
        (self.directory / str(pid) / "stat").write_text(
            f"{pid} ({name}) I 2 0 0 0 -1 69238880 0 0 0 0 {user} {system} 0 0 20 0 1 0 8 0 0\n"
        )
        if pid != 2:
            self.threads[pid] = (name, user, system)
        children = self.directory / "2" / "task" / "2"
        children.mkdir(parents=True, exist_ok=True)
        (children / "children").write_text(" ".join(map(str, sorted(self.threads))))

    def end(self, pid: int) -> None:
        del self.threads[pid]
        (self.directory / str(pid) / "stat").unlink()
        self.write(2, "kthreadd", 0, 0)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    made = Proc(tmp_path)
    for pid, name in enumerate(
        ("kworker/0:1H-kblockd", "kworker/u8:3-writeback", "jbd2/vda-8", "ksoftirqd/0", "kworker/1:0", "migration/0"), 10
    ):
        made.write(pid, name, 1, 100)
    return made


def test_only_what_threads_for_io_used_since_the_first_reading_counts(proc: Proc) -> None:
    threads = KernelThreads(str(proc.directory))
    assert threads.read() == ""
    proc.write(10, "kworker/0:1H+kblockd", 1, 140)
    proc.write(12, "jbd2/vda-8", 2, 103)
    proc.write(13, "ksoftirqd/0", 1, 900)
    proc.write(15, "migration/0", 1, 900)
    assert threads.read() == "jbd2/vda-8 4\nkblockd 40"


def test_a_worker_counts_for_the_workqueue_that_it_worked_for(proc: Proc) -> None:
    threads = KernelThreads(str(proc.directory))
    threads.read()
    proc.write(11, "kworker/u8:3-events_unbound", 1, 150)  # other work
    proc.write(14, "kworker/1:0-xfs-conv/sda1", 1, 120)
    assert threads.read() == "xfs-conv/sda1 20"
    proc.write(11, "kworker/u8:3+loop0", 1, 157)
    assert threads.read() == "loop0 7\nxfs-conv/sda1 20"


def test_a_thread_that_ends_keeps_what_it_used_and_a_new_one_counts_from_its_start(proc: Proc) -> None:
    threads = KernelThreads(str(proc.directory))
    threads.read()
    proc.write(10, "kworker/0:1H-kblockd", 1, 105)
    threads.read()
    proc.end(10)
    proc.end(13)
    proc.write(21, "kworker/1:8H-kblockd", 0, 2)
    assert threads.read() == "kblockd 7"
    proc.write(13, "kworker/1:9H-kblockd", 0, 3)  # the pid of an ended thread that was left out
    assert threads.read() == "kblockd 10"


def test_the_number_of_reads_is_limited(proc: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_threads, "MAX_THREADS", 1)
    threads = KernelThreads(str(proc.directory))
    threads.read()
    proc.write(10, "kworker/0:1H-kblockd", 1, 105)
    proc.write(12, "jbd2/vda-8", 2, 103)
    assert threads.read() == "kblockd 5"


def test_where_pid_2_is_another_process_nothing_is_claimed(proc: Proc) -> None:
    proc.write(2, "postgres", 0, 0)
    with pytest.raises(OSError, match="not visible"):
        KernelThreads(str(proc.directory)).read()
