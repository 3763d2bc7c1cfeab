"""The options of studies that make swap for their runs, to stand among a verb's own (see cli.database_options)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def swap_options(*, kind: str, size: str) -> tuple[Callable[[Any], Any], ...]:
    """The options; ``kind`` and ``size`` are what the study takes by itself, in words."""
    return (
        click.option("--swap", type=click.Choice(["zram", "file", "none"]), help=f"Where pages go.  [default: {kind}]"),
        click.option("--swap-size", metavar="SIZE", help=f"Its size; of zram before compression.  [default: {size}]"),
        click.option("--swap-dir", metavar="DIR", help="Directory of a swap file.  [default: pgherd's cache]"),
        click.option("--swap-algorithm", metavar="NAME", help="How zram compresses, such as lz4.  [default: the kernel's]"),
        click.option("--swap-memory", metavar="SIZE", help="Most memory that zram may take for itself.  [default: no limit]"),
    )
