"""What every verb shares: where the answer and the progress go, the JSON document, and the options that mean the same everywhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from pgherd.store.run_directory import RunDirectory

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_DOCUMENT_STREAM = "pgherd.cli.output.stream"
_AGREED = "pgherd.cli.output.agreed"


def answer_console() -> Console:
    """The console for the answer: stdout; stderr under ``--json``, where stdout belongs to the document."""
    from rich.console import Console

    return Console(highlight=False)


def progress_console() -> Console:
    """The console for progress and warnings: stderr."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def print_document(document: dict[str, Any]) -> None:
    """Print the one document of a ``--json`` call on the real stdout; call it last.

    Models, paths, times and numpy scalars may be anywhere in it. JSON knows no NaN and no infinity: they become null.
    """
    import json

    context = click.get_current_context(silent=True)
    stream = (context.meta.get(_DOCUMENT_STREAM) if context else None) or sys.stdout
    click.echo(json.dumps(_plain(document), ensure_ascii=False, allow_nan=False, indent=2), file=stream)


def _plain(value: Any) -> Any:
    """The value in the types that JSON has."""
    import math

    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "model_dump"):  # a pydantic model, without importing pydantic
        return _plain(value.model_dump(mode="json"))
    if hasattr(value, "tolist"):  # a numpy scalar or array, without importing numpy
        return _plain(value.tolist())
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"no way to write a {type(value).__name__} as JSON: {value!r}")


def _claim_stdout(context: click.Context, parameter: click.Parameter, wanted: bool) -> bool:
    """Under ``--json``, keep stdout for the document and send every other print to stderr."""
    if wanted and _DOCUMENT_STREAM not in context.meta:
        stdout = sys.stdout
        context.meta[_DOCUMENT_STREAM] = stdout
        sys.stdout = sys.stderr
        context.call_on_close(lambda: setattr(sys, "stdout", stdout))
    return wanted


def json_option(function: Decorated) -> Decorated:
    """``--json``, passed on as ``as_json: bool``: one document on stdout, everything else on stderr.

    The verb need not take care of the latter: whatever it prints goes to stderr, except by ``print_document``.
    """
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        callback=_claim_stdout,
        help="Print one JSON document to stdout.",
    )(function)


def runs_option(function: Decorated) -> Decorated:
    """``--runs-dir DIR``, passed on as ``runs: Path``: where the runs lie; else PGHERD_RUNS, else ./pgherd-runs."""
    return click.option(
        "--runs-dir",
        "runs",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="PGHERD_RUNS",
        default=Path("pgherd-runs"),
        show_default=True,
        show_envvar=True,
        metavar="DIR",
        help="Directory of runs.",
    )(function)


def run_named(directory: RunDirectory) -> str:
    """How to name the run on a command line from here; not quoted."""
    return directory.name if directory.path.parent == Path("pgherd-runs") else str(directory.path)


def _agree(context: click.Context, parameter: click.Parameter, given: bool) -> None:
    if given:
        context.meta[_AGREED] = True


def yes_option(function: Decorated) -> Decorated:
    """``--yes``, not passed on: ``said_yes`` tells. The changes of the host that a run needs are agreed to without asking."""
    return click.option("--yes", is_flag=True, expose_value=False, callback=_agree, help="Apply host changes without asking.")(function)


def said_yes() -> bool:
    """Whether this call was given ``--yes``."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_AGREED))


def confirm_changes(
    changes: Sequence[str], note: Callable[[str], None], paused: Callable[[], AbstractContextManager[None]] = nullcontext
) -> None:
    """Ask before anything of the host is changed that is not pgherd's own, unless ``--yes`` was given. ``paused`` holds a display back.

    Raises:
        UsageError: there is no terminal on which to ask.
        click.Abort: the answer is no.
    """
    if not changes or said_yes():
        return
    listed = "; ".join(changes)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"this changes the host: {listed}. All of it is taken back at the end. There is no terminal to ask on: give --yes")
    note(f"This changes the host, until the run ends: {listed}.")
    with paused():
        click.confirm("Go on?", abort=True, err=True)


def whole_numbers(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Callback of an option that takes a list such as ``1,2,4,8``."""
    if value is None:
        return None
    try:
        return tuple(int(word) for word in value.split(","))
    except ValueError:
        raise click.BadParameter(f"'{value}' is not a list of whole numbers such as 1,2,4,8") from None
