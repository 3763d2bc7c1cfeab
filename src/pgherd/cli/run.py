"""``pgherd run``: run a study from a scenario file."""

from __future__ import annotations

from pathlib import Path

import click

from pgherd.cli.metrics_options import metrics_options
from pgherd.cli.output import json_option, runs_option, yes_option


@click.command("run")
@click.argument("scenario", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--print-schema", is_flag=True, help="Print the JSON Schema of scenario files.")
@click.option("--dry-run", is_flag=True, help="Show the plan and exit.")
@yes_option
@click.option("--no-report", is_flag=True, help="Do not write the HTML report.")
@metrics_options
@runs_option
@json_option
def command(scenario: Path | None, print_schema: bool, dry_run: bool, no_report: bool, runs: Path, as_json: bool) -> int:
    """Run a study from a scenario file (YAML). The option --write-scenario of a study writes one."""
    from pgherd.cli.run_study import run_study
    from pgherd.prepare.requests import json_schema, read_scenario

    if print_schema:
        import json

        click.echo(json.dumps(json_schema(), indent=2))
        return 0
    if scenario is None:
        raise click.UsageError("name a scenario file, or give --print-schema")
    found = read_scenario(scenario)
    return run_study(found.study, found.options, runs=runs, dry_run=dry_run, report=not no_report, as_json=as_json, title=found.title)
