"""When pg_balloon's worker runs light ticks, on a real server whose machine is at peace because files say so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

MB = 1024 * 1024
PEACE = {"enabled": "on", "interval": "20ms", "low_watermark": "0.1", "high_watermark": "0.2"}
FILES = {
    "pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total={waited:12}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    "meminfo": "MemTotal: 16000000 kB\nMemFree: {free:12} kB\nMemAvailable: 12000000 kB\nActive(file): 100 kB\nSwapTotal: 0 kB\n",
    "vmstat": "workingset_refault_anon {refaults:12}\nworkingset_refault_file 0\n",
}
"""As long whatever they say: who reads one while it is written finds it whole."""


class Machine:
    """What the server reads of its machine: beside it others work, who wait for memory and swap whenever they like."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def says(self, waited: int = 5, free: int = 9_000_000, refaults: int = 0) -> None:
        for name, text in FILES.items():
            file = self._root / name
            file.touch()
            with file.open("r+") as remote:
                remote.write(text.format(waited=waited, free=free, refaults=refaults))

    def remove(self) -> None:
        for name in FILES:
            (self._root / name).unlink(missing_ok=True)


@pytest.fixture
def machine(injected: Any) -> Iterator[Machine]:
    created = Machine(injected.root)
    created.says()
    yield created
    created.remove()


@pytest.fixture
def calm(machine: Machine, injected: Any, started: Any) -> Iterator[Any]:
    with started(injected) as process:
        yield process


def counted(calm: Any) -> tuple[int, int]:
    """All ticks so far, and the light ones among them."""
    with psycopg.connect(calm.server.conninfo(), autocommit=True) as connection:
        return connection.execute("SELECT ticks, light_ticks FROM pg_stat_balloon").fetchone() or (0, 0)


def passed(calm: Any, least: int) -> tuple[int, int]:
    """So many ticks or more from now on, and how many of them were light."""
    first = counted(calm)
    calm.wait_until(lambda: counted(calm)[0] >= first[0] + least)
    last = counted(calm)
    return last[0] - first[0], last[1] - first[1]


def wait_for_peace(calm: Any) -> None:
    """Until most ticks are light."""

    def mostly() -> bool:
        ticks, light_ticks = passed(calm, 25)
        return light_ticks >= 0.6 * ticks

    calm.wait_until(mostly)


def none_is_a_glance(calm: Any) -> None:
    calm.wait_until(lambda: passed(calm, 1)[1] == 0)  # the worker has seen the change
    assert passed(calm, 30)[1] == 0


def test_at_peace_it_glances_and_looks_each_time_when_there_is_something_to_see(calm: Any) -> None:
    """By counters: most ticks at peace are light, but not all; also while a target is kept; none is while the
    balloon holds something by itself, or memory is short, and that is answered."""
    calm.run("CREATE TABLE t AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 40000) g")
    calm.set(**PEACE, max_writeback_rate="0")
    wait_for_peace(calm)
    ticks, light_ticks = counted(calm)
    calm.wait_until(lambda: counted(calm)[0] - counted(calm)[1] >= ticks - light_ticks + 2)  # once a second all the same

    assert calm("SELECT pg_balloon_inflate(%s)", 8 * MB) == 8 * MB
    none_is_a_glance(calm)
    assert calm("SELECT pg_balloon_deflate(%s)", 8 * MB) == 8 * MB
    wait_for_peace(calm)

    calm.set(**PEACE | {"target": "16MB"})
    wait_for_peace(calm)
    assert calm.status("ballooned_bytes") == 16 * MB
    calm.set(**PEACE, max_writeback_rate="0")
    none_is_a_glance(calm)
    assert calm("SELECT pg_balloon_deflate(%s)", 16 * MB) == 16 * MB
    wait_for_peace(calm)

    calm.set(**PEACE | {"high_watermark": "100"})  # never so much is available
    calm.wait_until(lambda: calm("SELECT inflate_decisions FROM pg_stat_balloon") > 0)
    none_is_a_glance(calm)
    assert calm.status("decision_reason") == "memory is short, and part of this pool is idle"


def test_who_waits_for_memory_makes_each_tick_a_look(calm: Any, machine: Machine) -> None:
    calm.set(**PEACE, max_writeback_rate="0")
    wait_for_peace(calm)
    waited = 5

    def looks_only() -> bool:
        nonlocal waited
        first = counted(calm)
        while counted(calm)[0] < first[0] + 10:
            machine.says(waited := waited + 1)
        last = counted(calm)
        return last[1] - first[1] < 0.5 * (last[0] - first[0])

    calm.wait_until(looks_only)
    wait_for_peace(calm)


def test_what_others_swap_in_groups_of_their_own_takes_nothing_from_this_pool(calm: Any, machine: Machine) -> None:
    """Pages come back all the time, but half of the machine is used by nobody; once nothing is left unused, the idle pool gives."""
    calm.run("CREATE TABLE t AS SELECT g AS id, repeat('x', 400) AS filler FROM generate_series(1, 40000) g")
    calm.set(**PEACE | {"idle_after": "500ms"}, max_writeback_rate="0")
    refaults = 0

    def pages_come_back(ticks: int, free: int) -> None:
        nonlocal refaults
        last = counted(calm)[0] + ticks
        while counted(calm)[0] < last:
            machine.says(refaults=(refaults := refaults + 200), free=free)

    pages_come_back(100, free=9_000_000)
    assert calm("SELECT inflate_decisions FROM pg_stat_balloon") == 0 and calm.status("ballooned_bytes") == 0
    calm.wait_until(lambda: pages_come_back(10, free=1000) or calm("SELECT inflate_decisions FROM pg_stat_balloon") > 0)
    assert calm.status("ballooned_bytes") > 0
