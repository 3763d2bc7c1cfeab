"""User scripts (--script) on user data (--init-script), with checks before anything is measured.

A template is recreated if the --init-script file or one of its data files has changed. The data files are those that the text
names by a word of a backslash command (``\\copy``, ``\\lo_import``, ``\\!`` …) or by an SQL string that starts with ``/``,
including arguments of programs. Files that the text writes and files of the kernel are excluded. Files that a program
reads, and names that variables or SQL expressions compute, are not detected.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pgherd.model.deployment import Database, InitData, Server
from pgherd.model.errors import TrialError, UsageError
from pgherd.model.load import MIN_TRANSACTION_TIMEOUT_S, Protocol, Script
from pgherd.node.protocol import Command, DataLoader, LoaderServer, Node, Say, silent
from pgherd.workloads import Query, bundled_scripts, client_options, pgbench
from pgherd.workloads.script_parser import backslash_commands, command_lines, line_of_ignored_errors, named_words, without_comments

_BUILTIN = "builtin:"
_PROGRAMS = ("shell", "setshell")
_DIGEST_TIMEOUT_S = 3600.0
_WRITABLE = re.compile(r"\bread\s+write\b|\b(?:default_)?transaction_read_only\b", re.IGNORECASE)
_LEAVES = re.compile(r"\bprepare\s+transaction\b", re.IGNORECASE)
_TEMPORARY = re.compile(r"\b(?:create|into)\s+(?:(?:local|global)\s+)?temp(?:orary)?\b", re.IGNORECASE)
_SESSION_STATE = re.compile(
    r"""(?:\A|;|\\[a-z]+[^\n]*\n)\s*(?P<statement>set\b(?!\s+(?:local|transaction|constraints)\b)|prepare\b|listen\b
         |declare\b[^;]*\bwith\s+hold\b)
      |\b(?P<lock>pg_(?:try_)?advisory_lock(?:_shared)?)\s*\(""",
    re.IGNORECASE | re.VERBOSE,
)
"""Statement, or function for locks, whose effect lasts until the end of the session."""
_QUOTED = re.compile(r"""\\[a-z]+[^\n]*|\b[eE]'(?:[^'\\]|\\.|'')*'|'[^']*'|"[^"]*"|(?<![\w$])(\$(?:[^\W\d]\w*)?\$).*?\1""", re.DOTALL)
"""Command of pgbench, or quoted text of SQL without comments."""
_REFUSED = {
    **dict.fromkeys(
        ("c", "connect"),
        "changes to another database, but the scripts run in the one that pgherd creates; remove the line, and also CREATE DATABASE "
        "(pg_dump without -C writes neither)",
    ),
    **dict.fromkeys(
        ("i", "ir", "include", "include_relative"),
        "includes another file, but only this file identifies the database, so a change of the other one would not be detected; put both "
        "into one file",
    ),
    **dict.fromkeys(("q", "quit"), "ends the file, so that the database may lack what follows; remove the line, or what follows it"),
}
"""Command of psql that an --init-script must not contain → why, and what to do."""
_LOADING = frozenset(
    [
        *("shared_preload_libraries", "session_preload_libraries", "local_preload_libraries"),
        *("dynamic_library_path", "extension_control_path"),
        # Without them a statement fails.
        *("wal_level", "max_replication_slots", "max_prepared_transactions", "max_locks_per_transaction", "max_worker_processes"),
        *("check_function_bodies", "row_security", "allow_in_place_tablespaces"),
        # Under them a statement means or stores another thing.
        *("default_toast_compression", "default_table_access_method", "default_statistics_target", "default_text_search_config"),
        *("search_path", "datestyle", "intervalstyle", "timezone", "timezone_abbreviations", "lc_monetary", "lc_numeric", "lc_time"),
        *("standard_conforming_strings", "backslash_quote", "array_nulls", "transform_null_equals", "xmloption", "track_commit_timestamp"),
    ]
)
"""Settings under which an SQL file is loaded, beside those of libraries, which have a dot."""
_TRANSLATED = r"^pgbench: (?:error|fatal): .*?(?P<text>[^\W\d_]+:  .*)"
"""Error of a server whose lc_messages is not English: a word, a colon and two blanks."""
_IN_TRANSACTION = "is the open transaction"
_REQUIRE_NO_TRANSACTION = f"SELECT (pg_current_xact_id_if_assigned()::text || ' {_IN_TRANSACTION}')::int"
"""Query that fails, with its text in the message, in a transaction that has changed something."""
_NO_OBJECTS = """SELECT NOT EXISTS (SELECT FROM pg_class WHERE oid >= 16384) AND NOT EXISTS (SELECT FROM pg_proc WHERE oid >= 16384)
AND NOT EXISTS (SELECT FROM pg_largeobject_metadata)"""
"""Query whether a database has only objects of initdb, whose OIDs are below FirstNormalObjectId."""


def parse_script(text: str, exists: Callable[[str], bool]) -> Script:
    """Parse ``file.sql@4`` (weight 4), ``file.sql`` (weight 1) or ``builtin:NAME@4``. An existing file of this name has weight 1.

    Raises:
        UsageError: The weight is not a positive whole number.
    """
    source, at, weight = text.rpartition("@")
    if not at or "/" in weight or exists(text):
        return Script(source=text)
    if not source or not re.fullmatch(r"[1-9]\d*", weight):
        raise UsageError(
            f"--script {text}: there is no such file, so '{weight}' is a weight, which must be a whole number of at least 1, as in a.sql@4"
        )
    return Script(source=source, weight=int(weight))


def is_provided(script: Script) -> bool:
    """Return True if a script is built into pgbench or provided by pgherd, and not a file of the user."""
    return script.source.startswith(_BUILTIN) or bundled_scripts.text(script.source) is not None


def loading_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a measured server that an SQL file may need while it is loaded, or that change what it stores."""
    return {name: value for name, value in settings.items() if value and (name.lower() in _LOADING or "." in name)}


def settings_of_contents(server: Server) -> dict[str, str]:
    """Return the settings that determine what a server's databases contain: those under which an SQL file is loaded."""
    return loading_settings(server.settings) if any(database.init for database in server.databases) else {}


def load_arguments(scale: int) -> list[str]:
    """Return psql's arguments for an SQL file on standard input that fills a database, without the connection."""
    return ["--no-psqlrc", "--quiet", "--output=/dev/null", f"--set=scale={scale}", "--set=ON_ERROR_STOP=1", "--file=-"]


@dataclass(frozen=True)
class ScriptLoader:
    """Loader that runs an SQL file. The psql variable ``scale`` contains the scale of the database."""

    database: str
    scale: int
    init: str
    digest: str
    data: InitData
    settings: Mapping[str, str] = field(default_factory=dict)
    size_estimate: None = None

    @property
    def identity(self) -> str:
        """Scale and hash of the file, its data files and its settings: ``script-10-a1b2c3d4e5f6``."""
        if not self.settings:
            return f"script-{self.scale}-{self.digest}"
        inputs = json.dumps([self.digest, sorted(self.settings.items())])
        return f"script-{self.scale}-{hashlib.sha256(inputs.encode()).hexdigest()[:12]}"

    def load(self, target: LoaderServer, say: Say = silent) -> None:
        """Run the file with psql, which stops at the first error.

        The file does not run in one transaction, because it may use VACUUM or CREATE INDEX CONCURRENTLY. A partly loaded
        database is removed in any case. The file is read from standard input, so that the user of the servers need not be
        able to read it. Files that it names must be readable for that user. They are relative to the directory of the file,
        or of the original file if the run has a copy.

        Raises:
            UsageError: The file has an error (the message contains its line and PostgreSQL's error) or an open transaction at its
                end, or its data files have changed.
        """
        require_unchanged(target.node, self.init, self.data)
        ending = f"--command={_REQUIRE_NO_TRANSACTION}"  # in the session of the file, after it
        argv = [f"{target.bin}/psql", *client_options(target), *load_arguments(self.scale), ending, self.database]
        original = self.data.directory  # may be missing on another host, or in a resumed run that needs no file of it
        directory = original if target.node.exists(original) else os.path.dirname(os.path.abspath(self.init))
        load = Command(argv, user=target.account, stdin=self.init, cwd=directory, can_be_called_off=True)
        psql = target.node.run(load, timeout=24 * 3600)
        if psql.code != 0 and _IN_TRANSACTION in psql.err:
            raise UsageError(f"the database cannot be filled: --init-script {self.init} ends inside a transaction; add COMMIT")
        if psql.code != 0:
            raise UsageError(f"the database cannot be filled: {psql_error(psql.err, self.init)}; correct the --init-script file")
        argv = [f"{target.bin}/psql", *client_options(target), "--no-psqlrc", "-Atc", _NO_OBJECTS, self.database]
        empty = target.node.run(Command(argv, user=target.account))
        if empty.out.strip() != "f":
            reason = "creates nothing in it" if empty.out.strip() == "t" else f"cannot be checked: {empty.err.strip()}"
            raise UsageError(f"the database is empty: --init-script {self.init} {reason}; create the tables of the scripts in the file")


@dataclass(frozen=True)
class ScriptWorkload:
    """Workload of user scripts. Without an --init-script file they run on pgbench's tables, as in pgbench."""

    transactions: tuple[Script, ...] = ()
    name: str = "script"
    read_only: bool = False

    def scripts(self) -> Sequence[Script]:
        return self.transactions

    def filling(self, node: Node, database: Database) -> DataLoader:
        """Return the loader of the --init-script file, or of pgbench's tables.

        Raises:
            UsageError: The file cannot be read, or contains a command after which the database may be another or incomplete.
        """
        if database.init is None:
            return pgbench.PgbenchLoader(database=database.name, scale=database.scale, partitions=database.partitions)
        text = _text(node, "--init-script", database.init)
        for line, command in backslash_commands(text, psql=True):
            if command in _REFUSED:
                raise UsageError(f"--init-script {database.init}:{line}: \\{command} {_REFUSED[command]}")
        if (ignoring := line_of_ignored_errors(text)) is not None:
            raise UsageError(
                f"--init-script {database.init}:{ignoring}: after this line an error would go unnoticed, and the database may be "
                "incomplete; remove the line, and write DROP … IF EXISTS or CREATE … IF NOT EXISTS where an error is expected"
            )
        data = database.init_data or find_init_data(node, database.init, text)
        contents = f"{text}\0{data.digest}" if data.files else text
        digest = hashlib.sha256(contents.encode(errors="surrogateescape")).hexdigest()[:12]
        return ScriptLoader(database=database.name, scale=database.scale, init=database.init, digest=digest, data=data)

    def size_estimate(self, scale: int) -> None:
        return

    def violations(self, query: Query) -> Sequence[str]:
        return ()


def find_init_data(node: Node, init: str, text: str) -> InitData:
    """Return the data files that an --init-script file with this text names, relative to its directory or absolute.

    Raises:
        UsageError: A file cannot be read.
    """
    directory = os.path.dirname(os.path.abspath(init))
    path_by_name = {word: os.path.join(directory, word) for word in named_words(text)}
    path_by_name = {word: path for word, path in path_by_name.items() if not _is_kernel_file(os.path.normpath(path))}
    paths = sorted({path for path in path_by_name.values() if node.exists(path) and os.path.normpath(path) != os.path.abspath(init)})
    files = _regular_files(node, paths)
    names = tuple(sorted(word for word, path in path_by_name.items() if path in files))
    return InitData(directory=directory, files=names, digest=_data_digest(node, init, directory, names))


def require_unchanged(node: Node, init: str, data: InitData) -> None:
    """Raise UsageError if data files have changed or no longer exist."""
    missing = [name for name in data.files if not node.exists(os.path.join(data.directory, name))]
    if missing:
        raise UsageError(
            f"{missing[0]}, which --init-script {init} reads, is no longer in {data.directory}; restore it, or start a new run"
        )
    if _data_digest(node, init, data.directory, data.files) != data.digest:
        raise UsageError(
            f"the data that --init-script {init} reads ({', '.join(data.files)} in {data.directory}) have changed since this run "
            "was prepared; restore them, or start a new run"
        )


def _is_kernel_file(path: str) -> bool:
    """Return True for files whose contents change without a write."""
    return path.startswith(("/proc/", "/sys/", "/dev/")) and not path.startswith("/dev/shm/")  # noqa: S108 (only compared)


def _regular_files(node: Node, paths: Sequence[str]) -> set[str]:
    """Select regular files, not directories or pipes."""
    if not paths:
        return set()
    output = node.run(Command(["find", "-L", *paths, "-maxdepth", "0", "-type", "f", "-print0"])).out
    return {path for path in output.split("\0") if path}


def _data_digest(node: Node, init: str, directory: str, names: Sequence[str]) -> str:
    """Hash the names, as written in the text, and the contents. The hash of no files is ''."""
    if not names:
        return ""
    paths = [os.path.join(directory, name) for name in names]
    sha256sum = node.run(Command(["sha256sum", "--zero", "--", *paths], can_be_called_off=True), timeout=_DIGEST_TIMEOUT_S)
    if sha256sum.code != 0:
        raise UsageError(f"data that --init-script {init} reads cannot be read: {sha256sum.err.strip()}")
    sums = [line.partition(" ")[0] for line in sha256sum.out.split("\0") if line]
    return hashlib.sha256(json.dumps(list(zip(names, sums, strict=True))).encode()).hexdigest()[:12]


def stage(node: Node, scripts: Sequence[Script], directory: str) -> tuple[Script, ...]:
    """Copy script files to ``directory``, readable for the servers' user, and return the mix with the new paths.

    The copies belong to the record of a run. Bundled scripts become files. Built-in transactions are left unchanged.

    Raises:
        UsageError: A file cannot be read.
    """
    staged: list[Script] = []
    for number, script in enumerate(scripts):
        if script.source.startswith(_BUILTIN):
            staged.append(script)
            continue
        if (bundled := bundled_scripts.text(script.source)) is not None:
            target = os.path.join(directory, f"{number}-{script.source.partition(':')[2]}.sql")
            node.write(target, bundled.encode())
            chmod = node.run(Command(["chmod", "0644", "--", target]))
            if chmod.code != 0:
                raise TrialError(f"the script cannot be made readable: {chmod.err.strip()}")
            staged.append(script.model_copy(update={"source": target}))
            continue
        _text(node, "--script", script.source)
        target = os.path.join(directory, f"{number}-{os.path.basename(script.source)}")
        install = node.run(Command(["install", "-m", "0644", "--", os.path.abspath(script.source), target]))
        if install.code != 0:
            raise TrialError(f"the script cannot be copied: {install.err.strip()}")
        staged.append(script.model_copy(update={"source": target}))
    return tuple(staged)


def carry(here: Node, there: Node, scripts: Sequence[Script], directory: str) -> tuple[Script, ...]:
    """Copy staged scripts to a ``directory`` of another node, such as a guest, and return the mix with the new paths.

    All users can read the copies. Built-in transactions are left unchanged.

    Raises:
        OSError: A file cannot be read on the first node or written on the second.
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
        chmod = there.run(Command(["chmod", "0644", "--", *(target for _, target in files)]))
        if chmod.code != 0:
            raise OSError(f"scripts cannot be made readable in {there.name}: {chmod.err.strip()}")
    return tuple(carried)


def require_readable(node: Node, script: Script) -> None:
    """Require that a user script is readable, even in a dry run; raises UsageError."""
    if not is_provided(script):
        _text(node, "--script", script.source)


def require_self_contained(node: Node, script: Script) -> None:
    """Require that a script runs no programs (\\shell, \\setshell), because a guest does not have them.

    Raises:
        UsageError: The script runs a program, or cannot be read.
    """
    if is_provided(script):
        return
    for line, command in backslash_commands(_text(node, "--script", script.source), psql=False):
        if command in _PROGRAMS:
            raise UsageError(
                f"--script {script.source}:{line}: \\{command} runs a program of the machine on which pgbench runs, and a guest has this "
                "machine's PostgreSQL only; remove it, or add --client-placement outside"
            )


def dry_run(
    target: LoaderServer,
    database: str,
    scripts: Sequence[Script],
    *,
    scale: int = 1,
    protocol: Protocol = "prepared",
    timeout: float = MIN_TRANSACTION_TIMEOUT_S,
    read_only: bool = False,
) -> None:
    """Run every script once, to detect errors before the measurement. The server must be one that scripts may change.

    The first run uses the simple protocol, because in the others pgbench silently replaces an unset variable by NULL. One
    run takes one branch of every ``\\if``. Other branches are not tested. With ``read_only`` a write is an error.

    Raises:
        UsageError: A script has an error. The message contains its file, line and PostgreSQL's error.
    """
    env = _environment(read_only)
    for script in scripts:
        builtin = script.source.startswith(_BUILTIN)
        text = "" if builtin else _text(target.node, "--script", script.source)
        simple: list[Protocol] = [] if "\\startpipeline" in text or protocol == "simple" else ["simple"]
        for mode in (*simple, protocol):
            try:
                pgbench_run = target.node.run(_single_client(target, database, script, scale, mode, env, "-t"), timeout=timeout)
            except TimeoutError:
                raise UsageError(
                    f"{script.source}: one transaction takes longer than {timeout:.0f} s; make it shorter, or add indexes"
                ) from None
            if pgbench_run.code != 0:
                message = pgbench_error(pgbench_run.err, script.source, text)
                raise UsageError(f"{message} (tested with pgbench -M {mode}); correct the script")


def pace(
    target: LoaderServer,
    database: str,
    scripts: Sequence[Script],
    *,
    scale: int,
    protocol: Protocol,
    read_only: bool,
    timeout: float = MIN_TRANSACTION_TIMEOUT_S,
) -> float | None:
    """Measure the mean duration (s) of a transaction of the mix, with one client that runs each script for 1 s.

    The result is None if a script cannot be repeated. A script that exceeds ``timeout`` counts with this duration, which is
    a lower limit.
    """
    env, seconds = _environment(read_only), 0.0
    for script in scripts:
        try:
            pgbench_run = target.node.run(_single_client(target, database, script, scale, protocol, env, "-T"), timeout=timeout)
        except TimeoutError:
            seconds += script.weight * timeout
            continue
        latency = re.search(r"^latency average = ([\d.]+) ms", pgbench_run.out, re.MULTILINE)
        if pgbench_run.code != 0 or latency is None:
            return None
        seconds += script.weight * float(latency[1]) / 1000
    return seconds / sum(script.weight for script in scripts)


def require_read_only(node: Node, scripts: Sequence[Script]) -> None:
    """Require that the user's scripts do not turn off read-only transactions, which would defeat --read-only.

    Raises:
        UsageError: A script contains such a statement, or cannot be read.
    """
    reason = "can make transactions writable, which does not go with --read-only on an external server"
    _require_without(node, scripts, _WRITABLE, f"{reason}; remove it, or replace --read-only by --allow-writes")


def require_ending(node: Node, scripts: Sequence[Script]) -> None:
    """Require that the transactions of the user's scripts end with their session, because pgherd leaves nothing on an external server.

    Raises:
        UsageError: A script prepares a transaction, or cannot be read.
    """
    _require_without(node, scripts, _LEAVES, "leaves transactions on an external server if the load is interrupted; remove it")


def require_no_session_state(node: Node, scripts: Sequence[Script], pooler: str) -> None:
    """Require that the user's scripts leave nothing in a session, which a pooler shares between clients.

    This includes temporary tables, prepared statements, settings without SET LOCAL, cursors WITH HOLD, LISTEN and advisory locks of
    a session. Functions and DO blocks, which may do the same, and set_config are not looked into.

    Raises:
        UsageError: A script leaves something, or cannot be read.
    """
    among = f"in the sessions that {pooler} shares between clients"
    _require_without(node, scripts, _TEMPORARY, f"leaves a table {among}; name the server itself")
    reason = f"leaves state {among}; limit it to a transaction (SET LOCAL, pg_advisory_xact_lock), or name the server itself"
    _require_without(node, scripts, _SESSION_STATE, reason, quoted=False)


def _require_without(node: Node, scripts: Sequence[Script], pattern: re.Pattern[str], reason: str, *, quoted: bool = True) -> None:
    """Require that the pattern, or its group that matches, is in no script, with ``quoted`` also not in quoted text or comments."""
    for source in (script.source for script in scripts if not script.source.startswith(_BUILTIN)):
        script = _text(node, "--script", source)
        for text in (without_comments(script), script) if quoted else (_without_quotes(without_comments(script)),):
            match = pattern.search(text)
            if match is not None:
                group = match.lastindex or 0
                line = text.count("\n", 0, match.start(group)) + 1
                raise UsageError(f"{source}:{line}: '{' '.join(match[group].split())}' {reason}")


def _without_quotes(script: str) -> str:
    """Return a script, which has no comments, with its line breaks only in place of quoted text."""
    return _QUOTED.sub(lambda match: match[0] if match[0].startswith("\\") else "''" + "\n" * match[0].count("\n"), script)


def _environment(read_only: bool) -> dict[str, str]:
    return {"PGOPTIONS": "-c default_transaction_read_only=on"} if read_only else {}


def _single_client(
    target: LoaderServer, database: str, script: Script, scale: int, protocol: Protocol, env: dict[str, str], extent: Literal["-t", "-T"]
) -> Command:
    """Return the command of one client with one script, for one transaction (-t) or 1 s (-T)."""
    builtin = script.source.startswith(_BUILTIN)
    argv = [f"{target.bin}/pgbench", *client_options(target), "-n", extent, "1", "-M", protocol]
    argv += ["-b", script.source.removeprefix(_BUILTIN)] if builtin else ["-s", str(scale), "-f", "-"]
    stdin = None if builtin else script.source
    return Command([*argv, database], env=env, user=target.account, stdin=stdin, can_be_called_off=True)


def pgbench_error(err: str, source: str, text: str) -> str:
    """Convert pgbench's error for one script to ``file:line: message``. An unknown line is omitted."""
    syntax = re.search(r"^pgbench: (?:error|fatal): -:(\d+): (.*)", err, flags=re.MULTILINE)
    if syntax:
        return f"{source}:{syntax[1]}: {syntax[2]}"
    command = re.search(r"aborted in command (\d+)", err) or re.search(r'in script "[^"]*" command (\d+)', err)
    lines = command_lines(text)
    number = int(command[1]) if command else -1
    # pgbench reports an unclosed \if for the command after the last one.
    line = lines[min(number, len(lines) - 1)] if lines and number >= 0 else None
    message, within = _server_message(err)
    if line is not None:
        line += within - 1
    return f"{source}: {message}" if line is None else f"{source}:{line}: {message}"


def _server_message(err: str) -> tuple[str, int]:
    """Return PostgreSQL's first error in a client's standard error, and the line of the statement that it refers to."""
    error = re.search(r"(?P<text>(?:ERROR|FATAL|PANIC):  .*)", err) or re.search(_TRANSLATED, err, re.MULTILINE)
    if not error:
        messages = re.findall(
            r"^pgbench: (?:error|fatal): (?!Run was aborted)(?:client \d+ aborted in .*?; |.*? command \d+: )?(.*)", err, re.MULTILINE
        )
        return "; ".join(messages).replace('script "-"', "this script") or err.strip()[-300:], 1
    after = err[error.end() :]
    position = re.match(r"\nLINE (\d+): (.*)", after)
    # Only the notes of this message, which end where pgbench prints its next message.
    notes = re.findall(
        r"^(?:DETAIL|HINT|CONTEXT): .*", re.split(r"^pgbench: ", after, maxsplit=1, flags=re.MULTILINE)[0], flags=re.MULTILINE
    )
    parts = [error["text"], *([f"at '{position[2].strip()}'"] if position else []), *notes]
    return " ".join(parts), int(position[1]) if position else 1


def psql_error(err: str, source: str) -> str:
    """Convert psql's error for a file on standard input to ``file:line: message``."""
    lines = err.strip().splitlines()
    start = next((number for number, line in enumerate(lines) if re.match(r"psql:<stdin>:\d+: (ERROR|FATAL|error)", line)), None)
    if start is None:
        return f"{source}: {err.strip()[-300:]}"
    message = [line for line in lines[start : start + 6] if line.strip(" ^")]
    return " ".join(line.strip() for line in message).replace("psql:<stdin>:", f"{source}:", 1)


def _text(node: Node, option: str, path: str) -> str:
    try:
        return node.read(path).decode(errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror or error}") from error
