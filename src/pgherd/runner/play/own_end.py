"""Drivers that end by themselves (``Phase.until`` 'drivers'): how they are waited for, how each ended, and what is left to be ended.

pgherd.runner.play.phases starts them as it starts all others.
"""

from __future__ import annotations

import contextlib
import signal
import time

from pgherd.drivers.command import ENDED, Ending
from pgherd.model.errors import TrialError
from pgherd.model.units import format_seconds
from pgherd.node import interruption
from pgherd.node.protocol import Command, Node
from pgherd.runner.deploy.targets import Stage
from pgherd.runner.play.launching import Running

_WATCH_SECONDS = 0.5
_SHARED_SECONDS = 0.02
"""How long one driver is waited for while others run: so late is the end of another seen at the most."""
_END_SECONDS = 15.0


def wait(node: Node, until: float, running: list[Running], stage: Stage) -> None:
    """Wait until all drivers have ended, whatever their exit codes: these are judged by a verdict. ``ended.json`` beside each one's
    output says when it ended, and how.

    Raises:
        TrialError: one has not ended by the instant ``until``, or something else has ended that must not.
    """
    begun = min([one.started for one in running], default=until)
    while waiting := [one for one in running if not one.ended]:
        interruption.insist()
        left = until - node.now()
        if left <= 0:
            raise TrialError(
                f"{waiting[0].load.driver} on {waiting[0].target} had not ended after {format_seconds(until - begun)}, the longest that it "
                f"may take; give it more with --timeout, or end it by the clock with --seconds"
            )
        for one in waiting:
            with contextlib.suppress(TimeoutError):
                code = one.process.wait(min(left, _WATCH_SECONDS if len(waiting) == 1 else _SHARED_SECONDS))
                one.ended = one.node.now()
                _end_session(one)
                one.node.write(str(one.output / ENDED), Ending(code, one.ended).written())
        stage.check()


def end(running: list[Running]) -> None:
    """Tell all to end, and what they have started; then make sure. What cannot be ended, such as another account's program, is left."""
    for one in running:
        with contextlib.suppress(OSError):
            one.process.signal(one.driver.stop_signal)
    deadline = time.monotonic() + _END_SECONDS
    for one in running:
        with contextlib.suppress(OSError):  # TimeoutError among them
            try:
                one.process.wait(max(deadline - time.monotonic(), 0.1))
            except TimeoutError:
                one.process.signal(signal.SIGKILL)
                one.process.wait(10)
        _end_session(one)


def _end_session(one: Running) -> None:
    """End what a command has left behind in its session, of which it was the leader; there mostly is nothing."""
    with contextlib.suppress(OSError, TimeoutError):  # without pkill(1) it stays
        one.node.run(Command(["pkill", "-KILL", "--session", str(one.process.pid)]))
