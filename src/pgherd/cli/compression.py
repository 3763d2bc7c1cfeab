"""``pgherd compression``: how far does which data compress?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pgherd.cli.output import json_option, runs_option


def _words(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(word.strip() for word in value.split(",") if word.strip())


@click.command("compression", short_help="How far does which data compress, by codec and block size?")
@click.option("--kinds", callback=_words, metavar="KIND[@SCALE],…|none", help="Data that pgherd makes.  [default: all three]")
@click.option("--dsn", metavar="DSN", help="A database of yours; it is only read.")
@click.option("--dir", "directory", metavar="DIR", help="A directory of yours; it is only read.")
@click.option("--codecs", callback=_words, metavar="CODEC,…", help="lz4, zstd-LEVEL.  [default: lz4,zstd-1,zstd-3,zstd-9]")
@click.option("--blocks", callback=_words, metavar="SIZE,…", help="Compressed each for itself.  [default: 4k,8k,16k,32k,128k,1M]")
@click.option("--samples", type=int, metavar="N", help="Segments of 1 MB to read of each kind of data.  [default: 48]")
@click.option("--encrypt/--no-encrypt", default=None, help="Compress the same data encrypted first, too.  [default: do]")
@click.option("--filesystem", metavar="DIR", help="On btrfs or ZFS: write the samples there too, and see what it makes of them.")
@click.option("--seed", type=int, help="Seed of the choice of segments.  [default: random, recorded]")
@click.option("--pg-bin", metavar="DIR", help="Directory of postgres, initdb and pgbench.")
@click.option("--pg-version", metavar="MAJOR", help="A PostgreSQL on this machine by its major version, or 'embedded'.")
@click.option("--run-as", metavar="ACCOUNT", help="As root: the account that servers run as.")
@click.option("--dry-run", is_flag=True, help="Show what would be compressed, disk and host changes; do nothing.")
@click.option("--write-scenario", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Write this command as a scenario.")
@click.option("--no-report", is_flag=True, help="Skip the HTML report ('pgherd report' makes it later).")
@runs_option
@json_option
def command(dry_run: bool, write_scenario: Path | None, no_report: bool, runs: Path, as_json: bool, **given: Any) -> int:
    """Compress samples of several kinds of data, each block for itself, and compare (experiment E15).

    Machine-made filler compresses quite unlike data from life; so do encrypted pages. Nothing of yours is written to.

    \b
    pgherd compression
    pgherd compression --kinds realistic,pgbench@50 --codecs lz4,zstd-19
    pgherd compression --kinds none --dsn postgresql://me@db/sales
    """
    from pgherd.cli.launch import launch

    options = {name: value for name, value in given.items() if value is not None}
    return launch("compression", options, runs=runs, dry_run=dry_run, scenario=write_scenario, report=not no_report, as_json=as_json)
