from __future__ import annotations

import shutil

import pytest

from pgherd.metrics import processes
from pgherd.metrics.sampler import ServerView
from pgherd.model.deployment import Deployment
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed
from pgherd.runner.execute import perf_counters

HAVE = "{value};;{event};879720;100.00;;"


class Perf(LocalNode):
    """Counts only what ``known`` names; everything else is not supported, or ``refused`` with this text."""

    def __init__(self, known=(), refused=None, name="perf"):
        super().__init__()
        self.known, self.refused, self.name = known, refused, name

    def run(self, command, timeout=60.0):
        if command.argv[0] != "perf":
            return super().run(command, timeout)
        events = command.argv[command.argv.index("-e") + 1].split(",")
        strange = [event for event in events if "." in event and event not in self.known]
        if self.refused is not None or strange:
            return Completed(129, "", self.refused or f"event syntax error: '{strange[0]}'")
        said = [HAVE.format(value=17 if event in self.known else "<not supported>", event=f"{event}:u") for event in events]
        return Completed(0, "", "\n".join(said) + "\n")


@pytest.fixture(autouse=True)
def _forget(monkeypatch):
    monkeypatch.setattr(perf_counters, "_ABLE", {})


def test_for_each_metric_the_first_alternative_that_counts():
    known = ("dTLB-load-misses", "cycles", "ls_l1_d_tlb_miss.all_l2_miss")
    assert perf_counters.able(Perf(known)).events == ("dTLB-load-misses", "ls_l1_d_tlb_miss.all_l2_miss", "cycles")


def test_half_an_alternative_is_none():
    known = ("dtlb_load_misses.walk_completed", "dtlb_load_misses.walk_duration", "dtlb_store_misses.walk_duration")
    assert perf_counters.able(Perf(known)).events == ("dtlb_load_misses.walk_duration", "dtlb_store_misses.walk_duration")


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (Perf(), "does not count dTLB-load-misses"),
        (Perf(("cycles",)), "does not count dTLB-load-misses"),
        (Perf(refused="Access to performance monitoring is limited; perf_event_paranoid is 4"), "kernel.perf_event_paranoid"),
    ],
)
def test_why_there_are_none(node, why):
    found = perf_counters.able(node)
    assert found.events == () and why in found.why_not


def test_without_perf(monkeypatch):
    node = LocalNode()

    def missing(command, timeout=60.0):
        raise FileNotFoundError("perf")

    monkeypatch.setattr(node, "run", missing)
    assert perf_counters.able(node).why_not == "perf is not installed"


def test_nothing_is_counted_for_a_trial_that_does_not_ask(tmp_path):
    plain = Trial(point={}, deployment=Deployment(hosts=()), phases=())
    node = Perf(("dTLB-load-misses",))
    assert perf_counters.begin(node, plain, [ServerView("a/pg", "", 18, 1)], tmp_path).stop() == []
    assert perf_counters._ABLE == {}, "not even looked for"


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_a_real_perf_counts_the_children_that_begin_after_it(tmp_path, monkeypatch):
    """With an event that every machine has, in the place of one of the processor's."""
    node = LocalNode()
    tried = node.run(Command(("perf", "stat", "-x;", "-e", "page-faults", "--", "true")))
    if tried.code != 0:
        pytest.skip(f"perf may not count here: {tried.err.strip()[:200]}")
    monkeypatch.setitem(processes._TLB_METRIC, "page-faults", "tlb.load_misses")
    parent = node.spawn(
        Command(("sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; for i in 1 2 3; do /bin/true; done; sleep 30"), cwd=str(tmp_path))
    )
    try:
        counting = perf_counters.PerfRecorder(node, [ServerView("a/pg", "", 18, parent.pid)], ["page-faults"], tmp_path)
        output = tmp_path / "perf-a.pg.txt"
        deadline = node.now() + 20
        while not (output.exists() and ";" in output.read_text()):  # a first interval: it is attached
            assert node.now() < deadline
        (tmp_path / "go").touch()
        before = output.read_text().count("\n")
        while output.read_text().count("\n") < before + 3:
            assert node.now() < deadline
        found = counting.stop()
    finally:
        parent.signal(9)
        parent.wait(10)
    assert {entity for _, _, entity, _ in found} == {"server:a/pg"}
    values = [values["tlb.load_misses"] for *_, values in found]
    assert values[0] == 0 and values == sorted(values) and values[-1] > 100
    times = [t for t, *_ in found]
    assert times == sorted(times)
