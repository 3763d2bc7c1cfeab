import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.distributed import template_distribution
from pgherd.distributed.agent_pool import AgentPool
from pgherd.distributed.template_distribution import TemplateDistribution, TransferJob, errands, worth
from pgherd.distributed.template_transfer import Chunk, Manifest
from pgherd.model.errors import TrialError
from pgherd.model.trial import Trial
from pgherd.model.units import format_bytes
from pgherd.postgres.templates import Template
from pgherd.runner.progress import RunObserver

COPY = Template("k", "/c/golden/k", "18.6", ("x",), True, bytes=12, databases={}, made=1.0, seconds=100.0, parts={})
MANIFEST = Manifest(COPY, "same", (), (("PG_VERSION", 12),))


def part(host, *names, dsn=None):
    servers = [{"bin": "/pg", "version": "18.6", "databases": [{"name": name}], "dsn": dsn} for name in names]
    containers = [{"name": f"{host}{i}", "servers": [one], **({"runtime": "external"} if dsn else {})} for i, one in enumerate(servers)]
    return Trial.model_validate(
        {"point": {"n": 1}, "deployment": {"hosts": [{"name": host, "containers": containers}]}, "phases": [{"loads": {}}]}
    )


class Agent:
    """Has a copy, or lacks it, and notes the steps."""

    def __init__(self):
        self.steps, self.copies, self.missing, self.trouble, self.sent = [], {}, {}, {}, 0

    def templates(self, step, *arguments):
        self.steps.append(step)
        if step in self.trouble:
            raise self.trouble[step]
        return getattr(self, step)(*arguments)

    def lacks(self, own):
        return {key: bin_ for key, bin_ in self.missing.items() if key not in self.copies}

    def has(self, wanted):
        return {key: seconds for key, seconds in self.copies.items() if key in wanted}

    def lend(self, key, bin_):
        return MANIFEST

    def piece(self):
        self.sent += 4
        return Chunk(b"abcd", "digest" if self.sent == 12 else None)

    def borrow(self, manifest):
        self.taken = b""

    def add(self, data):
        self.taken += data

    def keep(self, digest):
        self.copies["k"] = 100.0

    def drop(self):
        pass


class Notes(RunObserver):
    def __init__(self):
        self.notes, self.setups = [], []

    def note(self, text):
        self.notes.append(text)

    def setup(self, what):
        self.setups.append(what)


@pytest.fixture
def scene(engine_of):
    """Three hosts, of which the first has a copy that all need."""
    engine = engine_of(["a", "b", "c"])
    pool = AgentPool(engine, Agent)
    pool.gather()
    watcher = Notes()
    scene = TemplateDistribution(pool, watcher)
    scene.agents, scene.notes, scene.setups, scene.engine = engine.actors_of, watcher.notes, watcher.setups, engine
    scene.agents["a"].copies = {"k": 100.0}
    for agent in scene.agents.values():
        agent.missing = {"k": "/pg"}
    yield scene
    pool.dismiss()


PARTS = {host: part(host, "bench") for host in "abc"}


def test_what_one_has_and_others_lack_is_carried_from_the_fastest_to_make_it():
    lacks = {"a": {}, "b": {}, "c": {"k": "/pg", "l": "/old"}, "d": {"k": "/pg", "m": "/pg"}}
    has = {"a": {"k": 9.0, "l": 4.0}, "b": {"k": 7.0}}
    assert errands(lacks, has) == [TransferJob("k", "/pg", "b", ("c", "d"), 7.0), TransferJob("l", "/old", "a", ("c",), 4.0)]
    assert errands(lacks, {}) == [], "where no host has it, all make it at the same time, and nothing is faster"


@given(st.integers(1, 10**12), st.integers(1, 10**12), st.floats(1e-3, 1e5), st.floats(1e-3, 1e5))
def test_a_copy_is_carried_on_with_while_it_comes_before_it_could_be_made(left, done, elapsed, seconds):
    rest = left / (done / elapsed)
    if rest != pytest.approx(seconds):
        assert worth(left, done, elapsed, seconds) == (rest < seconds)


def test_it_is_known_by_numbers_what_is_faster():
    gigabit = 110e6
    assert worth(1_500_000_000, 4_000_000, 4_000_000 / gigabit, 40.0), "14 s at 1 Gbit/s"
    assert not worth(1_500_000_000, 4_000_000, 4_000_000 / gigabit, 10.0)
    assert not worth(1_500_000_000, 4_000_000, 100 * 4_000_000 / gigabit, 40.0), "a hundred hosts at once"


def test_a_copy_goes_to_all_hosts_that_lack_it_at_once(scene):
    scene.share(PARTS)
    a, b, c = (scene.agents[host] for host in "abc")
    assert b.taken == c.taken == b"abcd" * 3 and {"k"} == set(b.copies) == set(c.copies)
    assert b.steps == c.steps == ["lacks", "has", "borrow", "add", "add", "add", "keep", "drop"]
    assert a.steps == ["lacks", "has", "lend", "piece", "piece", "piece", "drop"], "it is read once"
    (note,) = scene.notes
    assert note.startswith(f"template k copied from a to b, c: {format_bytes(12)} in "), note
    assert note.endswith("where creating it took 1 min 40 s.") and "from a to b, c" in scene.setups[0]


def test_nobody_is_asked_twice_for_the_same_contents(scene):
    scene.share(PARTS)
    before = len(scene.engine.calls)
    scene.share(PARTS)
    scene.share({"b": part("b", "bench", "bench")})
    assert len(scene.engine.calls) == before
    scene.share({"b": part("b", "other")})
    assert scene.engine.calls[before:] == [("b", "templates")], "it lacks nothing now"


def test_a_host_may_take_long_to_read_what_its_databases_are_made_of(scene):
    """It is not lost for that."""
    timeouts, call = {}, scene._pool.call

    def noted(host, method, step, *arguments, timeout=60.0):
        timeouts[step] = timeout
        return call(host, method, step, *arguments, timeout=timeout)

    scene._pool.call = noted
    scene.share(PARTS)
    assert timeouts["lacks"] == template_distribution._STEP_TIMEOUT_S


def test_somebody_elses_servers_have_no_copies(scene):
    scene.share({host: part(host, "bench", dsn="host=h") for host in "abc"})
    assert scene.engine.calls == []


def test_what_would_take_longer_than_making_it_is_given_up(scene):
    scene.agents["a"].copies = {"k": 0.0}
    scene.share(PARTS)
    assert scene.agents["b"].steps == ["lacks", "has", "borrow", "add", "drop"] and "k" not in scene.agents["b"].copies
    (note,) = scene.notes
    assert note.startswith("template k is not copied from a: 4 B of 12 B arrived within ") and note.endswith("the hosts create it.")


def test_a_host_that_does_not_take_it_makes_its_own_and_the_others_get_it(scene):
    scene.agents["b"].trouble = {"borrow": TrialError("it was made by another PostgreSQL")}
    scene.share(PARTS)
    assert scene.notes[0] == "on host b: it was made by another PostgreSQL; this host creates the template itself."
    assert "copied from a to c" in scene.notes[1]
    assert "add" not in scene.agents["b"].steps and "k" in scene.agents["c"].copies


def test_a_disk_that_is_full_spoils_nobody_elses(scene):
    scene.agents["b"].trouble = {"add": OSError(28, "No space left on device", "base/5/1")}
    scene.share(PARTS)
    assert "k" not in scene.agents["b"].copies and "k" in scene.agents["c"].copies
    assert scene.agents["b"].steps[-1] == "drop"
    assert "No space left on device" in scene.notes[0] and "host b" in scene.notes[0]


@pytest.mark.parametrize("step", ["lend", "piece"])
def test_a_copy_that_cannot_be_read_is_made_by_each(scene, step):
    scene.agents["a"].trouble = {step: TrialError("it is not there any more")}
    scene.share(PARTS)
    assert scene.notes == ["on host a: it is not there any more; the hosts that lack this template create it."]
    assert scene.agents["b"].steps[-1] == "drop" and "k" not in scene.agents["b"].copies


def test_a_host_that_is_lost_meanwhile_is_left_to_who_needs_it(scene):
    def gone():
        scene.engine.lose("a")
        return Chunk(b"abcd")

    scene.agents["a"].piece = gone
    scene.share(PARTS)
    assert scene.notes == [] and scene.agents["b"].steps[-1] == "drop" == scene.agents["c"].steps[-1]
