"""The options of studies that make swap for their runs, to stand among a verb's own (see cli.database_options)."""

from __future__ import annotations

import click

SWAP_OPTIONS = (
    click.option("--swap", type=click.Choice(["zram", "file", "none"]), help="Where pages go.  [default: zram where overcommitted]"),
    click.option("--swap-size", metavar="SIZE", help="Its size; of zram before compression.  [default: the configured memory]"),
    click.option("--swap-dir", metavar="DIR", help="Directory of a swap file.  [default: pgherd's cache]"),
    click.option("--swap-algorithm", metavar="NAME", help="How zram compresses, such as lz4.  [default: the kernel's]"),
    click.option("--swap-memory", metavar="SIZE", help="Most memory that zram may take for itself.  [default: no limit]"),
)
