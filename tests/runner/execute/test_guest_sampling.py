"""Sampling in guests, with nodes that read this machine; tests/it/test_vm.py samples real guests."""

import json
from dataclasses import replace

import pytest

from pgherd.model.errors import TrialError
from pgherd.node.local import LocalNode
from pgherd.runner.execute.guest_sampling import GuestSamplers
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.runtimes.vm.guest_spool import GuestClock, GuestClockOffset


class Stage:
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
    sampling.add([], Stage())
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
