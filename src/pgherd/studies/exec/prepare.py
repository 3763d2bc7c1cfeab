"""Completing the request of a command's run: whether the command is there, as whom it runs, and how long."""

from __future__ import annotations

import os
import re
import shlex

from pydantic import ValidationError

from pgherd.host.account import server_account
from pgherd.host.facts import gather
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import Surroundings
from pgherd.model.units import format_seconds, parse_seconds
from pgherd.node.protocol import Command, Node
from pgherd.prepare import host_share
from pgherd.prepare.prepared_study import Prepared, thresholds
from pgherd.studies.exec.options import TIMEOUT, ExecOptions, ExecRequest, Value

MEMORY = 64 * 2**20
"""Bytes that are reserved beside other runs: what the command takes is not known."""
_ENTER = 'cd -- "$1"'
_FIND = (
    'cd -- "$1" || exit; case "$2" in */*) [ -f "$2" ] && [ -x "$2" ]; exit;; esac; '
    'IFS=:; for place in $PATH; do [ -f "$place/$2" ] && [ -x "$place/$2" ] && exit 0; done; exit 1'
)
"""Whether execvp(3) finds a program from the command's directory. Constant: what it is asked are its parameters."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def prepare(node: Node, asked: ExecRequest, dry: bool) -> Prepared:
    """Complete a request for this host; see ``runner.catalogue.prepare`` for what it raises."""
    if not asked.command:
        raise UsageError("there is no command: write it after --, such as 'pgherd exec -- openssl speed sha256'")
    if any("\0" in word for word in asked.command):
        raise UsageError("a word of the command holds a NUL character, which no program can be given")
    limits = thresholds(asked.threshold)
    values, variables = _values(asked), _variables(asked)
    if asked.duration is None and asked.warmup is not None:
        raise UsageError("--warmup is for a command that runs on: give --duration, after which it is ended, too")
    if asked.duration is not None and asked.timeout is not None:
        raise UsageError("--timeout is for a command that ends by itself, and --duration ends it by the clock: give one of them")
    facts = gather(node)
    cores = host_share.cores_of(asked.host_cores, facts)
    if asked.as_root and not facts.root:
        raise CapabilityError("--as-root needs root; without it the command runs as you")
    if asked.run_as == "root":
        raise UsageError("--run-as root: a command is run as root by --as-root")
    account = server_account(asked.run_as)
    runs_as = None if asked.as_root else account
    cwd = os.path.abspath(asked.cwd if asked.cwd is not None else os.getcwd())
    _insist_there(node, asked.command[0], cwd, runs_as)
    fields = ExecOptions.model_fields
    options = ExecOptions(
        command=asked.command,
        env=variables,
        cwd=cwd,
        privileged=asked.as_root,
        values=values,
        hosts=tuple(host.name for host in asked.over) or ("local",),
        cores=cores,
        seconds=_seconds("--duration", asked.duration) if asked.duration is not None else None,
        ramp=parse_seconds(asked.warmup) if asked.warmup is not None else 0.0,
        timeout=_seconds("--timeout", asked.timeout) if asked.timeout is not None else TIMEOUT,
        repeats=asked.repeats or fields["repeats"].default,
        budget_seconds=_seconds("--time-budget", asked.time_budget) if asked.time_budget is not None else None,
        thresholds=limits,
    )
    return Prepared(
        study="exec",
        options=options,
        surroundings=Surroundings(runtime="process", run_as=account, cores=cores, memory=min(facts.memory, MEMORY)),
        thresholds=limits,
        facts=facts,
        installation=None,
        choices=tuple(_choices(options, runs_as)),
        settings=(),
        host_changes=("whatever the command changes: pgherd does not know, and takes nothing of it back",),
        disk=0,
        memory=MEMORY,
    )


def _seconds(option: str, text: str) -> float:
    seconds = parse_seconds(text)
    if seconds <= 0:
        raise UsageError(f"{option} {text}: give a time above zero, such as 30s")
    return seconds


def _values(asked: ExecRequest) -> tuple[Value, ...]:
    patterns = dict(_pair("--extract", word, "NAME=REGEX") for word in asked.extract)
    units = dict(_pair("--unit", word, "NAME=UNIT") for word in asked.unit)
    for words, option in ((asked.extract, "--extract"), (asked.unit, "--unit")):
        if len({word.partition("=")[0] for word in words}) < len(words):
            raise UsageError(f"{option} is given twice for one name")
    unknown = sorted(set(units) - set(patterns))
    if unknown:
        raise UsageError(f"--unit {unknown[0]}={units[unknown[0]]}: there is no --extract {unknown[0]}=REGEX")
    found = []
    for name, pattern in patterns.items():
        try:
            found.append(Value(name=name, pattern=pattern, unit=units.get(name, "")))
        except ValidationError as error:
            said = error.errors()[0]
            why = "letters, digits and _ make a name" if said["loc"] == ("name",) else said["msg"].removeprefix("Value error, ")
            raise UsageError(f"--extract {name}={pattern}: {why}") from None
    return tuple(found)


def _variables(asked: ExecRequest) -> dict[str, str]:
    pairs = [_pair("--env", word, "NAME=VALUE") for word in asked.env]
    for name, value in pairs:
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise UsageError(f"--env {name}=…: '{name}' is no name of a variable, or its value holds a NUL character")
    return dict(pairs)


def _pair(option: str, word: str, wanted: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    if not name or not sign or (not value and option != "--env"):
        raise UsageError(f"{option} {word}: write {wanted}")
    return name, value


def _insist_there(node: Node, program: str, cwd: str, account: str | None) -> None:
    who = f"account '{account}'" if account else "you"
    change = "; choose another with --run-as, or run it as root with --as-root" if account else ""
    if node.run(Command(["sh", "-c", _ENTER, "sh", cwd], user=account)).code != 0:
        raise UsageError(f"{who} cannot enter {cwd}, in which the command would be started; name another directory with --cwd{change}")
    if node.run(Command(["sh", "-c", _FIND, "sh", cwd, program], user=account)).code != 0:
        raise UsageError(
            f"there is no program '{program}' that {who} can run from {cwd}; no shell is asked: builtins and aliases are none{change}"
        )


def _choices(options: ExecOptions, account: str | None) -> list[str]:
    said = [f"The command is started in {options.cwd}" + (f", as account {account}." if account else ".")]
    if options.seconds is None:
        said.append(f"It ends by itself; after {format_seconds(options.timeout)} its trial has failed (--timeout).")
    else:
        said.append(f"It is ended by SIGTERM after {format_seconds(options.ramp + options.seconds)}.")
    said += [f"Read from its output: {value.name}{f' ({value.unit})' if value.unit else ''}." for value in options.values]
    return [*said, f"Its words: {shlex.join(options.command)}"]
