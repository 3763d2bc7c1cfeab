"""``--metrics-listen``: the options of every verb that executes a run, and the server that they ask for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pgherd.model.errors import UsageError

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
    """``--metrics-listen`` and ``--metrics-token-file``, not passed on: ``serving`` and ``show`` know."""
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


def asked() -> ListenAddress | None:
    """Where this call is to serve metrics; None: it is not.

    Raises:
        UsageError: what was given is no address and port, or one that others can reach and without a token.
    """
    context = click.get_current_context(silent=True)
    address, token = (context.meta.get(_ADDRESS), context.meta.get(_TOKEN)) if context else (None, None)
    if address is None:
        if token is not None:
            raise UsageError("--metrics-token-file is for --metrics-listen, which was not given")
        return None
    from pgherd.export.server import listen_address

    return listen_address(address, token)


def _say(text: str) -> None:
    click.echo(text, err=True)


@contextlib.contextmanager
def serving(note: Callable[[str], None] = _say) -> Iterator[None]:
    """Serve metrics inside the block, if ``--metrics-listen`` was given.

    Raises:
        UsageError: the port is taken, or the address is not this host's.
    """
    where = asked()
    if where is None:
        yield
        return
    from pgherd.export.server import MetricsServer

    context = click.get_current_context()
    server = context.meta[_SERVER] = MetricsServer(where)
    note(f"Metrics are served at {server.url}")
    try:
        yield
    finally:
        del context.meta[_SERVER]
        server.close()


def show(run: Path, record: RunRecord) -> None:
    """Serve the metrics of this run, if there is a server."""
    context = click.get_current_context(silent=True)
    server = context.meta.get(_SERVER) if context else None
    if server is not None:
        server.show(run, record)
