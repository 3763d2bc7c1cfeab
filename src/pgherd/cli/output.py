"""Output helpers and common options of all verbs."""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from pgherd.model.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console


Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_DOCUMENT_STREAM = "pgherd.cli.output.stream"
_AGREED = "pgherd.cli.output.agreed"


class FiniteRange(click.FloatRange):
    """Range of numbers without infinity, and without NaN, which is inside every range of click."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Convert the text, or fail as click does."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


def answer_console() -> Console:
    """Return the console for the answer: stdout, or stderr with ``--json``, which reserves stdout for the document."""
    from pgherd.cli.console import CleanConsole

    return CleanConsole()


def progress_console() -> Console:
    """Return the console for progress and warnings: stderr."""
    from pgherd.cli.console import CleanConsole

    return CleanConsole(stderr=True)


def print_document(document: dict[str, Any]) -> None:
    """Print the document of a ``--json`` call on the real stdout. Call it last.

    The document may contain models, paths, times and numpy scalars. NaN and infinity become null, because JSON lacks them. Control
    characters are escaped, because a terminal may show the document.
    """
    import json

    context = click.get_current_context(silent=True)
    stream = (context.meta.get(_DOCUMENT_STREAM) if context else None) or sys.stdout
    text = json.dumps(_plain(document), ensure_ascii=False, allow_nan=False, indent=2)
    click.echo("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text), file=stream)


def _plain(value: Any) -> Any:
    """Convert a value to the types of JSON."""
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
    raise TypeError(f"{type(value).__name__} cannot be written as JSON: {value!r}")


def _claim_stdout(context: click.Context, parameter: click.Parameter, requested: bool) -> bool:
    """With ``--json``, reserve stdout for the document and redirect other output to stderr."""
    if requested and _DOCUMENT_STREAM not in context.meta:
        stdout = sys.stdout
        context.meta[_DOCUMENT_STREAM] = stdout
        sys.stdout = sys.stderr
        context.call_on_close(lambda: setattr(sys, "stdout", stdout))
    return requested


def json_option(function: Decorated) -> Decorated:
    """Add ``--json``, passed as ``as_json: bool``.

    With it only ``print_document`` writes to stdout. All other output of the verb goes to stderr.
    """
    return click.option(
        "--json",
        "as_json",
        is_flag=True,
        is_eager=True,
        callback=_claim_stdout,
        help="Print one JSON document to stdout.",
    )(function)


def _require_own_default(context: click.Context, parameter: click.Parameter, runs: Path) -> Path:
    """Return the directory of runs. Raise UsageError for a default directory of another user, who could choose what 'last' is."""
    if parameter.name is not None and context.get_parameter_source(parameter.name) is ParameterSource.DEFAULT:
        from pgherd.node import files

        with suppress(FileNotFoundError):
            for owner in (runs.lstat().st_uid, runs.stat().st_uid):
                if owner not in files.ours() | {0}:
                    raise UsageError(f"./{runs} belongs to {files.user_name(owner)}; to use it, give --runs-dir {runs}")
    return runs


def runs_option(function: Decorated) -> Decorated:
    """Add the directory of runs, passed as ``runs: Path``. The default is PGHERD_RUNS or ./pgherd-runs."""
    return click.option(
        "--runs-dir",
        "runs",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="PGHERD_RUNS",
        default=Path("pgherd-runs"),  # DEFAULT_ROOT, whose module is too heavy for --help
        callback=_require_own_default,
        show_default=True,
        show_envvar=True,
        metavar="DIR",
        help="Directory of runs.",
    )(function)


def _agree(context: click.Context, parameter: click.Parameter, agreed: bool) -> None:
    if agreed:
        context.meta[_AGREED] = True


def yes_option(function: Decorated) -> Decorated:
    """Add ``--yes``, which ``said_yes`` returns. Host changes are then applied without a question."""
    return click.option("--yes", is_flag=True, expose_value=False, callback=_agree, help="Apply host changes without asking.")(function)


def confirmed() -> bool:
    """Return True if this call has ``--yes``."""
    context = click.get_current_context(silent=True)
    return bool(context and context.meta.get(_AGREED))


def confirm_changes(
    changes: Sequence[str], note: Callable[[str], None], paused: Callable[[], AbstractContextManager[None]] = nullcontext
) -> None:
    """Require the user's consent to host changes, unless ``--yes`` is given. ``paused`` suspends a live display.

    Raises:
        UsageError: there is no terminal for the question.
        click.Abort: the answer is no.
    """
    if not changes or confirmed():
        return
    listed = "; ".join(changes)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"this run changes the host: {listed}. Without a terminal to confirm it, give --yes. All changes are undone at the end"
        )
    note(f"Host changes until the run ends: {listed}.")
    with paused():
        click.confirm("Continue?", abort=True, err=True)


def whole_numbers(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | None:
    """Parse an option's list such as ``1,2,4,8``."""
    if value is None:
        return None
    words = value.split(",")
    for before, word in itertools.pairwise(words):
        if re.fullmatch(r"0\d\d", word.strip()):
            whole = f"{before.strip()}{word.strip()}"
            raise click.BadParameter(f"'{value}': '{word.strip()}' begins with 0; without separators of thousands, is it {whole}?")
    try:
        return tuple(int(word) for word in words)
    except ValueError:
        raise click.BadParameter(f"'{value}' is not a list of whole numbers such as 1,2,4,8") from None
