"""How long pgherd takes from a template to 40 ready scale-10 databases, against bare copies and starts of the same.

pgherd: what a run does to bring its first trial about, from nothing to the instant at which every server has answered;
making containers, copying, journalling and starting are in it; warming the buffers, and what is left then of the sync
that runs meanwhile, are shown apart. Bare: ``cp -a`` of the template's data directory, two at a time, the same
settings, and ``pg_ctl -w start`` of all at once; no containers, no sync. Before each side the template is read, and
what the other side left to write is written.
"""

from __future__ import annotations

import os
import pwd
import random
import secrets
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import deployed
import outcome
import paired
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.host.server_user import server_account
from pgherd.node.local import LocalNode
from pgherd.node.process import environment
from pgherd.postgres import configuration, templates
from pgherd.postgres.templates import Template
from pgherd.prepare.prepared_study import runnable
from pgherd.runner.progress import RunObserver
from pgherd.studies.density.options import DensityOptions, deployment
from pgherd.workloads.registry import loaders

GOAL, LOADED_GOAL = 1.3, 2.0
"""The second one includes syncing and warming, of which the bare side does nothing."""
AT_ONCE = 2


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 6, "pairs")
    parser.add_argument("--databases", type=int, metavar="N", help="databases  [default: 40; --quick: 4]")
    parser.add_argument("--scale", type=int, help="pgbench scale  [default: 10; --quick: 1]")
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 6)
    databases = options.databases or (4 if options.quick else 40)
    scale = options.scale or (1 if options.quick else 10)
    seed = outcome.seed_of(options)
    node = LocalNode()
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    asked, prepared = deployed.complete(node, databases=(databases,), scale=scale, seed=1)
    with deployed.opened(node, asked, prepared, RunObserver()) as (_, live):
        server = next(deployment(asked).servers())[2]
        installation = runnable(node, asked.pg_bin, asked.pg_version, live)
        sockets = str(live.sockets / "g")
        node.make_dir(sockets, mode=0o700, user=live.account)
        contents = loaders(node, server.databases)
        places = {"cache_dir": str(live.cache), "socket_dir": sockets}
        copy = templates.ensure(node, installation, contents, account=live.account, checksums=server.checksums, **places)
    sides = {"plain": lambda: bare(node, asked, installation.bin, copy), "pgherd": lambda: by_pgherd(node, asked, prepared, copy)}
    sides["plain"]()  # not counted: a virtual machine is slow on memory that it touches for the first time

    def said(number: int, pair: dict[str, dict[str, float]]) -> bool:
        raw.append(pair)
        ours, plain = pair["pgherd"], pair["plain"]
        steps = ", ".join(f"{name} {seconds:.1f}" for name, seconds in ours.items() if name != "ready")
        outcome.say(
            f"pair {number}: bare {plain['ready']:.2f} s (copies {plain['copies']:.1f}, starts {plain['starts']:.1f}), "
            f"pgherd {ours['ready']:.2f} s ({steps}), ratio {ours['ready'] / plain['ready']:.2f}"
        )
        return False

    paired.run_blocks(pairs, random.Random(seed), sides, said)
    settings = {
        "databases": databases,
        "scale": scale,
        "bytes each": copy.bytes,
        "copies at once": AT_ONCE,
        "postgres": asked.pg_version,
        "runtime": asked.runtime,
    }
    result = outcome.Outcome("provision", options.quick, seed, settings, figures(raw, databases), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def rest(node: LocalNode, copy: Template) -> None:
    """Leave nothing to write, and the template in the page cache."""
    os.sync()
    for file in Path(copy.data_dir).rglob("*"):
        if file.is_file():
            with open(file, "rb") as data:
                while data.read(1 << 20):
                    pass


class Steps(RunObserver):
    """Notes when each step of setting up begins."""

    def __init__(self) -> None:
        """No step has begun."""
        self.begins: dict[str, float] = {}

    def setup(self, what: str) -> None:
        """A step, by its first word: copying, starting, warming."""
        self.begins[what.split()[0]] = time.monotonic()


def by_pgherd(node: LocalNode, options: DensityOptions, prepared: Any, copy: Template) -> dict[str, float]:
    """Seconds until all are ready, and what follows until they may be loaded."""
    steps = Steps()
    with deployed.opened(node, options, prepared, steps) as (made, live):
        up = deployed.Deployed(options, made, live)
        rest(node, copy)
        began = time.monotonic()
        made.apply(up.trial({}, ramp=0.0, seconds=1.0))
        ended = time.monotonic()
    # Servers are warmed as soon as all of them have answered.
    copying, starting, ready = (steps.begins[step] for step in ("copying", "starting", "warming"))
    return {
        "ready": ready - began,
        "containers": copying - began,
        "copies": starting - copying,
        "starts": ready - starting,
        "warming and the sync's end": ended - ready,
    }


def bare(node: LocalNode, options: DensityOptions, bin_: str, copy: Template) -> dict[str, float]:
    """Seconds until all are ready, with cp and pg_ctl alone."""
    account = server_account()
    entry = pwd.getpwnam(account) if account else None
    who: dict[str, Any] = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if entry else {}
    journal = Journal.open(node, paths.state_dir(), "benchmark")
    try:
        work = paths.cache_dir() / "work" / f"bare-{secrets.token_hex(2)}"
        journal.make_tree(str(work), mode=0o711)
        sockets = Path(paths.socket_root(node, journal))
        homes = [work / f"{number:02d}" for number in range(max(options.databases))]
        for number, home in enumerate(homes):
            node.make_dir(str(home), mode=0o700, user=account)
            node.make_dir(str(sockets / str(number)), mode=0o700, user=account)
        rest(node, copy)
        began = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for done in [pool.submit(subprocess.run, ["cp", "-a", copy.data_dir, str(home)], check=True) for home in homes]:
                done.result()
        for number, home in enumerate(homes):
            private = {"listen_addresses": "", "unix_socket_directories": str(sockets / str(number))}
            (home / "data/postgresql.conf").write_text(configuration.write({**options.settings, **private}))
        copied = time.monotonic()
        try:
            starts = [_pg_ctl(bin_, home, who, "-w", "-l", str(home / "log"), "start") for home in homes]
            if any(start.wait() for start in starts):
                raise RuntimeError("a server did not start: " + (homes[0] / "log").read_text())
            ready = time.monotonic()
        finally:
            for stop in [_pg_ctl(bin_, home, who, "-w", "-m", "immediate", "stop") for home in homes]:
                stop.wait()
        shutil.rmtree(work)
    finally:
        journal.close()
    return {"ready": ready - began, "copies": copied - began, "starts": ready - copied}


def _pg_ctl(bin_: str, home: Path, who: dict[str, Any], *words: str) -> subprocess.Popen[bytes]:
    argv = [f"{bin_}/pg_ctl", "-s", "-D", str(home / "data"), *words]
    return subprocess.Popen(argv, env=environment({}), cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **who)


def figures(raw: list[dict[str, Any]], databases: int) -> list[Figure]:
    """The ratio, and what stands behind it."""

    def ratio(name: str, ours: list[float], goal: float, note: str) -> Figure:
        found = paired.ratio(ours, [pair["plain"]["ready"] for pair in raw])
        return Figure.of(name, "", found, f"≤ {goal}", outcome.met(found, most=goal), note)

    ready = [pair["pgherd"]["ready"] for pair in raw]
    made = [
        ratio(f"{databases} databases ready, pgherd ÷ bare", ready, GOAL, "until every server has answered"),
        ratio(
            "until they may be loaded, pgherd ÷ bare ready",
            [pair["pgherd"]["ready"] + pair["pgherd"]["warming and the sync's end"] for pair in raw],
            LOADED_GOAL,
            "synced and warmed, which the bare side is not",
        ),
    ]
    for side, names in (("plain", ("ready", "copies", "starts")), ("pgherd", tuple(raw[0]["pgherd"]))):
        for name in names:
            label = f"{'bare' if side == 'plain' else 'pgherd'}: {name}"
            made.append(Figure.of(label, "s", mean_interval([pair[side][name] for pair in raw])))
    return made


if __name__ == "__main__":
    outcome.run(main)
