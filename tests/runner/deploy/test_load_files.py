import pytest

from pgherd.drivers.fio import FILE
from pgherd.model.errors import TrialError
from pgherd.model.load import Load
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.runner.deploy.load_files import ensure
from pgherd.runner.watcher import Watcher


class Node(LocalNode):
    """fio is replaced: it makes the file, or fails."""

    def __init__(self, fails=False):
        self.calls, self.fails = [], fails

    def run(self, command, timeout=60.0):
        if command.argv[0] != "fio":
            return super().run(command, timeout)
        self.calls.append(list(command.argv))
        if self.fails:
            return Completed(1, "", "fio: native_fallocate call failed: No space left on device")
        where = next(word for word in command.argv if word.startswith("--filename=")).partition("=")[2]
        with open(where, "wb") as file:
            file.truncate(int(next(word for word in command.argv if word.startswith("--size=")).partition("=")[2]))
        return Completed(0, "", "")


def fio(size, **options):
    return Load(driver="fio", options={"rw": "read", "size": str(size), **options})


def test_the_largest_is_written_once(tmp_path):
    node = Node()
    assert ensure(node, str(tmp_path), [fio(2**20), fio(2**21)], None, Watcher()) is True
    assert (tmp_path / FILE).stat().st_size == 2**21
    assert ensure(node, str(tmp_path), [fio(2**20)], None, Watcher()) is False and len(node.calls) == 1
    assert ensure(node, str(tmp_path), [fio(2**22)], None, Watcher()) is True


def test_past_the_page_cache_where_that_is_possible(tmp_path):
    node = Node()
    ensure(node, str(tmp_path), [fio(2**20, direct="0")], None, Watcher())
    assert "--direct=0" in node.calls[0]


def test_other_drivers_need_no_file(tmp_path):
    assert ensure(Node(), str(tmp_path), [Load(driver="command")], None, Watcher()) is False
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_said(tmp_path):
    with pytest.raises(TrialError, match="a file of 1 MB cannot be written in .*No space left on device"):
        ensure(Node(fails=True), str(tmp_path), [fio(2**20)], None, Watcher())
