import pytest

from pgherd.host import block_trace
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed


class Node(LocalNode):
    def __init__(self, code, said=""):
        super().__init__()
        self.answer = Completed(code, "", said)

    def run(self, command, timeout=60.0):
        return self.answer


@pytest.mark.parametrize(
    ("code", "said", "wanted"),
    [
        (127, "", "apt install linux-perf"),
        (255, "Error:\nAccess to performance monitoring and observability operations is limited.", "kernel.perf_event_paranoid"),
        (255, "event syntax error: unknown tracepoint", "shows no block tracepoints"),
        (1, "something else", "something else"),
    ],
)
def test_why_not_is_one_sentence_that_says_what_helps(code, said, wanted):
    with pytest.raises(CapabilityError, match="--trace: ") as caught:
        block_trace.insist(Node(code, said))
    assert wanted in str(caught.value) and caught.value.exit_code == 3


def test_where_it_can():
    assert block_trace.refused(Node(0)) == ""


def test_a_missing_perf_is_said_too():
    class Without(LocalNode):
        def run(self, command, timeout=60.0):
            raise FileNotFoundError("perf")

    assert "not installed" in block_trace.refused(Without())


def test_the_filter_is_the_kernels_device_number():
    assert block_trace._filter(["7:0", "254:16"]) == f"dev == {7 << 20} || dev == {(254 << 20) | 16}"


def test_a_perf_that_ends_at_once_is_an_error_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(block_trace, "EVENTS", "block:there_is_no_such_event")
    with pytest.raises(CapabilityError, match="did not begin to trace"):
        block_trace.BlockTrace(LocalNode(), ["7:0"], tmp_path)
    assert list(tmp_path.iterdir()) == []
