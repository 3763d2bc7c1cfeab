"""Driver for any command, started with its argv and without a shell.

``Load.options``: ``argv`` (a JSON list of strings), ``env:NAME`` (an environment variable; its value stays in this process, see
``pgherd.node.secrets``), ``cwd`` (the working directory), ``privileged`` (1: run as pgherd's user instead of the servers' user),
``value:NAME`` (a regular expression that matches a number in the output).

**End.** In a phase that lasts until its drivers end, pgherd adds ``ended.json`` (``CommandExit``) to the command's output files,
with the instant and the exit code. In a phase that ends by the clock, the command must run until it gets SIGTERM. Any exit code is
accepted then.

The command is started by timeout(1). It forwards the signal to the processes that the command has started, and sends SIGKILL to those
that ignore it. There are two timeouts, because a SIGKILL cannot be forwarded. If the outer one is killed, for example together with
pgherd, setpriv(1) sends SIGTERM to the inner one.

**Values** are read from standard output, otherwise from standard error. The last match counts, because tools print their summary last.
Its group 1 is the number, or the complete match without a group. In ``1,234`` the
comma groups thousands. In ``12,5`` it is the decimal mark.

A transaction is one run that ended with exit code 0. A stopped command counts none.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Final

from pgherd.drivers.driver import DriverSpan, Endpoint, MeasuredWindow
from pgherd.model.errors import UsageError
from pgherd.model.load import Load
from pgherd.model.result import TargetResult
from pgherd.model.units import parse_number
from pgherd.node import secrets

ENDED: Final = "ended.json"
VALUE: Final = "value:"
_ENV: Final = "env:"
_PASSED: Final = "PGHERD_ENV_"
"""Start of the names under which values of variables reach the command's shell."""
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OPTIONS = {"argv", "cwd", "privileged"}
_KILL_AFTER_S = 10
"""Seconds between SIGTERM and SIGKILL."""


@dataclass(frozen=True)
class CommandExit:
    """Exit of a command that was not stopped: exit code (negative: a signal) and instant (seconds since the epoch)."""

    code: int
    at: float

    def written(self) -> bytes:
        """Return the contents of ``ended.json``."""
        return json.dumps(asdict(self)).encode()


class CommandDriver:
    """Driver for any command. The module's docstring has the details."""

    name = "command"
    stop_signal: int = signal.SIGTERM
    exit_codes: tuple[int, ...] = (*range(256), -signal.SIGTERM, -signal.SIGKILL)

    def argv(self, load: Load, endpoint: Endpoint, seconds: float) -> list[str]:
        """Return the command's argv after env(1) for the directory, sh(1) for variables, timeout(1) and setpriv(1).

        All users can read it. So the values of variables are in the environment (``environment``), under other names, because a value
        of PATH or LD_PRELOAD is for the command only.

        Raises:
            UsageError: there is no command, or an option is unknown.
        """
        options = load.options
        unknown = sorted(name for name in options if name not in _OPTIONS and not name.startswith((VALUE, _ENV)))
        if unknown:
            raise UsageError(f"a command has no option '{unknown[0]}'; known: {', '.join(sorted(_OPTIONS))}, {_ENV}NAME, {VALUE}NAME")
        timeout = ["timeout", f"--kill-after={_KILL_AFTER_S}", str(max(1, ceil(seconds)))]
        directory = [f"--chdir={options['cwd']}"] if "cwd" in options else []
        names = variables(load)
        script = "; ".join(f"{name}=${_PASSED}{name}; export {name}; unset {_PASSED}{name}" for name in names)
        setting = ["sh", "-c", f'{script}; exec "$@"', "sh"] if names else []
        return ["env", *directory, *setting, *timeout, "setpriv", "--pdeathsig", "TERM", *timeout, *command_of(load)]

    def span(self, files: Mapping[str, str], started: float, stop: float) -> DriverSpan:
        """Return the interval from its start to its exit, or to the stop."""
        command_exit = read_exit(files)
        return DriverSpan(started, stop if command_exit is None else max(started, command_exit.at))

    def result(self, load: Load, files: Mapping[str, str], started: float, window: MeasuredWindow, target: str) -> TargetResult:
        """Return the target's result.

        ``values`` are ``duration_seconds`` and ``exit_code`` of a command that was not stopped, and ``value:NAME`` of each
        matched pattern.
        """
        command_exit = read_exit(files)
        span = self.span(files, started, window.stop)
        values = {f"{VALUE}{name}": value for name, value in read_values(patterns_of(load), files).items() if value is not None}
        if command_exit is not None:
            values |= {"duration_seconds": span.last - started, "exit_code": float(command_exit.code)}
        transactions = float(command_exit is not None and command_exit.code == 0)
        return TargetResult(
            target=target,
            driver=self.name,
            transactions=transactions,
            throughput=transactions / (span.last - started) if span.last > started else 0.0,
            first=span.first,
            last=span.last,
            values=values,
        )


def command_of(load: Load) -> list[str]:
    """Return the argv of the command. Raises UsageError if there is none."""
    try:
        argv = json.loads(load.options.get("argv", "[]"))
    except ValueError:
        argv = None
    if not isinstance(argv, list) or not argv or not all(isinstance(argument, str) for argument in argv) or not argv[0]:
        raise UsageError("a command load needs argv, a JSON list of strings that starts with the program's name")
    return argv


def variables(load: Load) -> list[str]:
    """Return the names of the load's environment variables. Raises UsageError for a wrong name."""
    names = [name.removeprefix(_ENV) for name in load.options if name.startswith(_ENV)]
    for name in names:
        if not VARIABLE.fullmatch(name):
            raise UsageError(f"'{name}' is not a valid name of a variable")
    return names


def environment(load: Load) -> dict[str, str]:
    """Return the environment for ``argv``. Raises UsageError if this process does not have the value of a variable."""
    return {_PASSED + name: secrets.variable(name) for name in variables(load)}


def patterns_of(load: Load) -> dict[str, str]:
    """Return name → regular expression of the values to read from the output."""
    return {name.removeprefix(VALUE): pattern for name, pattern in load.options.items() if name.startswith(VALUE)}


def read_exit(files: Mapping[str, str]) -> CommandExit | None:
    """Return the exit of a command, or None if it was stopped. Raises ValueError for an invalid ``ended.json``."""
    text = files.get(ENDED)
    if text is None:
        return None
    try:
        document = json.loads(text)
        return CommandExit(int(document["code"]), float(document["at"]))
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{ENDED} has no exit code and instant of the command: '{text[:100]}'") from None


def read_values(patterns: Mapping[str, str], files: Mapping[str, str]) -> dict[str, float | None]:
    """Return the value of each pattern, None without a match or if the match is no number."""
    return {name: _value(pattern, files) for name, pattern in patterns.items()}


def _value(pattern: str, files: Mapping[str, str]) -> float | None:
    for name in ("stdout", "stderr"):
        matches = list(re.finditer(pattern, files.get(name, ""), re.MULTILINE))
        if matches:
            last = matches[-1]
            text = (
                ((last[1] if last.re.groups else last[0]) or "").strip().rstrip(".,")
            )  # a pattern such as [\d.,]+ takes the end of a sentence
            value = parse_number(text)
            return parse_number(text, ",") if value is None else value
    return None


DRIVER = CommandDriver()
