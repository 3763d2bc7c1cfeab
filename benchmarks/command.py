"""pgherd by its command line, as a user calls it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence

from pgherd.node import interruption

_POLL_S = 1.0


def pgherd(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a verb to its end and return its exit code and output; see ``to_its_end``."""
    return to_its_end([sys.executable, "-m", "pgherd", *words])


def to_its_end(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that takes back what it has made, and return its exit code and output.

    Whoever ends the benchmark (Ctrl-C, SIGTERM, SIGHUP; see ``outcome.run``) ends it: the command is then interrupted once, and may take
    back what it has made before KeyboardInterrupt goes on, in a thread too. `subprocess.run` would kill it a quarter of a second later.
    """
    # A session of its own: a terminal's Ctrl-C comes to the benchmark alone.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=_POLL_S)
                    return subprocess.CompletedProcess(command, process.returncode, out, err)
                interruption.check()  # no signal raises anything in a thread
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            process.communicate()
            raise
