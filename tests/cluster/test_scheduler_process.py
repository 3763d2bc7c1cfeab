"""The scheduler's own end; that it starts and ends when told is in tests/cluster/test_start.py."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from pgherd.cluster import scheduler_process


@pytest.mark.parametrize(
    "workers, clients, stays", [({}, {"none": 1}, False), ({"a": 1}, {"none": 1}, True), ({}, {"none": 1, "b": 2}, True)]
)
def test_it_ends_when_nobody_needs_it(monkeypatch, workers, clients, stays):
    monkeypatch.setattr(scheduler_process, "ALONE", 0.2)
    monkeypatch.setattr(scheduler_process, "_POLL_INTERVAL_S", 0.05)

    async def scenario() -> float:
        event = asyncio.Event()
        asyncio.get_running_loop().call_later(1.0, event.set)
        began = time.monotonic()
        await scheduler_process._wait_until_unused(SimpleNamespace(workers=workers, clients=clients), event)
        assert event.is_set() is stays
        return time.monotonic() - began

    asyncio.run(scenario())
