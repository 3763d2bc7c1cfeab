"""Any command as a driver: its argv as given, without a shell.

``Load.options``: ``argv`` (a JSON list of words), ``env:NAME`` (a variable of its environment), ``cwd`` (the directory in which it
is started), ``privileged`` (1: it runs as pgherd does, not under the servers' account), ``value:NAME`` (a regular expression that
finds a number in its output).

**Its end.** In a phase that lasts until its drivers end, whoever drives the phase writes ``ended.json`` beside the command's output
(``Ending``): when it ended, and how. In one that ends by the clock the command must not end before it is told to by SIGTERM; whatever
it says then is fine. timeout(1) stands before it: it passes the signal on to the processes that the command has started, too, and
ends by SIGKILL what does not heed it. There are two of them, since nobody passes on a SIGKILL: the outer one may be killed, as it is
when pgherd is, and then setpriv(1) has the inner one told to end.

**Values** are read from its standard output, else from its standard error: the last match counts, since tools print their
summary last. Its group 1 is the number, or the whole match where there is no group; thousands may be separated by commas.

A transaction is one run that came to its end; nothing is counted of a command that is ended.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Final

from pgherd.drivers.driver import Endpoint, Span, Window
from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.model.result import TargetResult

ENDED: Final = "ended.json"
VALUE: Final = "value:"
_ENV: Final = "env:"
_KNOWN = {"argv", "cwd", "privileged"}
_PATIENCE = 10
"""Seconds between SIGTERM and SIGKILL."""


@dataclass(frozen=True)
class Ending:
    """How a command ended by itself: exit code (negative: that signal), and the instant, seconds since the epoch."""

    code: int
    at: float

    def written(self) -> bytes:
        """The contents of ``ended.json``."""
        return json.dumps(asdict(self)).encode()


class CommandDriver:
    """See the module."""

    name = "command"
    stop_signal: int = signal.SIGTERM
    exit_codes: tuple[int, ...] = (*range(256), -signal.SIGTERM, -signal.SIGKILL)

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """The command line: the command's words behind those of env(1), for its directory and variables, timeout(1) and setpriv(1).

        Raises:
            UsageError: there is no command, or an option is unknown.
        """
        options = load.options
        unknown = sorted(name for name in options if name not in _KNOWN and not name.startswith((VALUE, _ENV)))
        if unknown:
            raise UsageError(f"a command has no option '{unknown[0]}'; known: {', '.join(sorted(_KNOWN))}, {_ENV}NAME, {VALUE}NAME")
        ended = ["timeout", f"--kill-after={_PATIENCE}", str(max(1, ceil(seconds)))]
        directory = [f"--chdir={options['cwd']}"] if "cwd" in options else []
        return ["env", *directory, *variables(load), *ended, "setpriv", "--pdeathsig", "TERM", *ended, *command_of(load)]

    def span(self, files: Mapping[str, str], started: float, stop: float) -> Span:
        """From its start to its end, or to when it was told to."""
        ending = read_ending(files)
        return Span(started, stop if ending is None else max(started, ending.at))

    def result(self, load: Load, files: Mapping[str, str], started: float, window: Window, target: str) -> TargetResult:
        """The target's result; ``client_cpu`` and ``raw`` are left to the caller.

        ``values``: ``duration_seconds`` and ``exit_code`` of a command that ended by itself; ``value:NAME`` of each that was found.
        """
        ending = read_ending(files)
        span = self.span(files, started, window.stop)
        values = {f"{VALUE}{name}": found for name, found in read_values(patterns_of(load), files).items() if found is not None}
        if ending is not None:
            values |= {"duration_seconds": span.last - started, "exit_code": float(ending.code)}
        done = float(ending is not None and ending.code == 0)
        return TargetResult(
            target=target,
            driver=self.name,
            transactions=done,
            throughput=done / (span.last - started) if span.last > started else 0.0,
            first=span.first,
            last=span.last,
            values=values,
        )


def command_of(load: Load) -> list[str]:
    """The command's own words; raises UsageError where there are none."""
    try:
        words = json.loads(load.options.get("argv", "[]"))
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words) or not words[0]:
        raise UsageError("a command load needs argv, a JSON list of words of which the first names the program")
    return words


def variables(load: Load) -> list[str]:
    """``NAME=VALUE`` of each variable that its environment has besides."""
    return [f"{name.removeprefix(_ENV)}={value}" for name, value in load.options.items() if name.startswith(_ENV)]


def patterns_of(load: Load) -> dict[str, str]:
    """Name → regular expression of the values that are read from the output."""
    return {name.removeprefix(VALUE): pattern for name, pattern in load.options.items() if name.startswith(VALUE)}


def read_ending(files: Mapping[str, str]) -> Ending | None:
    """How it ended by itself; None where it was told to end. Raises ValueError for what is no ending."""
    text = files.get(ENDED)
    if text is None:
        return None
    try:
        told = json.loads(text)
        return Ending(int(told["code"]), float(told["at"]))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{ENDED} does not say how the command ended: '{text[:100]}'") from None


def read_values(patterns: Mapping[str, str], files: Mapping[str, str]) -> dict[str, float | None]:
    """The value of each pattern, None where nothing matches, or what matches is no number."""
    return {name: _value(pattern, files) for name, pattern in patterns.items()}


def _value(pattern: str, files: Mapping[str, str]) -> float | None:
    for name in ("stdout", "stderr"):
        matches = list(re.finditer(pattern, files.get(name, ""), re.MULTILINE))
        if matches:
            last = matches[-1]
            try:
                return float((last[1] if last.re.groups else last[0]).replace(",", ""))
            except (AttributeError, ValueError):  # a group that took no part, or no number
                return None
    return None


DRIVER = CommandDriver()
