import json

from hypothesis import given
from hypothesis import strategies as st

from pgherd.host.kernel_files import TICKS
from pgherd.metrics.processes import PAGE
from pgherd.metrics.spool import LatestReadings, Spool, readings

# ---- readings


ANNOUNCED = {
    "sources": [["cgroup_cpu", "container:a", "file", "/x", "v1 usage"], ["vmstat", "host", "file", "/proc/vmstat", ""]],
    "first": 0,
}
SPOOL = [
    ANNOUNCED,
    {"t": 10.5, "i": 0, "raw": "2000000000\n"},
    {"t": 10.6, "i": 1, "raw": "pswpin 3\npgfault 7\n"},
    {"sources": [["database", "server:a/pg", "sql", "host=/s", ""]], "first": 2},
    {"t": 11.5, "i": 2, "raw": None, "error": "connection lost"},
    {"t": 11.5, "i": 0, "raw": "3000000000\n"},
]
LINES = [json.dumps(document) + "\n" for document in SPOOL]


def test_gives_readings_in_order() -> None:
    spool = Spool(LINES)
    assert list(spool) == [
        (10.5, "cgroup_cpu", "container:a", {"cpu.usage": 2.0}),
        (10.6, "vmstat", "host", {"vm.pswpin": 3, "vm.pgfault": 7}),
        (11.5, "cgroup_cpu", "container:a", {"cpu.usage": 3.0}),
    ]
    assert spool.torn == 0
    assert list(readings(LINES)) == list(spool)


def test_what_was_parsed_elsewhere_is_taken_as_it_is() -> None:
    lines = [
        '{"sources":[["cgroup_cpu","container:a","read on","db1",""]],"first":0}',
        '{"t":1.5,"i":0,"values":{"cpu.usage":2.5}}',
        '{"t":2.5,"i":0,"values":[1]}',
    ]
    spool = Spool(lines, only={"cgroup_cpu"})
    assert list(spool) == [(1.5, "cgroup_cpu", "container:a", {"cpu.usage": 2.5})] and spool.torn == 1
    assert list(Spool(lines, only={"cpu"})) == []


def test_counts_failures_by_source_with_the_last_reason() -> None:
    spool = Spool([*LINES, '{"t": 12, "i": 2, "raw": "[[1]]"}', '{"t": 12, "i": 0, "raw": "??"}'])
    assert len(list(spool)) == 3
    told = {source.where: (failures.count, failures.last) for source, failures in spool.failures.items()}
    assert told == {"host=/s": (2, "the statement returns 20 columns, not 1"), "/x": (1, "'??' is not a count")}


def test_a_torn_last_line_is_left_out() -> None:
    spool = Spool([*LINES[:-1], LINES[-1][:-8]])
    assert len(list(spool)) == 2
    assert spool.torn == 1


def test_a_sampler_of_another_version_is_a_failure() -> None:
    spool = Spool(['{"sources": [["later", "host", "file", "/x", ""]], "first": 0}', '{"t": 1, "i": 0, "raw": "x"}'])
    assert list(spool) == []
    assert [failures.last for failures in spool.failures.values()] == ["there is no sampler 'later'"]


def stat(ticks: int, pages: int) -> str:
    fields = ["S", *["0"] * 10, str(ticks), *["0"] * 9, str(pages), "0"]
    return f"7 (x) {' '.join(fields)}"


def process_spool(kind: str, tag: str) -> list[dict[str, object]]:
    """Two processes of one entity: the second is watched later, and ends."""
    return [
        {"sources": [["processes", "platform:x", kind, "1", tag]], "first": 0},
        {"t": 1, "i": 0, "raw": stat(10 * TICKS, 100)},
        {"sources": [["processes", "platform:x", kind, "2", tag]], "first": 1},
        {"t": 2, "i": 0, "raw": stat(11 * TICKS, 100)},
        {"t": 2.1, "i": 1, "raw": stat(500 * TICKS, 50)},
        {"t": 3, "i": 0, "raw": stat(12 * TICKS, 100)},
        {"t": 3.1, "i": 1, "raw": stat(503 * TICKS, 50)},
        {"t": 4, "i": 0, "raw": stat(13 * TICKS, 100)},
        {"t": 4.1, "i": 1, "raw": None, "error": "gone"},
        {"t": 5, "i": 0, "raw": stat(14 * TICKS, 100)},
    ]


def test_sources_of_one_entity_are_added_up() -> None:
    found = list(Spool(map(json.dumps, process_spool("file", ""))))
    assert [(t, values["cpu.usage"]) for t, _, _, values in found] == [(1, 10), (2, 11), (2.1, 11), (3, 12), (3.1, 15), (4, 16), (5, 17)]
    assert [values["memory.rss"] / PAGE for *_, values in found] == [100, 100, 150, 150, 150, 150, 100]
    trees = list(Spool(map(json.dumps, process_spool("tree", "tree"))))
    assert [values["cpu.usage"] for *_, values in trees] == [10, 11, 11, 12, 15, 16, 17]


def test_a_source_announced_twice_is_one_source() -> None:
    again = {"sources": ANNOUNCED["sources"], "first": 3}
    spool = Spool([*LINES, json.dumps(again), '{"t": 12.5, "i": 0, "raw": "4000000000"}', '{"t": 12.6, "i": 3, "raw": "4100000000"}'])
    assert [values["cpu.usage"] for _, sampler, _, values in spool if sampler == "cgroup_cpu"] == [2, 3, 4, 4.1]


def test_bytes_and_empty_lines_will_do() -> None:
    spool = Spool([b"\n", *(line.encode() for line in LINES)])
    assert len(list(spool)) == 3
    assert spool.torn == 0


def test_odd_documents_are_torn_lines() -> None:
    odd = [
        '{"sources": [[["a"], "b", "c", "d", "e"]], "first": 0}',
        '{"t": NaN, "i": 0, "raw": "1"}',
        '{"t": 1, "i": 9, "raw": "1"}',
        "3",
        '"sources"',
    ]
    spool = Spool([*LINES[:1], *odd])
    assert list(spool) == []
    assert spool.torn == len(odd)


@given(st.integers(0, sum(map(len, LINES))))
def test_truncated_anywhere_it_gives_a_prefix(length: int) -> None:
    whole = list(Spool(LINES))
    spool = Spool("".join(LINES)[:length].splitlines(keepends=True))
    found = list(spool)
    assert found == whole[: len(found)]
    assert spool.torn <= 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=5
)
documents = st.fixed_dictionaries({}, optional=dict.fromkeys(("t", "i", "raw", "error", "sources", "first"), json_values))


@given(st.lists(documents.map(json.dumps) | json_values.map(json.dumps) | st.text() | st.binary()))
def test_any_lines_are_survived(lines: list[str | bytes]) -> None:
    list(Spool([json.dumps(ANNOUNCED), *lines]))


def test_readings_of_other_samplers_are_passed_over() -> None:
    spool = Spool([*LINES, '{"t": 12, "i": 0, "raw": "??"}'], only={"vmstat"})
    assert [reading[1] for reading in spool] == ["vmstat"] and not spool.failures


def test_iterated_anew_it_goes_on_with_what_has_been_added() -> None:
    lines = list(LINES[:2])
    spool = Spool(lines)
    assert len(list(spool)) == 1
    lines[:] = LINES[2:3]
    assert [reading[1] for reading in spool] == ["vmstat"], "the sources that were announced before are known"


# ---- last readings


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
    latest = LatestReadings(lines)
    assert latest.read() == []
    lines.new = [announced(USAGE), *(line(10 + i, 0, f"{(2 + i) * 10**9}\n") for i in range(5))]
    assert told(latest) == {("container:a", "cpu.usage"): (14, 6.0)}
    assert told(latest) == {("container:a", "cpu.usage"): (14, 6.0)}, "nothing new: the same again"
    lines.new = [line(15, 0, f"{7 * 10**9}\n"), line(16, 0, f"{8 * 10**9}\n")]
    assert told(latest) == {("container:a", "cpu.usage"): (16, 8.0)}


def test_only_what_has_been_added_of_some_samplers():
    lines = Growing()
    latest = LatestReadings(lines, only={"cgroup_cpu"})
    lines.new = [announced(USAGE, ("vmstat", "host", "file", "/v", "")), line(1, 0, "1000000000\n"), line(1, 1, "pswpin 3\n")]
    assert latest.added() == [(1.0, "cgroup_cpu", "container:a", {"cpu.usage": 1.0})]
    lines.new = [line(t, 0, f"{t}000000000\n") for t in (2, 3)]
    assert latest.added() == [(3.0, "cgroup_cpu", "container:a", {"cpu.usage": 3.0})] and latest.added() == []


def test_what_lies_between_is_not_parsed():
    lines = Growing()
    latest = LatestReadings(lines)
    lines.new = [announced(USAGE), line(1, 0, "1000000000\n"), line(2, 0, "no number\n"), line(3, 0, "3000000000\n")]
    assert told(latest) == {("container:a", "cpu.usage"): (3, 3.0)}
    assert not latest.spool.failures


def test_a_failure_that_is_the_last_word_is_counted():
    lines = Growing()
    latest = LatestReadings(lines)
    lines.new = [announced(USAGE), line(1, 0, "1000000000\n"), line(2, 0, None, error="gone")]
    assert told(latest) == {("container:a", "cpu.usage"): (1, 1.0)}
    assert [failed.count for failed in latest.spool.failures.values()] == [1]


@given(
    readings=st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 1000)), min_size=1, max_size=40),
    looks=st.sets(st.integers(0, 40)),
)
def test_however_often_one_looks_the_sums_are_those_of_the_whole_spool(readings, looks):
    """Several processes make one container's CPU: each counts from its first reading on."""
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
    latest = LatestReadings(growing)
    for at, one in enumerate(lines):
        growing.new.append(one)
        if at in looks:
            latest.read()
    found = told(latest)
    assert set(found) == set(whole)
    for key, (t, value) in whole.items():
        assert found[key][1] == value and found[key][0] <= t
