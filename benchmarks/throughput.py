"""What pgherd costs the database that it measures: pgbench under pgherd against the same pgbench bare, on the same server.

Under pgherd: a trial is played as any other, with sampling at 1 Hz (files, and SQL to the server) and live progress on
a terminal. Bare: the same command line as a plain process in the same container. Plain: the same again without the
options by which pgbench tells more than a final report (``-P 1`` and a transaction log of 5 %), to see what these cost.
All run for the same time; all numbers of transactions are pgbench's own, over its whole run.

The container is one whole CPU (a cpuset): a quota leaves it to the kernel's scheduler on which CPUs server and client
meet, and on a virtual machine that chance moves the CPU per transaction by a tenth from run to run.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import deployed
import outcome
import paired
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.drivers.driver import Endpoint
from pgherd.drivers.pgbench import PgbenchDriver
from pgherd.model.load import Load
from pgherd.node.local import LocalNode
from pgherd.node.process import environment, wrap
from pgherd.node.protocol import Command
from pgherd.runner.execute import phases
from pgherd.runner.progress import RunObserver

GOAL, WIDTH = 0.99, 0.005
PROGRESS = {"-P": 1, "--progress-timestamp": 0}
LOG = {"-l": 0, "--log-prefix": 0, "--sampling-rate": 0}
"""pgbench's options for more than a final report, with the number of arguments that follow each."""


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 60, "blocks")
    parser.add_argument("--duration", type=float, default=3.0, help="length of each run  [default: 3]")
    parser.add_argument("--vcpus", type=int, default=1, help="the container's CPUs  [default: 1]")
    parser.add_argument("--scale", type=int, default=10, help="pgbench scale  [default: 10]")
    parser.add_argument("--clients", type=int, default=2, help="clients  [default: 2]")
    parser.add_argument("--until", type=float, metavar="W", help="go on until a half width is at most W (0.005)")
    parser.add_argument("--more", action="store_true", help="add to the blocks of the last result, which had the same settings")
    parser.add_argument("--limit", type=int, default=400, help="most blocks with --until  [default: 400]")
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 60)
    seconds = 2.0 if options.quick else options.duration
    seed = outcome.seed_of(options)
    node = deployed.CountedNode()
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    asked = {
        "databases": (1,),
        "scale": 1 if options.quick else options.scale,
        "vcpus": options.vcpus,
        "cpu_mode": "cpuset",
        "clients": options.clients,
    }
    with deployed.deployed(node, RunObserver(), seed=1, **asked) as up:
        settings = {"seconds": seconds, **up.settings()}
        if options.more:
            raw += outcome.blocks_before("throughput", options, settings)
        sides: dict[str, Callable[[], dict[str, float]]] = {
            "plain": lambda: bare(up, node, seconds, {**PROGRESS, **LOG}),
            "bare": lambda: bare(up, node, seconds),
            "pgherd": lambda: under_pgherd(up, node, seconds),
        }
        for side in sides.values():
            side()  # not counted: caches, the first connections

        def said(number: int, pair: dict[str, dict[str, float]]) -> bool:
            raw.append(pair)
            bare, ours = pair["bare"]["tps"], pair["pgherd"]["tps"]
            outcome.say(f"block {number}: bare {bare:,.0f} tps, under pgherd {ours:,.0f}, ratio {ours / bare:.4f}")
            return options.until is not None and number >= max(pairs, paired.FEW) and number % 2 == 0 and narrow(raw, options.until)

        paired.run_blocks(options.limit if options.until else pairs, random.Random(seed), sides, said)
    result = outcome.Outcome("throughput", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def load_on(up: deployed.Deployed) -> Load:
    """The load of all sides."""
    options = up.options
    return Load(clients=options.clients, threads=options.threads, scripts=options.scripts, protocol="prepared", sampling=options.sampling)


def bare(up: deployed.Deployed, node: LocalNode, seconds: float, left_out: Mapping[str, int] | None = None) -> dict[str, float]:
    """pgbench as a plain process in the server's container, by pgherd's command line without the options that are ``left_out``."""
    target = up.targets()[0]
    reach = up.fleet.endpoint(target)
    output = up.fleet.scratch / "bare"
    node.make_dir(str(output), mode=0o700, user=up.fleet.account)
    endpoint = Endpoint(target, reach.bin, reach.host, reach.port, reach.database, reach.user, str(output), scale=reach.scale)
    argv = without(PgbenchDriver().argv(load_on(up), endpoint, round(seconds)), left_out or {})
    command = Command(argv, join=reach.handle.join, cpus=reach.handle.cpus, user=up.fleet.account)
    view = up.fleet.view()
    begun = deployed.containers_cpu(node, view)
    done = subprocess.run(wrap(command), env=environment({}), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    ended = deployed.containers_cpu(node, view)
    shutil.rmtree(output)
    return measured(done.stdout, begun, ended, 0.0)


def without(argv: list[str], options: Mapping[str, int]) -> list[str]:
    """A command line without these options, each with its number of separate arguments."""
    kept, skip = [], 0
    for word in argv:
        if skip:
            skip -= 1
        elif (name := word.partition("=")[0]) in options:
            skip = options[name]
        else:
            kept.append(word)
    return kept


def under_pgherd(up: deployed.Deployed, node: deployed.CountedNode, seconds: float) -> dict[str, float]:
    """The same load as a trial of pgherd. The ramp-up is part of the run: all of it is compared."""
    target = up.targets()[0]
    ramp = min(1.0, seconds / 2)
    trial = up.trial({target: load_on(up)}, ramp=ramp, seconds=seconds - ramp)
    scratch = up.fleet.scratch / "trial"
    node.make_dir(str(scratch), mode=0o711)
    view = up.fleet.view()
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory, deployed.watcher() as progress:
        progress.planned(2, 2 * seconds)
        progress.trial(trial, 1)
        begun = deployed.containers_cpu(node, view)
        played, _ = phases.run(node, trial, up.fleet, Path(directory), scratch, progress, up.fleet.watched)
        after = deployed.containers_cpu(node, view)
        said = next(Path(directory).glob("drivers/*/*/stdout")).read_text()
    shutil.rmtree(scratch)
    assert node.begun is not None and node.ended is not None
    own, backends = node.ended.own - node.begun.own, node.ended.backends - node.begun.backends
    found = measured(said, begun, after, own)
    return found | {"tps by pgherd": played[0].throughput, "pgherd CPU s": own, "backends CPU s": backends}


def measured(report: str, begun: float | None, after: float | None, own: float) -> dict[str, float]:
    """What one run gave: pgbench's throughput, and CPU in seconds per million transactions."""
    tps = re.search(r"^tps = ([\d.]+) ", report, re.MULTILINE)
    transactions = re.search(r"^number of transactions actually processed: (\d+)", report, re.MULTILINE)
    assert tps and transactions, report
    found = {"tps": float(tps[1]), "transactions": float(transactions[1])}
    if begun is not None and after is not None:
        per_million = 1e6 / found["transactions"]
        found |= {"container CPU": (after - begun) * per_million, "all CPU": (after - begun + own) * per_million}
    return found


def estimate(raw: list[dict[str, Any]], what: str, ours: str = "pgherd", plain: str = "bare", *, inverse: bool = False) -> Any:
    """The ratio of one quantity over the blocks; ``inverse``: of what there is for one unit of it."""
    upper, lower = ([block[side][what] for block in raw] for side in (ours, plain))
    return paired.ratio(lower, upper) if inverse else paired.ratio(upper, lower)


def narrow(raw: list[dict[str, Any]], width: float) -> bool:
    """Whether one of the two intervals is narrow enough. Only their width is looked at, never where they lie."""
    found = [estimate(raw, "tps")] + ([estimate(raw, "all CPU", inverse=True)] if "all CPU" in raw[0]["bare"] else [])
    widths = [paired.half_width(one) for one in found]
    return any(one is not None and one <= width for one in widths)


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """The ratios, each so that 1 means no cost."""
    goal = f"≥ {GOAL}, ± {WIDTH} at most (this or the next)"
    counted = "all CPU" in raw[0]["bare"]
    found = estimate(raw, "tps")
    made = [Figure.of("throughput, pgherd ÷ bare", "", found, goal, judge(found))]
    if counted:
        found = estimate(raw, "all CPU", inverse=True)
        note = "CPU of server, clients, sampling backends and pgherd itself"
        made.append(Figure.of("transactions per CPU second, pgherd ÷ bare", "", found, goal, judge(found), note))
        found = estimate(raw, "container CPU", inverse=True)
        note = "CPU of the container: server, clients, sampling backend"
        made.append(Figure.of("the same without pgherd's own process", "", found, note=note))
    note = "what pgbench's progress lines and transaction log cost"
    made.append(Figure.of("throughput, bare ÷ plain", "", estimate(raw, "tps", "bare", "plain"), note=note))
    if counted:
        found = estimate(raw, "all CPU", "bare", "plain", inverse=True)
        made.append(Figure.of("transactions per CPU second, bare ÷ plain", "", found, note=note))
        made.append(Figure.of("transactions per CPU second, pgherd ÷ plain", "", estimate(raw, "all CPU", "pgherd", "plain", inverse=True)))
        ours = [block["pgherd"] for block in raw]
        shares = [100 * (run["pgherd CPU s"] + run["backends CPU s"]) / (run["all CPU"] * run["transactions"] / 1e6) for run in ours]
        note = "counted, not compared: exact to what neighbours do"
        made.append(Figure.of("pgherd and its sampling backend", "% of all CPU", mean_interval(shares), note=note))
    reported = paired.ratio([block["pgherd"]["tps by pgherd"] for block in raw], [block["bare"]["tps"] for block in raw])
    made.append(Figure.of("throughput that pgherd reports ÷ bare", "", reported, note="without the ramp-up, in the common window"))
    return made


def judge(found: Any) -> bool | None:
    """Whether the goal is met, which wants a narrow interval, too; None while it is too wide, or holds the goal."""
    width = paired.half_width(found)
    said = outcome.met(found, least=GOAL)
    return None if said and (width is None or width > WIDTH) else said


if __name__ == "__main__":
    outcome.run(main)
