"""What a phase says of the host's CPU."""

from __future__ import annotations

import pytest

from pgherd.model.result import PhaseResult


def busy(**host: float) -> float | None:
    metrics = {"host": {f"cpu.{name}": value for name, value in host.items()}} if host else {}
    return PhaseResult(phase="steady", start=0, end=1, overlap=1, targets=[], metrics=metrics).busy_cores()


def test_idle_time_tells_what_ticks_miss() -> None:
    """A captured second of 4 databases under a quota: the kinds add up to 1.87 of 2 CPUs."""
    kinds = {"user": 0.55, "nice": 0.0, "system": 0.35, "irq": 0.0, "softirq": 0.01, "steal": 0.01, "idle": 0.94, "iowait": 0.01}
    assert busy(**kinds, online=2.0) == pytest.approx(1.04)
    assert busy(**kinds) == pytest.approx(0.91)


def test_what_was_not_seen_is_none() -> None:
    assert busy() is None
    assert busy(online=2.0, idle=1.0) is None
