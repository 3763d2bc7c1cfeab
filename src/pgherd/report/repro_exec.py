"""A trial of a command as a shell script that repeats it with nothing but the command itself."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from pgherd.drivers import command
from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.report.formatting import clean


def script(result: TrialResult, record: RunRecord) -> str:
    """The script for one trial, on one host.

    Raises:
        UsageError: the trial has several phases, or a word of the command holds a NUL character.
    """
    if len(result.trial.phases) != 1 or not result.trial.phases[0].loads:
        raise UsageError(f"trial {result.id} cannot be repeated by a script: it has several phases, or no load")
    text = "\n".join(_lines(result, record)) + "\n"
    if "\0" in text:
        raise UsageError(f"trial {result.id} cannot be repeated by a script: it holds a NUL character")
    return text


def _lines(result: TrialResult, record: RunRecord) -> Iterator[str]:
    phase = result.trial.phases[0]
    load = next(iter(phase.loads.values()))
    account = record.surroundings.run_as if record.surroundings else None
    who = "root" if load.options.get("privileged") == "1" else account
    yield "#!/bin/sh"
    yield _comment(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with nothing but the command itself.")
    if len(phase.loads) > 1:
        yield _comment(f"In the run {len(phase.loads)} hosts did this at the same time: {', '.join(phase.loads)}.")
    if who is not None:
        yield _comment(f"It ran as account {who}.")
    yield from (_comment(text) for text in _told(result))
    yield "set -eu"
    options = load.options
    directory = [f"--chdir={options['cwd']}"] if "cwd" in options else []
    ended = [] if phase.until == "drivers" else ["timeout", f"{phase.ramp + phase.seconds:g}"]
    words = ["LC_ALL=C", "TZ=UTC", *command.variables(load), *ended, *command.command_of(load)]
    # As pgherd starts it: of the caller's environment it has PATH alone.
    yield f'{shlex.join(["env", "-i", *directory])} PATH="$PATH" {shlex.join(words)}'


def _told(result: TrialResult) -> Iterator[str]:
    for phase in result.phases:
        for one in phase.targets:
            for name, value in one.values.items():
                yield f"There {name.removeprefix(command.VALUE).replace('_', ' ')} was {value:.6g} ({one.target})."


def _comment(text: str) -> str:
    return "# " + " ".join(clean(text).split())
