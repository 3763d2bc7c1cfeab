from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics import registry
from pgherd.metrics.sampler import View
from pgherd.metrics.spool import Spool
from pgherd.node.protocol import Source
from pgherd.runtimes.vm import agent_sampling
from pgherd.runtimes.vm.guest_clock import GuestClock, Offset
from pgherd.runtimes.vm.guest_spool import GuestSpool, announcement, append, entity, lines, merge

STAT = "cpu  {} 0 100 1000 0 0 0 0 0 0\ncpu0 1 0 1 1 0 0 0 0 0 0\nctxt 5\n"
DISKS = " 254 0 vda 10 0 80 5 4 0 32 2 0 7 7 0 0 0 0 1 1\n 254 16 vdb 1 0 8 5 4 0 32 2 0 7 7 0 0 0 0 1 1\n"
SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0 partition\t1024\t512\t100\n"


def clock(offset: float) -> GuestClock:
    made = GuestClock()
    made.add(Offset(0.0, offset, 0.001))
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
    sources = registry.sources(View())
    assert {source.entity for source in sources} >= {"host", "disk"}
    assert not {entity("db01", source.entity) for source in sources} & {source.entity for source in sources}


def test_two_guests_beside_the_host_are_one_spool():
    sources = [Source("cpu", "host", "file", "/proc/stat"), Source("diskstats", "disk", "file", "/proc/diskstats")]
    swap = [Source("swap", "swap", "file", "/proc/swaps")]
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
    host = [announcement([Source("cpu", "host", "file", "/proc/stat")], 0), reading(1.0, 0, STAT.format(1))]
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
    source = [announcement([Source("cpu", "host", "file", "/proc/stat")], 0), *torn, reading(50.0, 0, STAT.format(1))]
    spool = Spool(merge(source, [GuestSpool("db01", source, clock(0.0))]))
    assert len(list(spool)) == 2 and spool.torn == 8


def test_failures_keep_their_reason():
    source = [announcement([Source("cpu", "host", "file", "/x")], 0), json.dumps({"t": 1.0, "i": 0, "raw": None, "error": "gone"})]
    spool = Spool(merge([], [GuestSpool("db01", source, clock(0.0))]))
    assert not list(spool)
    ((failed, why),) = spool.failures.items()
    assert failed.entity == "guest:db01" and why.last == "gone"


@given(st.lists(st.tuples(st.integers(0, 2**62), st.integers(-50, 50), st.binary(max_size=40)), max_size=6), st.integers(0, 200))
def test_records_become_lines_however_they_are_cut(records, cut):
    data = b"".join(agent_sampling.RECORD.pack(when, index, len(raw)) + raw for when, index, raw in records)
    cut = min(cut, len(data))
    first, rest = lines(data[:cut])
    second, rest = lines(rest + data[cut:])
    assert rest == b""
    found = [json.loads(line) for line in first + second]
    assert [(one["i"], one["raw"] if one["raw"] is not None else one["error"]) for one in found] == [
        (index if index >= 0 else ~index, raw.decode(errors="replace")) for _, index, raw in records
    ]
    assert all(("error" in one) == (one["raw"] is None) for one in found)
