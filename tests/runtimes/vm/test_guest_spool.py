from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics import sampler
from pgherd.metrics.sampler import SamplingView
from pgherd.metrics.spool import Spool
from pgherd.node.protocol import SampleSource
from pgherd.runtimes.vm import agent_tasks
from pgherd.runtimes.vm.guest_spool import GuestClock, GuestClockOffset, GuestSpool, announcement, append, entity, lines, measure, merge

STAT = "cpu  {} 0 100 1000 0 0 0 0 0 0\ncpu0 1 0 1 1 0 0 0 0 0 0\nctxt 5\n"
DISKS = " 254 0 vda 10 0 80 5 4 0 32 2 0 7 7 0 0 0 0 1 1\n 254 16 vdb 1 0 8 5 4 0 32 2 0 7 7 0 0 0 0 1 1\n"
SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0 partition\t1024\t512\t100\n"


def clock(offset: float) -> GuestClock:
    made = GuestClock()
    made.add(GuestClockOffset(0.0, offset, 0.001))
    return made


def reading(at: float, index: int, raw: str) -> str:
    return json.dumps({"t": at, "i": index, "raw": raw}) + "\n"


@pytest.mark.parametrize(
    "said, called",
    [
        ("host", "guest:db01"),
        ("disk", "guest-disk:db01"),
        ("swap", "guest-swap:db01"),
        ("zram:zram0", "guest-zram:db01/zram0"),
        ("container:db01", "guest-container:db01"),
        ("driver:db01/pg/bench", "driver:db01/pg/bench"),
        ("server:db01/pg", "server:db01/pg"),
    ],
)
def test_what_is_called_the_same_in_every_machine_gets_the_guest_s_name(said, called):
    assert entity("db01", said) == called


def test_a_mapping_goes_before_the_rules():
    assert entity("db01", "host", {"host": "elsewhere"}) == "elsewhere"


def test_nothing_that_a_guest_is_asked_for_clashes_with_the_host():
    """Every source that samplers read of a machine as a whole has another entity in a guest."""
    sources = sampler.sources(SamplingView())
    assert {source.entity for source in sources} >= {"host", "disk"}
    assert not {entity("db01", source.entity) for source in sources} & {source.entity for source in sources}


def test_two_guests_beside_the_host_are_one_spool():
    sources = [SampleSource("cpu", "host", "file", "/proc/stat"), SampleSource("diskstats", "disk", "file", "/proc/diskstats")]
    swap = [SampleSource("swap", "swap", "file", "/proc/swaps")]
    host = [announcement(sources, 0), reading(100.0, 0, STAT.format(100)), reading(101.0, 0, STAT.format(200)), reading(101.0, 1, DISKS)]

    def spooled(ahead: float, used: int) -> list[str]:
        first = [announcement(sources, 0), reading(100.0 + ahead, 0, STAT.format(used)), reading(100.5 + ahead, 1, DISKS)]
        return [*first, announcement(swap, 2), reading(101.0 + ahead, 2, SWAPS)]

    guests = [GuestSpool("db01", spooled(-30.0, 7), clock(-30.0)), GuestSpool("db02", spooled(3600.0, 9), clock(3600.0))]
    spool = Spool(merge(host, guests))
    found = {(at, who): values for at, _, who, values in spool}
    assert not spool.failures and not spool.torn
    assert found[100.0, "host"]["cpu.user"] == 1.0 and found[100.0, "guest:db01"]["cpu.user"] == 0.07
    assert found[100.0, "guest:db02"]["cpu.user"] == 0.09
    assert found[100.5, "guest-disk:db01/vdb"]["reads"] == 1.0 and found[101.0, "disk:vda"]["reads"] == 10.0
    assert found[101.0, "guest-swap:db02/zram0"]["swap.used"] == 512 * 1024
    assert {who for _, who in found} >= {"guest-disk:db02/vda", "disk:vdb"}


def test_guests_are_put_at_the_end_of_the_host_s_file(tmp_path):
    file = tmp_path / "spool.jsonl"
    host = [announcement([SampleSource("cpu", "host", "file", "/proc/stat")], 0), reading(1.0, 0, STAT.format(1))]
    file.write_text("".join(host))
    guests = [GuestSpool("db01", [*host[:1], reading(6.0, 0, STAT.format(2))], clock(5.0))]
    append(file, guests)
    assert file.read_text() == "".join(merge(host, guests))
    assert [(at, who, values["cpu.user"]) for at, _, who, values in Spool(file.read_text().splitlines())] == [
        (1.0, "host", 0.01),
        (1.0, "guest:db01", 0.02),
    ]


def test_torn_lines_are_passed_on_and_counted():
    torn = ['{"t": 1', "[]", '{"t": 1.0}', "x\n"]
    source = [announcement([SampleSource("cpu", "host", "file", "/proc/stat")], 0), *torn, reading(50.0, 0, STAT.format(1))]
    spool = Spool(merge(source, [GuestSpool("db01", source, clock(0.0))]))
    assert len(list(spool)) == 2 and spool.torn == 8


@pytest.mark.parametrize("index", [1, -1, 10**6])
def test_a_reading_of_a_source_that_was_not_announced_is_dropped(index):
    """It would be one of the host or of another guest."""
    announced = announcement([SampleSource("cpu", "host", "file", "/proc/stat")], 0)
    guests = [GuestSpool(name, [announced, reading(1.0, 0, STAT.format(1))], clock(0.0)) for name in ("db01", "db02")]
    guests[0].lines.append(reading(2.0, index, STAT.format(2)))
    found = [(at, who) for at, _, who, _ in Spool(merge([announced], guests))]
    assert found == [(1.0, "guest:db01"), (1.0, "guest:db02")]
    merged = list(merge([announced], [guests[1], guests[0]]))
    assert len(merged) == 5 and not any('"t":2.0' in line for line in merged)


def test_failures_keep_their_reason():
    source = [announcement([SampleSource("cpu", "host", "file", "/x")], 0), json.dumps({"t": 1.0, "i": 0, "raw": None, "error": "gone"})]
    spool = Spool(merge([], [GuestSpool("db01", source, clock(0.0))]))
    assert not list(spool)
    ((failed, why),) = spool.failures.items()
    assert failed.entity == "guest:db01" and why.last == "gone"


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(-50, 50), st.binary(max_size=40)), max_size=6), st.integers(0, 200))
def test_records_become_lines_however_they_are_cut(records, cut):
    data = b"".join(agent_tasks.RECORD.pack(when, index, len(raw)) + raw for when, index, raw in records)
    cut = min(cut, len(data))
    first, rest = lines(data[:cut])
    second, rest = lines(rest + data[cut:])
    assert rest == b""
    found = [json.loads(line) for line in first + second]
    assert [(one["i"], one["raw"] if one["raw"] is not None else one["error"]) for one in found] == [
        (index if index >= 0 else ~index, raw.decode(errors="replace")) for _, index, raw in records
    ]
    assert all(("error" in one) == (one["raw"] is None) for one in found)


DELAYS = st.floats(0.0, 0.5)


class Simulated:
    """Two clocks, and a way between them that takes as long as it is told to."""

    def __init__(self, ahead: float, ways: list[tuple[float, float, float]]) -> None:
        self.time, self.ahead, self.ways = 1.7e9, ahead, list(ways)

    def host(self) -> float:
        return self.time

    def ask(self) -> tuple[float, float]:
        there, thinking, back = self.ways.pop(0)
        self.time += there
        received = self.time + self.ahead
        self.time += thinking
        sent = self.time + self.ahead
        self.time += back
        return received, sent


def test_offset_and_half_the_way_by_the_formulas_of_rfc_5905():
    """T1 = 0, T2 = 0.6, T3 = 0.7, T4 = 0.3."""
    instants = iter([0.0, 0.3])
    found = measure(lambda: (0.6, 0.7), 1, lambda: next(instants))
    assert found.offset == pytest.approx(0.5) and found.uncertainty == pytest.approx(0.1) and found.at == pytest.approx(0.15)


@given(st.floats(-1e5, 1e5), st.lists(st.tuples(DELAYS, DELAYS, DELAYS), min_size=1, max_size=8))
def test_the_truth_is_within_the_uncertainty_however_the_way_splits(ahead, ways):
    simulated = Simulated(ahead, ways)
    found = measure(simulated.ask, len(ways), simulated.host)
    assert abs(found.offset - ahead) <= found.uncertainty + 1e-6
    assert found.uncertainty <= min(there + back for there, _, back in ways) / 2 + 1e-6, "the shortest way counts"


def test_it_must_be_asked_at_least_once():
    with pytest.raises(ValueError, match="at least one call"):
        measure(lambda: (0.0, 0.0), 0)


def measured_clock(*offsets: tuple[float, float]) -> GuestClock:
    made = GuestClock()
    for at, offset in offsets:
        made.add(GuestClockOffset(at, offset, 0.001))
    return made


def test_between_two_measurements_the_offset_changes_linearly():
    one = measured_clock((100.0, 5.0), (200.0, 5.1))
    assert [one.guest(at) for at in (0.0, 100.0, 150.0, 200.0, 300.0)] == pytest.approx([5.0, 105.0, 155.05, 205.1, 305.1])
    assert one.drift == pytest.approx(0.001) and one.uncertainty == 0.001


def test_drift_within_the_uncertainty_is_none():
    assert measured_clock((100.0, 5.0)).drift is None
    assert measured_clock((100.0, 5.0), (200.0, 5.002)).drift is None
    assert measured_clock((100.0, 5.0), (100.0, 6.0)).drift is None


def test_measurements_are_kept_in_order():
    one = measured_clock((200.0, 2.0), (100.0, 1.0), (150.0, 1.5))
    assert [offset.at for offset in one.measured] == [100.0, 150.0, 200.0]


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(-0.4, 0.4)), min_size=1, max_size=6, unique_by=lambda pair: round(pair[0])),
    st.floats(-1e4, 2e4),
)
def test_there_and_back(offsets, at):
    one = measured_clock(*[(10 * round(when), change) for when, change in offsets])
    assert one.host(one.guest(at)) == pytest.approx(at, abs=1e-6)


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.floats(-0.4, 0.4)), min_size=1, max_size=6, unique_by=lambda pair: pair[0]),
    st.floats(-100, 1100),
    st.floats(0, 50),
)
def test_what_was_later_in_the_guest_is_later_on_the_host(offsets, at, more):
    one = measured_clock(*offsets)
    assert one.host(at) <= one.host(at + more) + 1e-9


@pytest.mark.parametrize("ask", [lambda c: c.guest(1.0), lambda c: c.host(1.0), lambda c: c.uncertainty])
def test_nothing_is_converted_before_it_was_measured(ask):
    with pytest.raises(ValueError, match="no measurement of the clock|has not been measured"):
        ask(GuestClock())
