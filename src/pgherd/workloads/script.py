"""The user's own transactions (--script) on the user's own data (--init), and their check before anything is measured."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pgherd.model.deployment import Database, InitData
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.load import Protocol, Script
from pgherd.node.protocol import Command, Filling, LoadTarget, Node, Say, silent
from pgherd.workloads import init_data, pgbench, shipped
from pgherd.workloads.statements import backslash_commands, command_lines
from pgherd.workloads.workload import Query, client_options

_BUILTIN = "builtin:"
_PROGRAMS = ("shell", "setshell")
_INCLUDES = ("i", "ir", "include", "include_relative")


def parse_script(text: str) -> Script:
    """Read ``file.sql@4`` (weight 4) or ``file.sql`` (weight 1); a builtin transaction is ``builtin:NAME@4``.

    Raises:
        UsageError: the weight is not a positive whole number.
    """
    source, at, weight = text.rpartition("@")
    if not at:
        return Script(source=text)
    if not source or not re.fullmatch(r"[1-9]\d*", weight):
        raise UsageError(f"--script {text}: the weight after '@' must be a whole number from 1 on, as in new.sql@4")
    return Script(source=source, weight=int(weight))


def load_arguments(scale: int) -> list[str]:
    """psql's arguments for an SQL file on standard input that fills a database, connection aside."""
    return ["--no-psqlrc", "--quiet", "--output=/dev/null", f"--set=scale={scale}", "--set=ON_ERROR_STOP=1", "--file=-"]


@dataclass(frozen=True)
class ScriptFilling:
    """A database filled by an SQL file. Its psql variable ``scale`` holds the database's scale."""

    database: str
    scale: int
    init: str
    digest: str
    data: InitData
    size_estimate: None = None

    @property
    def identity(self) -> str:
        """``script-10-a1b2c3d4e5f6``: the scale and the hash of the file, and of the data files that it names."""
        return f"script-{self.scale}-{self.digest}"

    def load(self, target: LoadTarget, say: Say = silent) -> None:
        """Run the file through psql, which stops at the first error.

        Not in one transaction: a loader may VACUUM or build indexes concurrently, and half a load is thrown away in
        any case. The file comes in by standard input, so that the servers' account need not be able to read it; files
        that it names itself must be readable for that account, and are found relative to the file's directory (of a run's copy: to
        that of the file that was copied).

        Raises:
            UsageError: an error in the file, with its line and PostgreSQL's message; or its data files are not what they were.
        """
        init_data.insist_unchanged(target.node, self.init, self.data)
        argv = [f"{target.bin}/psql", *client_options(target), *load_arguments(self.scale), self.database]
        here = self.data.directory  # gone, perhaps, where a run is resumed that needs no file of it; on another host it is not there
        directory = here if target.node.exists(here) else os.path.dirname(os.path.abspath(self.init))
        done = target.node.run(Command(argv, user=target.account, stdin=self.init, cwd=directory), timeout=24 * 3600)
        if done.code != 0:
            raise UsageError(f"the database cannot be filled: {psql_error(done.err, self.init)}; correct the --init file")


@dataclass(frozen=True)
class ScriptWorkload:
    """The user's transactions. Without an --init file they run on pgbench's tables, as with pgbench itself."""

    transactions: tuple[Script, ...] = ()
    name: str = "script"
    read_only: bool = False

    def scripts(self) -> Sequence[Script]:
        """The user's transactions."""
        return self.transactions

    def filling(self, node: Node, database: Database) -> Filling:
        """The --init file's contents, or pgbench's tables.

        Raises:
            UsageError: the file cannot be read, or takes in others (data files that it copies from are told apart by their contents).
        """
        if database.init is None:
            return pgbench.PgbenchFilling(database=database.name, scale=database.scale, partitions=database.partitions)
        text = _text(node, "--init", database.init)
        for line, command in backslash_commands(text):
            if command in _INCLUDES:
                raise UsageError(
                    f"--init {database.init}:{line}: \\{command} takes in another file, but a database is known by this one's text alone: "
                    "a change of the other would go unnoticed; put both into one file"
                )
        data = database.init_data or init_data.find(node, database.init, text)
        decisive = f"{text}\0{data.digest}" if data.files else text
        digest = hashlib.sha256(decisive.encode(errors="surrogateescape")).hexdigest()[:12]
        return ScriptFilling(database=database.name, scale=database.scale, init=database.init, digest=digest, data=data)

    def size_estimate(self, scale: int) -> None:
        """Only loading will tell."""
        return

    def violations(self, query: Query) -> Sequence[str]:
        """The user's own rules are not known."""
        return ()


def stage(node: Node, scripts: Sequence[Script], directory: str) -> tuple[Script, ...]:
    """Copy script files into ``directory`` where the servers' account can read them; returns the same mix from there.

    They are part of the record of a run. Builtin transactions stay as they are; those that pgherd brings along become files.

    Raises:
        UsageError: a file cannot be read.
    """
    staged: list[Script] = []
    for number, script in enumerate(scripts):
        if script.source.startswith(_BUILTIN):
            staged.append(script)
            continue
        if (own := shipped.text(script.source)) is not None:
            target = os.path.join(directory, f"{number}-{script.source.partition(':')[2]}.sql")
            node.write(target, own.encode())
            done = node.run(Command(["chmod", "0644", "--", target]))
            if done.code != 0:
                raise TrialError(f"the script cannot be made readable: {done.err.strip()}")
            staged.append(script.model_copy(update={"source": target}))
            continue
        _text(node, "--script", script.source)
        target = os.path.join(directory, f"{number}-{os.path.basename(script.source)}")
        done = node.run(Command(["install", "-m", "0644", "--", os.path.abspath(script.source), target]))
        if done.code != 0:
            raise TrialError(f"the script cannot be copied: {done.err.strip()}")
        staged.append(script.model_copy(update={"source": target}))
    return tuple(staged)


def carry(here: Node, there: Node, scripts: Sequence[Script], directory: str) -> tuple[Script, ...]:
    """Copy staged scripts from one node to a ``directory`` of another one (a guest), where every account can read them; returns the
    same mix from there. Builtin transactions stay as they are.

    Raises:
        OSError: a file cannot be read here or written there.
    """
    carried = [
        script
        if script.source.startswith(_BUILTIN)
        else script.model_copy(update={"source": os.path.join(directory, f"{number}-{os.path.basename(script.source)}")})
        for number, script in enumerate(scripts)
    ]
    files = [(old.source, new.source) for old, new in zip(scripts, carried, strict=True) if old is not new]
    if files:
        there.make_dir(directory, mode=0o711)
        for source, target in files:
            there.write(target, here.read(source))
        done = there.run(Command(["chmod", "0644", "--", *(target for _, target in files)]))
        if done.code != 0:
            raise OSError(f"scripts cannot be made readable in {there.name}: {done.err.strip()}")
    return tuple(carried)


def insist_readable(node: Node, script: Script) -> None:
    """Insist that a script of the user's own is there, be it that nothing is run; raises UsageError."""
    if not script.source.startswith(_BUILTIN) and shipped.text(script.source) is None:
        _text(node, "--script", script.source)


def insist_self_contained(node: Node, script: Script) -> None:
    """Insist that a script calls no programs of this machine (\\shell, \\setshell): a guest does not have them.

    Raises:
        UsageError: it does, or it cannot be read.
    """
    if script.source.startswith(_BUILTIN) or shipped.text(script.source) is not None:
        return
    for line, command in backslash_commands(_text(node, "--script", script.source)):
        if command in _PROGRAMS:
            raise UsageError(
                f"--script {script.source}:{line}: \\{command} runs a program of the machine on which pgbench runs, and a guest has this "
                "machine's PostgreSQL only; leave it out, or add --client-place outside"
            )


def dry_run(
    target: LoadTarget,
    database: str,
    scripts: Sequence[Script],
    *,
    scale: int = 1,
    protocol: Protocol = "prepared",
    timeout: float = 60.0,
    read_only: bool = False,
) -> None:
    """Run every script once on a server that may be written to, so that an error shows before anything is measured.

    In the simple protocol first: in the others pgbench takes a variable that was never set for NULL and says nothing.
    One pass takes one way through every ``\\if``; the other branches are not tried. ``read_only``: what writes is an error.

    Raises:
        UsageError: an error in a script, with its file, line and PostgreSQL's message.
    """
    env = _environment(read_only)
    for script in scripts:
        builtin = script.source.startswith(_BUILTIN)
        text = "" if builtin else _text(target.node, "--script", script.source)
        simple: list[Protocol] = [] if "\\startpipeline" in text or protocol == "simple" else ["simple"]
        for chosen in (*simple, protocol):
            try:
                done = target.node.run(_alone(target, database, script, scale, chosen, env, "-t"), timeout=timeout)
            except TimeoutError:
                raise UsageError(
                    f"{script.source}: one transaction did not end within {timeout:.0f} s; make it shorter, or give it indexes"
                ) from None
            if done.code != 0:
                raise UsageError(f"{pgbench_error(done.err, script.source, text)} (tried with pgbench -M {chosen}); correct the script")


def pace(
    target: LoadTarget, database: str, scripts: Sequence[Script], *, scale: int, protocol: Protocol, read_only: bool, timeout: float = 60.0
) -> float | None:
    """Mean seconds of a transaction of the mix, by one client alone that runs each script for a second; None where one of them cannot be
    repeated. One that does not end within ``timeout`` seconds counts as so long: it is no shorter."""
    env, seconds = _environment(read_only), 0.0
    for script in scripts:
        try:
            done = target.node.run(_alone(target, database, script, scale, protocol, env, "-T"), timeout=timeout)
        except TimeoutError:
            seconds += script.weight * timeout
            continue
        took = re.search(r"^latency average = ([\d.]+) ms", done.out, re.MULTILINE)
        if done.code != 0 or took is None:
            return None
        seconds += script.weight * float(took[1]) / 1000
    return seconds / sum(script.weight for script in scripts)


def _environment(read_only: bool) -> dict[str, str]:
    return {"PGOPTIONS": "-c default_transaction_read_only=on"} if read_only else {}


def _alone(
    target: LoadTarget, database: str, script: Script, scale: int, protocol: Protocol, env: dict[str, str], extent: Literal["-t", "-T"]
) -> Command:
    """One client with one script, for one transaction (-t) or a second (-T)."""
    builtin = script.source.startswith(_BUILTIN)
    argv = [f"{target.bin}/pgbench", *client_options(target), "-n", extent, "1", "-M", protocol]
    argv += ["-b", script.source.removeprefix(_BUILTIN)] if builtin else ["-s", str(scale), "-f", "-"]
    return Command([*argv, database], env=env, user=target.account, stdin=None if builtin else script.source)


def pgbench_error(err: str, source: str, text: str) -> str:
    """pgbench's complaint about one script as ``file:line: message``; the line is left out where nothing tells it."""
    syntax = re.search(r"^pgbench: (?:error|fatal): -:(\d+): (.*)", err, flags=re.MULTILINE)
    if syntax:
        return f"{source}:{syntax[1]}: {syntax[2]}"
    command = re.search(r"aborted in command (\d+)", err) or re.search(r'in script "[^"]*" command (\d+)', err)
    lines = command_lines(text)
    number = int(command[1]) if command else -1
    # A \if left open is reported for the command after the last one.
    line = lines[min(number, len(lines) - 1)] if lines and number >= 0 else None
    message, within = _server_message(err)
    if line is not None:
        line += within - 1
    return f"{source}: {message}" if line is None else f"{source}:{line}: {message}"


def _server_message(err: str) -> tuple[str, int]:
    """PostgreSQL's first message in a client's standard error, and the line of the statement that it points to."""
    said = re.search(r"(?:ERROR|FATAL|PANIC):  .*", err)
    if not said:
        words = re.findall(
            r"^pgbench: (?:error|fatal): (?!Run was aborted)(?:client \d+ aborted in .*?; |.*? command \d+: )?(.*)", err, re.MULTILINE
        )
        return "; ".join(words).replace('script "-"', "this script") or err.strip()[-300:], 1
    after = err[said.end() :]
    place = re.match(r"\nLINE (\d+): (.*)", after)
    # Only what belongs to this very message: pgbench goes on with messages of its own.
    notes = re.findall(
        r"^(?:DETAIL|HINT|CONTEXT): .*", re.split(r"^pgbench: ", after, maxsplit=1, flags=re.MULTILINE)[0], flags=re.MULTILINE
    )
    shown = [said[0], *([f"at '{place[2].strip()}'"] if place else []), *notes]
    return " ".join(shown), int(place[1]) if place else 1


def psql_error(err: str, source: str) -> str:
    """psql's complaint about a file that came in by standard input, as ``file:line: message``."""
    lines = err.strip().splitlines()
    start = next((number for number, line in enumerate(lines) if re.match(r"psql:<stdin>:\d+: (ERROR|FATAL|error)", line)), None)
    if start is None:
        return f"{source}: {err.strip()[-300:]}"
    words = [line for line in lines[start : start + 6] if line.strip(" ^")]
    return " ".join(word.strip() for word in words).replace("psql:<stdin>:", f"{source}:", 1)


def _text(node: Node, option: str, path: str) -> str:
    try:
        return node.read(path).decode(errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror or error}") from error
