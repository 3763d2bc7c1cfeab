import json

from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics.cpu import TICKS
from pgherd.metrics.processes import PAGE
from pgherd.metrics.spool import Spool, readings

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
