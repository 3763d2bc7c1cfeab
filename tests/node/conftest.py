from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from pgherd.node import interruption


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What pytest itself does at a signal is put back, and that one came is forgotten."""
    monkeypatch.setattr(interruption, "_asked", False)
    before = {number: signal.getsignal(number) for number in interruption.SIGNALS}
    for number in interruption.SIGNALS:  # one that is ignored (nohup) would stay so
        signal.signal(number, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
