from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import pytest

from pgherd.node import interruption

pytestmark = pytest.mark.usefixtures("signals")


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", interruption.SIGNALS)
def test_each_signal_ends_the_block(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), interruption.ended_by_signals():
        send(number)
    assert interruption.requested()


def test_later_signals_do_not_disturb_what_takes_back(capfd: pytest.CaptureFixture[str]) -> None:
    taken_back = False
    with pytest.raises(KeyboardInterrupt), interruption.ended_by_signals():
        try:
            send(signal.SIGINT)
        finally:
            for number in interruption.SIGNALS:
                send(number)
            taken_back = True
    assert taken_back
    assert "Ending already; changes to the host are being undone." in capfd.readouterr().err


def test_what_takes_back_is_not_disturbed_by_a_first_signal_either() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), interruption.ended_by_signals():
        with interruption.undisturbed():
            with interruption.undisturbed():
                send(signal.SIGTERM)
                steps.append("inner")
            steps.append("outer")
        steps.append("too far")
    assert steps == ["inner", "outer"]


def test_without_a_signal_nothing_changes() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with interruption.ended_by_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
        with interruption.undisturbed():
            pass
        interruption.check()
    assert signal.getsignal(signal.SIGTERM) is before and not interruption.requested()


def test_an_interrupt_that_a_library_turned_into_its_own_error_is_one_again() -> None:
    with pytest.raises(KeyboardInterrupt) as raised, interruption.ended_by_signals():
        try:
            send(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_an_interrupt_that_got_lost_is_insisted_upon() -> None:
    with pytest.raises(KeyboardInterrupt), interruption.ended_by_signals():
        with contextlib.suppress(KeyboardInterrupt):
            send(signal.SIGINT)
        interruption.check()


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match="mine"), interruption.ended_by_signals():
        raise ValueError("mine")


def test_what_was_ignored_at_the_start_stays_ignored() -> None:
    """nohup ignores SIGHUP before it starts this process."""
    script = (
        "import os, signal; from pgherd.node import interruption\n"
        "with interruption.ended_by_signals():\n"
        "    os.kill(os.getpid(), signal.SIGHUP); print('still here')"
    )
    finished = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    assert finished.stdout == "still here\n", finished.stderr
