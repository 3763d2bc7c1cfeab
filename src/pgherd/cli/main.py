"""Entry point: imports the module of a verb, and turns every error into one message and an exit code.

Only click is imported here. The module of a verb, and its imports, are loaded when that verb is called.
"""
# ruff: noqa: E402 - Ctrl-C is handled from before the first slow import

from __future__ import annotations

import os
import signal

INTERRUPTED = 130

# Ctrl-C during imports would print a traceback. Until run() can handle it, it ends the process without output.
_ours = signal.getsignal(signal.SIGINT)
_importing = _ours is signal.default_int_handler
if _importing:
    try:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    except ValueError:  # imported by a thread other than the main one
        _importing = False

import contextlib
import errno
import importlib
import io
import itertools
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, TextIO

import click

from pgherd import __version__
from pgherd.model.errors import PgherdError
from pgherd.model.text import clean

VERBS: dict[str, dict[str, str]] = {
    "Studies": {
        "run": "Run a study from a scenario file.",
    },
    "Runs and reports": {
        "list": "List runs.",
        "watch": "Follow a running study.",
        "show": "Show a run or one of its trials.",
        "report": "Write the HTML report of one or more runs.",
        "export": "Export a run as OpenMetrics.",
        "gate": "Fail if a run is worse than its baseline (for CI).",
        "resume": "Resume an interrupted run.",
        "ui": "Browse and start runs in a web browser.",
    },
    "Tools": {
        "balloon": "Build, inspect and demonstrate the pg_balloon extension.",
        "doctor": "Show what this host can do and what is missing.",
        "advise": "Check host and server against recommended settings.",
        "capture": "Turn the load of a server into scripts and generated data.",
        "fit": "Fit scaling models to a table.",
        "place": "Place databases on hosts by their demand over the day.",
        "cluster": "Start, inspect and stop agents on several hosts.",
        "vm": "Build, boot and inspect virtual machine guests.",
        "clean": "Undo host changes and remove leftovers of killed runs.",
    },
}
"""Heading → verb that is no study → its line of help. The verb is the ``command`` of the module of its name in ``pgherd.cli``."""

BESIDE = {"list": "show", "resume": "run"}
"""Verb without a module → the verb whose module has its command, such as ``list_command``."""


def verbs() -> dict[str, dict[str, str]]:
    """All verbs with their lines of help by heading; studies first."""
    from pgherd.study.study import studies

    own = {study.name: study.help for study in studies().values() if not study.started_by}
    return {heading: own | lines if heading == "Studies" else lines for heading, lines in VERBS.items()}


BROKEN_PIPE = 141
"""Exit code that a shell reports for a process ended by SIGPIPE."""

EPILOG = """\b
Exit codes: 0 success · 1 a check, grade or gate failed · 2 usage error ·
3 not possible on this host · 130 interrupted.

PGHERD_DEBUG=1 prints tracebacks."""


class VerbGroup(click.Group):
    """Group whose help comes from the table of verbs, so that it imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return all verbs in the order of the help text."""
        return [verb for lines in verbs().values() for verb in lines]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb's module and return its command, or None if there is no such verb."""
        if cmd_name not in self.list_commands(ctx):
            return None
        from pgherd.study.study import studies

        if cmd_name in studies():
            from pgherd.cli.study_command import StudyCommand

            return StudyCommand(studies()[cmd_name])
        module = importlib.import_module(f"pgherd.cli.{BESIDE.get(cmd_name, cmd_name).replace('-', '_')}")
        command: click.Command = getattr(module, f"{cmd_name}_command" if cmd_name in BESIDE else "command")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does, but name similar verbs in the message for an unknown one."""
        verb = args[0]
        if not verb.startswith("-") and verb not in self.list_commands(ctx):
            raise click.UsageError(f"there is no command {verb!r}.{self._suggestion(ctx, verb)}", ctx)
        return super().resolve_command(ctx, args)

    def _suggestion(self, ctx: click.Context, verb: str) -> str:
        if verb.endswith((".yaml", ".yml")):
            return f" Did you mean 'run {verb}'?"
        from difflib import get_close_matches

        near = get_close_matches(verb, self.list_commands(ctx))
        return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs under their headings."""
        widest = max(map(len, self.list_commands(ctx)))
        for heading, lines in verbs().items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(widest), line) for verb, line in lines.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return verbs with this prefix. None is imported, so that completion is fast."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(verb, help=line) for lines in verbs().values() for verb, line in lines.items() if verb.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=VerbGroup,
    epilog=EPILOG,
    options_metavar="",
    subcommand_metavar="COMMAND [OPTIONS] …",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="pgherd", message="%(prog)s %(version)s")
def cli() -> None:
    """Benchmark PostgreSQL density, scaling and consolidation.

    `pgherd COMMAND --help` shows the options of a command.
    """


if _importing:
    signal.signal(signal.SIGINT, _ours)


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    os.umask(os.umask(0o022) | 0o022)  # root executes programs in directories made by pgherd, so no other user may write there
    if "_PGHERD_COMPLETE" in os.environ:
        cli.main(prog_name="pgherd")
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack a character
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        # After a KeyboardInterrupt inside exec(), which dataclasses use, CPython ends by SIGINT instead of with this exit code, even
        # though the exception was caught (pymain's exit_sigint). So the process exits directly.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code. Every error is one message on stderr.

    A verb returns its exit code, or None for 0. With ``--json`` a failed verb prints the error as its document.
    """
    stdout = sys.stdout
    try:
        code = _invoke(arguments)
        stdout.flush()
        return code
    except BrokenPipeError:
        return BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        sys.stdout = stdout  # --json may have replaced it by stderr
        return _report_error(error, as_json=_wants_document(arguments))
    finally:
        sys.stdout = stdout
        for stream in filter(None, (stdout, sys.stderr)):  # stderr is None if the caller has closed it
            _silence_stream(stream)


def _invoke(arguments: Sequence[str]) -> int:
    """Parse the command line and call the verb. (The ``main`` of click has other exit codes and messages.)"""
    try:
        with cli.make_context("pgherd", list(arguments)) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return result if isinstance(result, int) else 0


def _wants_document(arguments: Sequence[str]) -> bool:
    """Return True if ``--json`` is among the options. Parsing may have failed, so click cannot report it."""
    return "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)


def _report_error(error: BaseException, *, as_json: bool) -> int:
    """Print the message for an error, with --json its document too, and return its exit code."""
    if os.environ.get("PGHERD_DEBUG") == "1":
        import traceback

        click.echo(clean("".join(traceback.format_exception(error))), err=True, nl=False)
    message, code = _message(error)
    message = clean(message)
    try:
        click.echo(message if isinstance(error, click.exceptions.NoArgsIsHelpError) else f"pgherd: {message}", err=True)
        if as_json:
            from pgherd.cli.output import print_document

            print_document({"schema": "pgherd/error/2", "error": message, "exit_code": code})
    except OSError:  # the output is closed; the exit code remains
        pass
    return code


def _message(error: BaseException) -> tuple[str, int]:
    """Return the message for an error and its exit code."""
    match error:
        case PgherdError():
            return str(error), error.exit_code
        case click.exceptions.NoArgsIsHelpError():
            return error.format_message(), error.exit_code
        case click.UsageError():
            verb = error.ctx.command_path if error.ctx else "pgherd"
            return f"{error.format_message()} See '{verb} --help'.", error.exit_code
        case click.ClickException():
            return error.format_message(), 2
        case click.Abort() | KeyboardInterrupt():
            return "interrupted", INTERRUPTED
        case OSError():
            return _operating_system_message(error)
        case _:
            return _bug_message(error), 1


def _operating_system_message(error: OSError) -> tuple[str, int]:
    """Return message and exit code of an OSError without a better message from the verb."""
    path = f": {error.filename}" if error.filename else ""
    text = f"{error.strerror or error}{path}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{text}. Free some space and try again.", 1
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{text}. Run as a user with this permission, or choose another path.", 3
    return f"{text}. PGHERD_DEBUG=1 prints the traceback.", 1


def _bug_message(error: BaseException) -> str:
    """Return the message for a bug.

    Its traceback is stored in a file, because repeating a long run is expensive. The user sends this file, so it has no secrets."""
    import tempfile
    import traceback

    from pgherd.node.secrets import redact, redact_arguments

    text = redact(f"internal error (a bug in pgherd): {type(error).__name__}: {error}.")
    try:
        with tempfile.NamedTemporaryFile("w", prefix="pgherd-defect-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(f"pgherd {__version__}, Python {sys.version}\n{redact_arguments(sys.argv)}\n")
            file.write(redact("".join(traceback.format_exception(error))))
    except OSError:
        return f"{text} PGHERD_DEBUG=1 prints the traceback."
    return f"{text} Please report it with {file.name}"


def _silence_stream(stream: TextIO) -> None:
    """Redirect a stream that cannot be written to /dev/null. Otherwise Python tries again at exit and prints an error."""
    try:
        stream.flush()
    except OSError:
        with open(os.devnull, "w") as null:
            os.dup2(null.fileno(), stream.fileno())
