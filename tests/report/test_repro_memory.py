import pytest

from pgherd.model.deployment import Host
from pgherd.model.run import RunRecord, Surroundings, Swap
from pgherd.report import repro_memory

ZRAM = Swap(kind="zram", size=2**30)


def record(swap=ZRAM, runtime="cgroup"):
    around = Surroundings(runtime=runtime, cores=2, memory=2**31, swap=swap)
    return RunRecord(run="r", study="consolidation", options={}, started=0.0, pgherd="0", surroundings=around)


def test_memory_is_taken_away_once_the_servers_are_warm():
    host = Host(memory=2**30)
    assert repro_memory.at_first(host, record()) == 2**31
    assert f"group '' '' {2**30} ''" in list(repro_memory.taken_away(host, record()))


@pytest.mark.parametrize(
    ("host", "run"),
    [
        (Host(memory=2**31), record()),
        (Host(), record()),
        (Host(memory=2**30), record(swap=None)),
        (Host(memory=2**30), record(swap=Swap(kind="none"))),
        (Host(memory=2**30), record(runtime="process")),
    ],
)
def test_otherwise_it_is_so_from_the_beginning(host, run):
    assert repro_memory.at_first(host, run) == host.memory
    assert not list(repro_memory.taken_away(host, run))
