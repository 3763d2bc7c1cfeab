"""``pgherd compression``: how far does which data compress?"""

from __future__ import annotations

from typing import Any

import click

from pgherd.cli.study_options import INSTALLED, RUN, listed, options, run_study

_OWN = (
    click.option("--kinds", callback=listed, metavar="KIND[@SCALE],…|none", help="Data that pgherd makes.  [default: all three]"),
    click.option("--dsn", metavar="DSN", help="A database of yours; it is only read."),
    click.option("--dir", "directory", metavar="DIR", help="A directory of yours; it is only read."),
    click.option("--codecs", callback=listed, metavar="CODEC,…", help="lz4, zstd-LEVEL.  [default: lz4,zstd-1,zstd-3,zstd-9]"),
    click.option("--blocks", callback=listed, metavar="SIZE,…", help="Compressed each for itself.  [default: 4k,8k,16k,32k,128k,1M]"),
    click.option("--samples", type=int, metavar="N", help="Segments of 1 MB to read of each kind of data.  [default: 48]"),
    click.option("--encrypt/--no-encrypt", default=None, help="Compress the same data encrypted first, too.  [default: do]"),
    click.option("--filesystem", metavar="DIR", help="On btrfs or ZFS: write the samples there too, and see what it makes of them."),
    click.option("--seed", type=int, help="Seed of the choice of segments.  [default: random, recorded]"),
)


@click.command("compression", short_help="How far does which data compress, by codec and block size?")
@options((*_OWN, *INSTALLED, *RUN), without=frozenset({"yes"}), shown="what would be compressed, disk and host changes")
def command(**given: Any) -> int:
    """Compress samples of several kinds of data, each block for itself, and compare (experiment E15).

    Machine-made filler compresses quite unlike data from life; so do encrypted pages. Nothing of yours is written to.

    \b
    pgherd compression
    pgherd compression --kinds realistic,pgbench@50 --codecs lz4,zstd-19
    pgherd compression --kinds none --dsn postgresql://me@db/sales
    """
    return run_study("compression", given)
