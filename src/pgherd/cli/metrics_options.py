"""Metrics options of the commands that execute a run, and the metrics server."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pgherd.model.errors import UsageError
from pgherd.model.text import clean

if TYPE_CHECKING:
    from pgherd.export.server import ListenAddress
    from pgherd.model.run import RunRecord

_ADDRESS, _TOKEN, _SERVER = "pgherd.cli.metrics.address", "pgherd.cli.metrics.token", "pgherd.cli.metrics.server"

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        context.meta[name] = value

    return keep


def metrics_options(function: Decorated) -> Decorated:
    """Add ``--metrics-listen`` and ``--metrics-token-file``. ``serving`` and ``show`` read their values, not the function."""
    token = click.option(
        "--metrics-token-file",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
        expose_value=False,
        callback=_keep(_TOKEN),
        help="Require the bearer token on the first line of FILE.",
    )
    metrics = click.option(
        "--metrics-listen",
        metavar="[ADDRESS:]PORT",
        expose_value=False,
        callback=_keep(_ADDRESS),
        help="Serve Prometheus metrics while running.",
    )
    return metrics(token(function))


def endpoint() -> ListenAddress | None:
    """Return the address on which this command serves metrics, or None without ``--metrics-listen``.

    Raises:
        UsageError: the address is invalid, or other hosts can reach it and there is no token.
    """
    context = click.get_current_context(silent=True)
    address, token = (context.meta.get(_ADDRESS), context.meta.get(_TOKEN)) if context else (None, None)
    if address is None:
        if token is not None:
            raise UsageError("--metrics-token-file requires --metrics-listen; add --metrics-listen PORT")
        return None
    from pgherd.export.server import listen_address

    return listen_address(address, token)


def _print_note(text: str) -> None:
    click.echo(clean(text), err=True)


@contextlib.contextmanager
def serving(note: Callable[[str], None] = _print_note) -> Iterator[None]:
    """Serve metrics inside the block if the user gives ``--metrics-listen``.

    Raises:
        UsageError: the port is in use, or this host does not have the address.
    """
    address = endpoint()
    if address is None:
        yield
        return
    from pgherd.export.server import MetricsServer

    context = click.get_current_context()
    server = context.meta[_SERVER] = MetricsServer(address)
    note(f"Metrics are served at {server.url}")
    try:
        yield
    finally:
        del context.meta[_SERVER]
        server.close()


def show(run: Path, record: RunRecord) -> None:
    """Serve the metrics of this run if the metrics server runs."""
    context = click.get_current_context(silent=True)
    server = context.meta.get(_SERVER) if context else None
    if server is not None:
        server.show(run, record)
