"""``pgherd ui``: serve the web page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgherd.cli.output import answer_console, json_option, print_document, runs_option

if TYPE_CHECKING:
    from pgherd.ui.server import ServerAddress


@click.command("ui")
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen address.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="Port; 0 picks a free one.")
@runs_option
@json_option
def command(listen: str, port: int, runs: Path, as_json: bool) -> int:
    """Browse and start runs in a web browser: compare runs, show samples, start, stop and resume studies of laptop size.
    Ctrl-C ends the page. Studies started from it continue.

    The printed address contains a token, which every page requires. Without --listen only this machine can connect. There is
    no encryption: use a trusted network, or 'ssh -L 8765:127.0.0.1:8765 HOST'.

    \b
    pgherd ui                          open the printed address
    pgherd ui --listen 192.0.2.7       for other machines
    """
    from pgherd.node import interruption
    from pgherd.ui.server import serve

    def announce(server: ServerAddress) -> None:
        if as_json:
            document = {"schema": "pgherd/ui/2", "address": server.address, "token": server.token, "sign_in_url": server.sign_in_url}
            print_document({**document, "runs": str(runs)})
            return
        console = answer_console()
        console.print(f"Runs in {runs}: open {server.sign_in_url}", markup=False, soft_wrap=True)
        console.print("Anyone with this address can show all runs and load this host. It is not printed again.", markup=False)
        console.print("Ctrl-C ends the page.", markup=False)
        sys.stdout.flush()

    try:
        with interruption.ended_by_signals():
            serve(runs, announce, listen=listen, port=port)
    except KeyboardInterrupt:  # the normal end; with --json the document has been printed already
        click.echo("pgherd: interrupted", err=True)
    return 130
