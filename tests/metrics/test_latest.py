import json

from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics.latest import Latest
from pgherd.metrics.spool import Spool


class Growing:
    """Lines that are added piece by piece, each handed out once."""

    def __init__(self):
        self.new = []

    def __iter__(self):
        new, self.new = self.new, []
        yield from new


def line(t, i, raw, **more):
    return json.dumps({"t": t, "i": i, "raw": raw, **more}, separators=(",", ":")).encode()


def announced(*sources, first=0):
    return json.dumps({"sources": [list(source) for source in sources], "first": first}, separators=(",", ":")).encode()


def tree(ticks):
    return f"7 (x) {' '.join(['S', *['0'] * 10, str(ticks), *['0'] * 9, '0', '0'])}"


USAGE = ("cgroup_cpu", "container:a", "file", "/x", "v1 usage")


def told(latest):
    return {(one.entity, one.metric.name): (one.t, one.value) for one in latest.read()}


def test_only_the_last_reading_of_a_source_is_told():
    lines = Growing()
    latest = Latest(lines)
    assert latest.read() == []
    lines.new = [announced(USAGE), *(line(10 + i, 0, f"{(2 + i) * 10**9}\n") for i in range(5))]
    assert told(latest) == {("container:a", "cpu.usage"): (14, 6.0)}
    assert told(latest) == {("container:a", "cpu.usage"): (14, 6.0)}, "nothing new: the same again"
    lines.new = [line(15, 0, f"{7 * 10**9}\n"), line(16, 0, f"{8 * 10**9}\n")]
    assert told(latest) == {("container:a", "cpu.usage"): (16, 8.0)}


def test_only_what_has_been_added_of_some_samplers():
    lines = Growing()
    latest = Latest(lines, only={"cgroup_cpu"})
    lines.new = [announced(USAGE, ("vmstat", "host", "file", "/v", "")), line(1, 0, "1000000000\n"), line(1, 1, "pswpin 3\n")]
    assert latest.added() == [(1.0, "cgroup_cpu", "container:a", {"cpu.usage": 1.0})]
    lines.new = [line(t, 0, f"{t}000000000\n") for t in (2, 3)]
    assert latest.added() == [(3.0, "cgroup_cpu", "container:a", {"cpu.usage": 3.0})] and latest.added() == []


def test_what_lies_between_is_not_parsed():
    lines = Growing()
    latest = Latest(lines)
    lines.new = [announced(USAGE), line(1, 0, "1000000000\n"), line(2, 0, "no number\n"), line(3, 0, "3000000000\n")]
    assert told(latest) == {("container:a", "cpu.usage"): (3, 3.0)}
    assert not latest.spool.failures


def test_a_failure_that_is_the_last_word_is_counted():
    lines = Growing()
    latest = Latest(lines)
    lines.new = [announced(USAGE), line(1, 0, "1000000000\n"), line(2, 0, None, error="gone")]
    assert told(latest) == {("container:a", "cpu.usage"): (1, 1.0)}
    assert [failed.count for failed in latest.spool.failures.values()] == [1]


@given(
    readings=st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 1000)), min_size=1, max_size=40),
    looks=st.sets(st.integers(0, 40)),
)
def test_however_often_one_looks_the_sums_are_those_of_the_whole_spool(readings, looks):
    """Several processes make one container's CPU: each counts from its own first reading on."""
    sources = [("processes", "container:a", "tree", str(pid), "tree") for pid in range(3)]
    highest = [0, 0, 0]
    lines = [announced(*sources)]
    for t, (i, more) in enumerate(readings):
        highest[i] += more
        lines.append(line(float(t), i, tree(highest[i])))
    whole = {}
    for t, _, entity, values in Spool(lines):
        whole |= {(entity, name): (t, value) for name, value in values.items()}
    growing = Growing()
    latest = Latest(growing)
    for at, one in enumerate(lines):
        growing.new.append(one)
        if at in looks:
            latest.read()
    found = told(latest)
    assert set(found) == set(whole)
    for key, (t, value) in whole.items():
        assert found[key][1] == value and found[key][0] <= t
