import pytest

from pgherd.host import ksm, shared_settings
from pgherd.host.journal import Journal
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed


class Kernel(LocalNode):
    """One switch, in memory; without ``there`` the kernel has none."""

    def __init__(self, word="0", *, there=True, may_write=True):
        super().__init__()
        self.word, self.there, self.may_write = word, there, may_write

    def exists(self, path):
        return self.there if path == ksm.RUN else super().exists(path)

    def read(self, path):
        if path == "/proc/self/status" and not self.may_write:
            return b"Uid:\t1000\t1000\t1000\t1000\n"
        return f"{self.word}\n".encode() if path == ksm.RUN else super().read(path)

    def write(self, path, data):
        assert path == ksm.RUN
        self.word = data.decode()

    def run(self, command, timeout=60.0):
        return Completed(0 if self.may_write else 1, "", "") if command.argv[0] == "test" else super().run(command, timeout)


@pytest.fixture
def journal(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_settings, "LEDGER", tmp_path / "holds.json")
    opened = Journal.open(LocalNode(), tmp_path / "state", "run")
    yield opened
    opened.close()


def test_it_is_switched_on_and_back_by_the_journal(journal):
    journal._node = kernel = Kernel()
    number = ksm.switch_on(kernel, journal)
    assert kernel.word == "1" and [undo.kind for undo in journal.pending()] == ["give_back"]
    journal.undo(number)
    assert kernel.word == "0" and not journal.pending()


def test_what_was_on_before_stays_on(journal):
    journal._node = kernel = Kernel("1")
    number = ksm.switch_on(kernel, journal)
    if number is not None:
        journal.undo(number)
    assert kernel.word == "1"


def test_who_may_not_switch_it_uses_what_is_on(journal):
    assert ksm.switch_on(Kernel("1", may_write=False), journal) is None
    with pytest.raises(CapabilityError, match="run pgherd as root"):
        ksm.switch_on(Kernel("0", may_write=False), journal)


def test_a_kernel_without_it_is_said(journal):
    with pytest.raises(CapabilityError, match="has no same-page merging"):
        ksm.check(Kernel(there=False))
