import json
import time

import pytest

from pgherd.cluster.interfaces import HostClockOffset
from pgherd.distributed import cluster_backend as module
from pgherd.distributed.agent import HostSnapshot
from pgherd.distributed.agent_pool import AgentPool
from pgherd.distributed.clock_alignment import Clocks
from pgherd.distributed.cluster_backend import LiveForwarder
from pgherd.drivers.pgbench_output import read_progress
from pgherd.metrics.spool import readings
from pgherd.model.errors import TrialError
from pgherd.store.live_state import SPOOL, TOLD

LINE = "progress: {:.3f} s, {:.1f} tps, lat 0.8 ms stddev 0.1, 0 failed\n"
AHEAD = {"a": 100.0, "b": -50.0}


class Agent:
    def __init__(self):
        self.shown, self.asked = None, 0

    def glimpse(self):
        self.asked += 1
        if isinstance(self.shown, Exception):
            raise self.shown
        return self.shown


@pytest.fixture
def scene(engine_of, tmp_path):
    """Two hosts whose clocks are wrong."""
    engine = engine_of(list(AHEAD))
    pool = AgentPool(engine, Agent)
    pool.gather(list(AHEAD))
    clocks = Clocks([{host: HostClockOffset(ahead, 0.001, 0.0, 0.002, 4) for host, ahead in AHEAD.items()}])
    yield LiveForwarder(pool, list(AHEAD), tmp_path, clocks), engine.actors_of, tmp_path
    pool.dismiss()


def until_written(forwarder, finished):
    """Look until what was asked for has come; nothing is asked for again."""
    deadline = time.monotonic() + 20
    while not finished():
        assert time.monotonic() < deadline
        forwarder.poll(0.0, quiet=True)
        time.sleep(0.005)


def test_what_hosts_show_stands_where_that_of_one_host_stands_on_one_clock(scene):
    forwarder, agents, directory = scene
    for host, number in (("a", 1), ("b", 2)):
        target = f"{host}/db{number}/pg/bench"
        at = 1000.0 + AHEAD[host]
        agents[host].shown = HostSnapshot(
            [(at, "cpu", "host", {"cpu.user": 5.0}), (at + 1, "cgroup_cpu", f"container:db{number}", {"cpu.usage": 1.0})],
            [(0, target, "pgbench", LINE.format(at, 10.0 * number) + "vacuuming...\n")],
        )
    forwarder.poll(1.0, quiet=False)
    until_written(forwarder, lambda: len(list((directory / TOLD).glob("00/*/stderr"))) == 2)
    forwarder.poll(1.0 + module.FORWARD_INTERVAL_S, quiet=False)
    until_written(forwarder, lambda: (directory / SPOOL).read_text().count("values") == 8)
    with open(directory / SPOOL) as lines:
        result = list(readings(lines))
    assert {(t, sampler, entity) for t, sampler, entity, _ in result} == {
        (1000.0, "cpu", "host:a"),
        (1000.0, "cpu", "host:b"),
        (1001.0, "cgroup_cpu", "container:db1"),
        (1001.0, "cgroup_cpu", "container:db2"),
    }
    assert all(json.loads(line).keys() in ({"sources", "first"}, {"t", "i", "values"}) for line in (directory / SPOOL).open())
    text = (directory / TOLD / "00/b.db2.pg.bench/stderr").read_text()
    assert [(line.at, line.tps) for line in read_progress(text)] == [(1000.0, 20.0)] * 2 and "vacuuming" not in text
    forwarder.end()
    assert not list(directory.iterdir())


def test_hosts_are_asked_now_and_then_and_never_while_all_is_to_be_quiet(scene):
    forwarder, agents, _ = scene
    for agent in agents.values():
        agent.shown = HostSnapshot([], [])
    forwarder.poll(1.0, quiet=True)
    assert not forwarder._requests
    forwarder.poll(1.5, quiet=False)
    until_written(forwarder, lambda: not forwarder._requests)
    forwarder.poll(1.6, quiet=False)
    assert not forwarder._requests and agents["a"].asked == 1
    forwarder.poll(1.5 + module.FORWARD_INTERVAL_S, quiet=False)
    until_written(forwarder, lambda: not forwarder._requests)
    assert agents["a"].asked == agents["b"].asked == 2


@pytest.mark.parametrize("trouble", [TrialError("it died"), OSError(28, "No space left"), ValueError("a defect")])
def test_what_ails_a_host_is_not_told_here(scene, trouble):
    forwarder, agents, directory = scene
    agents["a"].shown = trouble
    agents["b"].shown = HostSnapshot([(1.0, "cpu", "host", {"cpu.user": 5.0})], [])
    forwarder.poll(1.0, quiet=False)
    until_written(forwarder, lambda: not forwarder._requests)
    assert "host:b" in (directory / SPOOL).read_text()
    assert forwarder._pool.lost == {}


def test_what_could_not_be_announced_is_announced_later(scene):
    forwarder, agents, directory = scene
    agents["a"].shown = agents["b"].shown = HostSnapshot([(1.0, "cpu", "host", {"cpu.user": 5.0})], [])
    (directory / SPOOL).mkdir()
    forwarder.poll(1.0, quiet=False)
    until_written(forwarder, lambda: not forwarder._requests)
    (directory / SPOOL).rmdir()
    forwarder.poll(1.0 + module.FORWARD_INTERVAL_S, quiet=False)
    until_written(forwarder, lambda: not forwarder._requests)
    with open(directory / SPOOL) as lines:
        assert {entity for _, _, entity, _ in readings(lines)} == {"host:a", "host:b"}


def test_where_nothing_can_be_written_the_play_goes_on(scene):
    forwarder, agents, directory = scene
    (directory / SPOOL).mkdir()
    agents["a"].shown = agents["b"].shown = HostSnapshot([(1.0, "cpu", "host", {"cpu.user": 5.0})], [])
    forwarder.poll(1.0, quiet=False)
    until_written(forwarder, lambda: not forwarder._requests)
    forwarder.end()
