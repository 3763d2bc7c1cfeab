"""``pgherd ui``: the web page over the runs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgherd.cli.output import answer_console, json_option, print_document, runs_option

if TYPE_CHECKING:
    from pgherd.ui.server import ServerAddress


@click.command("ui")
@click.option("--listen", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Listen here; beyond loopback a token is needed.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0: any that is free.")
@click.option("--token", is_flag=True, help="Ask for a token on loopback too.")
@runs_option
@json_option
def command(listen: str, port: int, token: bool, runs: Path, as_json: bool) -> int:
    """Show the runs in a browser: browse, watch, compare, explore samples; plan, start, stop and resume studies of laptop
    size. Ctrl-C ends the pages; what was started from them goes on.

    It listens on this machine alone unless told otherwise. Elsewhere whoever shows the token that is printed may see all
    runs and load this host; there is no encryption, so use it in a trusted network or through 'ssh -L'.

    \b
    pgherd ui                          then open http://127.0.0.1:8765/
    pgherd ui --listen 192.0.2.7       prints an address with a token in it
    """
    from pgherd.model.errors import CapabilityError
    from pgherd.node import interruption

    try:
        from pgherd.ui.server import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn", "python_multipart", "multipart", "anyio"):
            raise
        raise CapabilityError(f"the web page needs {error.name}, which is not installed: pip install 'pgherd[ui]'") from None

    def announce(served: ServerAddress) -> None:
        if as_json:
            document = {"schema": "pgherd/ui/1", "address": served.address, "token": served.token, "sign_in": served.sign_in}
            print_document({**document, "runs": str(runs)})
            return
        console = answer_console()
        console.print(f"The runs in {runs} are shown at {served.sign_in}", markup=False, soft_wrap=True)
        if served.token:
            console.print("Whoever has this address may see all runs and load this host; it is not printed again.", markup=False)
        console.print("Ctrl-C ends it.", markup=False)
        sys.stdout.flush()

    try:
        with interruption.ended_by_signals():
            serve(runs, announce, listen=listen, port=port, token=token)
    except KeyboardInterrupt:  # the usual end; under --json the document has been printed already
        click.echo("pgherd: interrupted", err=True)
    return 130
