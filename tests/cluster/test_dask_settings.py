"""Dask slowed down."""

from __future__ import annotations

import logging
from types import SimpleNamespace

from pgherd.cluster import dask_settings


def test_periods_are_changed_and_can_be_given_back():
    calls = {name: SimpleNamespace(callback_time=500.0) for name in ("heartbeat", "tick", "keep-alive")}
    server = SimpleNamespace(periodic_callbacks=calls)
    before = dask_settings.slow_down(server, dask_settings.PERIODS)
    assert before == {"heartbeat": 0.5, "tick": 0.5}
    assert calls["tick"].callback_time == dask_settings.PERIODS["tick"] * 1000 and calls["keep-alive"].callback_time == 500.0
    dask_settings.slow_down(server, before)
    assert calls["tick"].callback_time == 500.0


def test_every_setting_is_one_that_dask_knows():
    import dask

    for name in dask_settings.CONFIGURATION:
        assert dask.config.get(name, default=...) is not ..., name
    dask_settings.configure()
    assert dask.config.get("distributed.worker.profile.enabled") is False
    assert logging.getLogger("distributed.client").getEffectiveLevel() == logging.CRITICAL
