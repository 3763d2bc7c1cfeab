"""The entry point: finds the verb's module, and turns every error into one message and an exit code.

Only click is imported here: a verb's module, and what it needs, is imported when that verb is called.
"""
# ruff: noqa: E402 - a Ctrl-C is answered from before the first import that takes time

from __future__ import annotations

import os
import signal

INTERRUPTED = 130

# A Ctrl-C while modules are imported would show where; until ours can answer it, it ends us without a word.
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

VERBS: dict[str, dict[str, str]] = {
    "Studies": {
        "run": "Run a study from a scenario file.",
    },
    "Runs and reports": {
        "runs": "List runs.",
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
        "fit": "Fit scaling models to a CSV file.",
        "cluster": "Start, inspect and stop agents on several hosts.",
        "vm": "Build, boot and inspect virtual machine guests.",
        "clean": "Undo host changes and remove leftovers of killed runs.",
    },
}
"""Heading → verb that is no study → its line of help. The verb is the ``command`` of the module pgherd.cli.VERB."""


def verbs() -> dict[str, dict[str, str]]:
    """All verbs with their lines of help by heading; studies first."""
    from pgherd.study.registry import studies

    own = {study.name: study.help for study in studies().values()}
    return {heading: own | lines if heading == "Studies" else lines for heading, lines in VERBS.items()}


BROKEN_PIPE = 141
"""As the shell reports a tool that was ended by SIGPIPE."""

EPILOG = """\b
Exit codes: 0 success, 1 a check, grade or gate failed, 2 usage error, 3 not possible on
this host, 130 interrupted. PGHERD_DEBUG=1 prints tracebacks."""


class VerbGroup(click.Group):
    """A group whose help comes from the table of verbs, so that none of them has to be imported for it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the order of the help text."""
        return [verb for lines in verbs().values() for verb in lines]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb's module and return its command; None if there is no such verb."""
        if cmd_name not in self.list_commands(ctx):
            return None
        from pgherd.study.registry import studies

        if cmd_name in studies():
            from pgherd.cli.study_command import StudyCommand

            return StudyCommand(studies()[cmd_name])
        command: click.Command = importlib.import_module(f"pgherd.cli.{cmd_name.replace('-', '_')}").command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, but an unknown verb's message names the nearest ones."""
        verb = args[0]
        if not verb.startswith("-") and verb not in self.list_commands(ctx):
            raise click.UsageError(f"there is no verb {verb!r}.{self._meant(ctx, verb)}", ctx)
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, verb: str) -> str:
        if verb.endswith((".yaml", ".yml")):
            return f" Did you mean 'run {verb}'?"
        from difflib import get_close_matches

        near = get_close_matches(verb, self.list_commands(ctx))
        return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs under their headings."""
        widest = max(map(len, self.list_commands(ctx)))
        for heading, lines in verbs().items():
            with formatter.section(heading):
                formatter.write_dl([(verb.ljust(widest), line) for verb, line in lines.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Verbs that begin so; importing none of them keeps the tab key quick."""
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
    if "_PGHERD_COMPLETE" in os.environ:
        cli.main(prog_name="pgherd")
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - open until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without some character is no reason to fail
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        # Where KeyboardInterrupt once came out of an exec() (as dataclasses use it), CPython ends itself by SIGINT instead of with our
        # exit code, even though it was caught (pymain's exit_sigint). Nothing is left to do but this.
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; whatever goes wrong is one message on stderr.

    A verb returns its exit code, or None for 0. With ``--json`` a verb that fails prints the error as its document.
    """
    stdout = sys.stdout
    try:
        code = _invoke(arguments)
        stdout.flush()
        return code
    except BrokenPipeError:
        return BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        sys.stdout = stdout  # --json may have put stderr in its place
        return _tell(error, as_json=_wants_document(arguments))
    finally:
        sys.stdout = stdout
        _drop_unwritable(stdout)


def _invoke(arguments: Sequence[str]) -> int:
    """Parse the command line and call the verb. (click's own ``main`` has other exit codes and messages.)"""
    try:
        with cli.make_context("pgherd", list(arguments)) as context:
            result = cli.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return result if isinstance(result, int) else 0


def _wants_document(arguments: Sequence[str]) -> bool:
    """Whether ``--json`` is among the options; the error may lie in parsing them, so click cannot tell."""
    return "--json" in itertools.takewhile(lambda argument: argument != "--", arguments)


def _tell(error: BaseException, *, as_json: bool) -> int:
    """Print the one message for an error (and the document, if asked for) and return its exit code."""
    if os.environ.get("PGHERD_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    message, code = _message(error)
    try:
        click.echo(message if isinstance(error, click.exceptions.NoArgsIsHelpError) else f"pgherd: {message}", err=True)
        if as_json:
            from pgherd.cli.output import print_document

            print_document({"schema": "pgherd/error/1", "error": message, "exit_code": code})
    except OSError:  # nobody reads it, or it cannot be written: the exit code still tells
        pass
    return code


def _message(error: BaseException) -> tuple[str, int]:
    """The message for an error and the exit code that it ends in."""
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
            return _defect_message(error), 1


def _operating_system_message(error: OSError) -> tuple[str, int]:
    """For an OSError that no verb has turned into a better message."""
    where = f": {error.filename}" if error.filename else ""
    what = f"{error.strerror or error}{where}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{what}. Make room there and try again.", 1
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{what}. Run as a user who may do this, or choose another place.", 3
    return f"{what}. PGHERD_DEBUG=1 in the environment shows where.", 1


def _defect_message(error: BaseException) -> str:
    """For an exception that should never come here; its traceback is kept, as a long run is dear to repeat."""
    import tempfile
    import traceback

    said = f"this is a defect of pgherd: {type(error).__name__}: {error}."
    try:
        with tempfile.NamedTemporaryFile("w", prefix="pgherd-defect-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(f"pgherd {__version__}, Python {sys.version}\n{sys.argv}\n")
            traceback.print_exception(error, file=file)
    except OSError:
        return f"{said} PGHERD_DEBUG=1 in the environment shows its traceback."
    return f"{said} Please report it with {file.name}"


def _drop_unwritable(stream: TextIO) -> None:
    """Send output that cannot be written nowhere, else Python tries again while it exits, and complains."""
    try:
        stream.flush()
    except OSError:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
