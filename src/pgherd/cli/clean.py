"""``pgherd clean``: undo host changes and remove leftovers of killed runs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pgherd.cli.output import answer_console, json_option, print_document, runs_option


@click.command("clean")
@click.option("--templates", is_flag=True, help="Also remove data directory templates.")
@runs_option
@json_option
def command(templates: bool, runs: Path, as_json: bool) -> int:
    """Undo host changes and remove leftovers of killed runs: processes, cgroups, shared memory, sockets, data directories and
    unfinished trials. Finished trials and active runs are left unchanged."""
    from pgherd.host import journal, paths, reservation
    from pgherd.model.errors import RunDirectoryError
    from pgherd.node.files import UnsafeFileError, user_name
    from pgherd.node.local import LocalNode
    from pgherd.postgres import templates as data_templates
    from pgherd.store.live_state import remove_live
    from pgherd.store.run_directory import RunDirectory, without_process

    node = LocalNode()
    state, cache = paths.state_dir(), paths.cache_dir()
    messages = journal.clean(node, state)
    reservation.live(state)  # also drops reservations of ended processes
    running = journal.running(node, state)
    complete = [template.key for template in data_templates.list_all(node, str(cache))]
    if templates and running:
        messages.append(f"kept the templates, because run {running[0]} is active and may use them")
    keep = complete if running or not templates else []
    messages += [f"removed template {name}" for name in data_templates.prune(node, str(cache), keep)]
    for unfinished in () if running else sorted(cache.glob("postgres-*.unfinished-*")):
        node.remove_tree(str(unfinished))
        messages.append(f"removed the unfinished copy {unfinished}")
    removed, failures = RunDirectory.drop_abandoned(runs)
    messages += [f"removed run {name}, which was killed before its start" for name in removed]
    for directory in RunDirectory.all(runs):
        if directory.alive():
            continue
        if not directory.is_ours():
            messages.append(f"left unchanged: {directory.foreign_text()}")
            continue
        try:
            remove_live(directory.path)
            removed, stayed = directory.drop_partial()
            messages += [f"removed the unfinished trial {trial} of run {directory.name}" for trial in removed]
            failures += stayed
            record = directory.record()
            if record.state == "running":
                directory.save(without_process(record))
        except (RunDirectoryError, UnsafeFileError, OSError) as error:
            messages.append(f"left unchanged: {error}")
            continue
        if record.state == "running":
            messages.append(f"run {directory.name} was killed; resume it with 'pgherd resume {directory.argument}'")
    messages += [f"not undone: {failure}" for failure in failures]
    failed = any(line.startswith("not undone") for line in messages)
    if as_json:
        print_document({"schema": "pgherd/clean/2", "actions": messages, "clean": not failed})
    else:
        console = answer_console()
        for line in messages:
            console.print(line, markup=False)
        if not messages:
            where = f"{user_name(os.geteuid())} in {state}, {cache} and {runs.absolute()}"
            console.print(
                f"No leftovers found of {where}: no process, cgroup, directory or unfinished trial of a killed run.",
                markup=False,
                soft_wrap=True,
            )
    return 1 if failed else 0
