"""``pgherd clean``: take back what killed runs left."""

from __future__ import annotations

from pathlib import Path

import click

from pgherd.cli.output import answer_console, json_option, print_document, runs_option


@click.command("clean")
@click.option("--golden", is_flag=True, help="Also remove the golden copies (loaded databases kept for the next run).")
@runs_option
@json_option
def command(golden: bool, runs: Path, as_json: bool) -> int:
    """Undo every host change and remove what interrupted runs left: processes, control groups, shared memory, sockets,
    data directories, half-written trials. Finished trials stay, and runs that are alive are left alone."""
    from pgherd.host import journal, paths, reservation
    from pgherd.model.errors import RunDirectoryError
    from pgherd.node.local import LocalNode
    from pgherd.postgres import golden as copies
    from pgherd.store.live import remove_live
    from pgherd.store.run_directory import KILLED, RunDirectory

    node = LocalNode()
    state, cache = paths.state_dir(), paths.cache_dir()
    said = journal.clean(node, state)
    reservation.live(state)  # drops those of the dead
    running = journal.running(node, state)
    whole = [copy.key for copy in copies.list_all(node, str(cache))]
    if golden and running:
        said.append(f"left the golden copies alone: run {running[0]} is running and may need them")
    keep = whole if running or not golden else []
    said += [f"removed golden copy {name}" for name in copies.prune(node, str(cache), keep)]
    for unfinished in () if running else sorted(cache.glob("postgres-*.unfinished-*")):
        node.remove_tree(str(unfinished))
        said.append(f"removed the unfinished copy {unfinished}")
    said += [f"removed run {name}, which was killed before it began" for name in RunDirectory.drop_abandoned(runs)]
    for directory in RunDirectory.all(runs):
        if directory.alive():
            continue
        remove_live(directory.path)
        dropped = directory.drop_partial()
        said += [f"removed the unfinished trial {trial} of run {directory.name}" for trial in dropped]
        try:
            record = directory.record()
        except RunDirectoryError as error:
            said.append(f"left alone: {error}")
            continue
        if record.state == "running":
            directory.save(record.model_copy(update={"state": "interrupted", "error": KILLED}))
            said.append(f"run {directory.name} was killed; 'pgherd resume {directory.name}' goes on with it")
    failed = any(line.startswith("not undone") for line in said)
    if as_json:
        print_document({"schema": "pgherd/clean/1", "done": said, "clean": not failed})
    else:
        console = answer_console()
        for line in said:
            console.print(line, markup=False)
        if not said:
            console.print("Nothing was left: no process, control group, directory or unfinished trial of a dead run.")
    return 1 if failed else 0
