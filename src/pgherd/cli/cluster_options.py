"""The options that spread a study over the hosts of a cluster, as one decorator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def cluster_options(function: Decorated) -> Decorated:
    """``--cluster``, ``--cluster-tls``, ``--placement`` and ``--on-lost-host``, passed on by name; None where they are not given."""
    options = (
        click.option("--cluster", metavar="NAME|ADDRESS", help="Run on hosts of a cluster ('pgherd cluster'): its name or address."),
        click.option("--cluster-tls", metavar="DIR", help="Certificates of a cluster that was not started here."),
        click.option("--placement", metavar="RULE", help="spread, pack, label:KEY=VALUE or listed:CONTAINER=HOST,…  [default: spread]"),
        click.option("--on-lost-host", type=click.Choice(["continue", "stop"]), help="Go on with those left?  [default: continue]"),
    )
    for option in reversed(options):
        function = option(function)
    return function
