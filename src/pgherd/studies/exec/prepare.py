"""Completion of an exec request: the checks of the command, its user, directory and durations."""

from __future__ import annotations

import os
import shlex

from pydantic import ValidationError

from pgherd.drivers.command import VARIABLE
from pgherd.host.facts import gather
from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import RunEnvironment
from pgherd.model.text import HIDDEN
from pgherd.model.units import format_seconds
from pgherd.node.protocol import Command, Node
from pgherd.prepare import hosts
from pgherd.prepare.prepared_study import PreparedStudy, thresholds
from pgherd.studies.exec.options import TIMEOUT, ExecOptions, ExecRequest, ExtractedValue

MEMORY = 64 * 2**20
"""Reserved memory in bytes. The memory of the command itself is unknown."""
ANYWHERE = "/"
"""Working directory if the command's user cannot enter the current one, such as a directory below root's home."""
_ENTER = 'cd -- "$1"'
_FIND = (
    'cd -- "$1" || exit; case "$2" in */*) [ -f "$2" ] && [ -x "$2" ]; exit;; esac; '
    'IFS=:; for directory in $PATH; do [ -f "$directory/$2" ] && [ -x "$directory/$2" ] && exit 0; done; exit 1'
)
"""Shell script that succeeds if execvp(3) finds the program $2 from the directory $1. The text is constant to avoid quoting."""


def prepare(node: Node, request: ExecRequest, dry: bool) -> PreparedStudy:
    """Complete an exec request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    if not request.command:
        raise UsageError("there is no command; write it after --, such as 'pgherd exec -- sleep 1'")
    if any("\0" in word for word in request.command):
        raise UsageError("an argument of the command contains a NUL character; remove it")
    limits = thresholds(request.threshold)
    values, variables = _values(request), _variables(request)
    if request.duration is None and request.warmup is not None:
        raise UsageError("--warmup needs --duration, after which the command is stopped; give both, or leave --warmup out")
    if request.duration is not None and request.timeout is not None:
        raise UsageError("--timeout applies to a command that ends by itself, but --duration stops the command; give only one of them")
    _require_above_zero(request)
    facts = gather(node)
    cores = hosts.cores_of(request.host_cores, facts)
    if request.as_root and not facts.root:
        raise CapabilityError("--as-root needs root; run pgherd as root, or leave --as-root out")
    if request.run_as == "root":
        raise UsageError("--run-as root: to run the command as root, use --as-root")
    account = server_account(request.run_as)
    runs_as = None if request.as_root else account
    cwd, left = _directory(node, request, runs_as)
    _require_program(node, request.command[0], cwd, runs_as)
    fields = ExecOptions.model_fields
    options = ExecOptions(
        command=request.command,
        env=variables,
        cwd=cwd,
        as_root=request.as_root,
        extract=values,
        hosts=tuple(host.name for host in request.over) or ("local",),
        host_cores=cores,
        repeats=request.planned_repeats(fields["repeats"].default),
        fixed_repeats=request.repeats is not None,
        duration=request.duration,
        warmup=request.warmup or 0.0,
        timeout=TIMEOUT if request.timeout is None else request.timeout,
        time_budget=request.time_budget,
        thresholds=limits,
    )
    return PreparedStudy(
        study="exec",
        options=options,
        environment=RunEnvironment(runtime="process", run_as=account, cores=cores, memory=min(facts.memory, MEMORY)),
        thresholds=limits,
        facts=facts,
        installation=None,
        defaults_chosen=tuple(_choices(options, runs_as, left)),
        settings=(),
        host_changes=("all changes by the command, which pgherd does not know and does not undo",),
        disk=0,
        memory=MEMORY,
    )


def _require_above_zero(request: ExecRequest) -> None:
    for option, given in (("--duration", request.duration), ("--timeout", request.timeout), ("--time-budget", request.time_budget)):
        if given is not None and given <= 0:
            raise UsageError(f"{option} {given}: give a time above zero, such as 30s")


def _values(request: ExecRequest) -> tuple[ExtractedValue, ...]:
    patterns = dict(_pair("--extract", word, "NAME=REGEX") for word in request.extract)
    units = dict(_pair("--unit", word, "NAME=UNIT") for word in request.unit)
    for texts, option in ((request.extract, "--extract"), (request.unit, "--unit")):
        if len({text.partition("=")[0] for text in texts}) < len(texts):
            raise UsageError(f"{option} is given twice for the same name; give each name once")
    unknown = sorted(set(units) - set(patterns))
    if unknown:
        raise UsageError(f"--unit {unknown[0]}={units[unknown[0]]}: there is no value {unknown[0]}; add --extract {unknown[0]}=REGEX")
    values = []
    for name, pattern in patterns.items():
        try:
            values.append(ExtractedValue(name=name, pattern=pattern, unit=units.get(name, "")))
        except ValidationError as error:
            fault = error.errors()[0]
            name_rule = "a name consists of letters, digits and _"
            reason = name_rule if fault["loc"] == ("name",) else fault["msg"].removeprefix("Value error, ")
            raise UsageError(f"--extract {name}={pattern}: {reason}") from None
    return tuple(values)


def _variables(request: ExecRequest) -> dict[str, str]:
    names = [word.partition("=")[0] for word in request.env]
    for name in names:
        if not VARIABLE.fullmatch(name):
            raise UsageError(f"--env {name}=…: '{name}' is not a valid name of a variable")
    return dict.fromkeys(names, HIDDEN)


def _pair(option: str, word: str, form: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not name or not sign or not value:
        raise UsageError(f"{option} {word}: write {form}")
    return name, value


def _directory(node: Node, request: ExecRequest, account: str | None) -> tuple[str, str]:
    """Return the working directory, and the current one if the command's user cannot enter it, otherwise an empty text.

    Raises:
        UsageError: the user cannot enter the directory of ``--cwd``, or the command is a path relative to the current one.
    """
    cwd = os.path.abspath(request.cwd if request.cwd is not None else os.getcwd())
    if node.run(Command(["sh", "-c", _ENTER, "sh", cwd], user=account)).code == 0:
        return cwd, ""
    program = request.command[0]
    if request.cwd is None and (program.startswith("/") or "/" not in program):
        return ANYWHERE, cwd
    user, change = _user(account)
    raise UsageError(f"{user} cannot enter {cwd}, the working directory of the command; choose another directory with --cwd{change}")


def _user(account: str | None) -> tuple[str, str]:
    """Return the command's user and how to change it, as parts of messages."""
    if account is None:
        return "the current user", ""
    return f"user '{account}'", "; choose another user with --run-as, or use --as-root"


def _require_program(node: Node, program: str, cwd: str, account: str | None) -> None:
    user, change = _user(account)
    if node.run(Command(["sh", "-c", _FIND, "sh", cwd, program], user=account)).code != 0:
        raise UsageError(
            f"{user} cannot run a program '{program}' from {cwd}; give a program, because builtins and aliases of a shell are not "
            f"available{change}"
        )


def _choices(options: ExecOptions, account: str | None, left: str) -> list[str]:
    """Return sentences on the choices. ``left`` is the current directory if the command's user cannot enter it."""
    reason = f"; {account or 'the current user'} cannot enter {left}" if left else ""
    choices = [f"Working directory {options.cwd}{f', user {account}' if account else ''}{reason}."]
    if options.duration is None:
        choices.append(f"The command ends by itself. After {format_seconds(options.timeout)} its trial fails (--timeout).")
    else:
        choices.append(f"pgherd stops the command with SIGTERM after {format_seconds(options.warmup + options.duration)}.")
    choices += [f"Value from the output: {value.name}{f' ({value.unit})' if value.unit else ''}." for value in options.extract]
    return [*choices, f"Command: {shlex.join(options.command)}"]
