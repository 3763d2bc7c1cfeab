"""What pgherd costs the database that it measures: pgbench under pgherd against the same pgbench bare, on the same server.

Under pgherd: a trial is played as any other, with sampling at 1 Hz (files, and SQL to the server), progress lines, a
transaction log of 5 %, and live progress on a terminal. Bare: pgbench as a plain process in the same container, with
none of these. Both run for the same time; both numbers of transactions are pgbench's own, over its whole run.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import deployed
import outcome
import paired
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.model.load import Load
from pgherd.node.process import environment, wrap
from pgherd.node.protocol import Command
from pgherd.runner import phases
from pgherd.runner.watcher import Watcher

GOAL, WIDTH = 0.99, 0.005


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 60, "pairs")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each run  [default: 5]")
    parser.add_argument("--vcpus", type=float, default=1.0, help="the container's CPU quota  [default: 1]")
    parser.add_argument("--scale", type=int, default=10, help="pgbench scale  [default: 10]")
    parser.add_argument("--clients", type=int, default=2, help="clients  [default: 2]")
    parser.add_argument("--until", type=float, metavar="W", help="go on until both half widths are at most W (0.005)")
    parser.add_argument("--limit", type=int, default=400, help="most pairs with --until  [default: 400]")
    options = parser.parse_args()
    pairs = options.pairs or (2 if options.quick else 60)
    seconds = 2.0 if options.quick else options.seconds
    seed = outcome.seed_of(options)
    node = deployed.CountedNode()
    raw: list[dict[str, Any]] = []
    before = outcome.cpu_seconds()
    asked = {"points": (1,), "scale": 1 if options.quick else options.scale, "vcpus": options.vcpus, "clients": options.clients}
    with deployed.deployed(node, Watcher(), seed=1, **asked) as up:
        settings = {
            "seconds": seconds,
            "container": f"{up.options.runtime}, {up.options.vcpus:g} vCPU by {up.options.cpu_mode}",
            "scale": up.options.scale,
            "clients": up.options.clients,
            "threads": up.options.threads,
            "log sampling": up.options.sampling,
            "postgres": up.options.pg_version,
            "database settings": up.options.settings,
        }
        sides = {"plain": lambda: bare(up, node, seconds), "pgherd": lambda: under_pgherd(up, node, seconds)}
        for side in sides.values():
            side()  # not counted: caches, the first connections

        def said(number: int, pair: dict[str, dict[str, float]]) -> bool:
            raw.append(pair)
            plain, ours = pair["plain"]["tps"], pair["pgherd"]["tps"]
            outcome.say(f"pair {number}: bare {plain:,.0f} tps, under pgherd {ours:,.0f}, ratio {ours / plain:.4f}")
            return options.until is not None and number >= max(pairs, paired.FEW) and number % 2 == 0 and narrow(raw, options.until)

        paired.run_pairs(options.limit if options.until else pairs, random.Random(seed), sides, said)
    result = outcome.Outcome("throughput", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def bare(up: deployed.Deployed, node: deployed.CountedNode, seconds: float) -> dict[str, float]:
    """pgbench as a plain process in the server's container."""
    reach = up.fleet.reach(up.targets()[0])
    argv = [f"{reach.bin}/pgbench", "-n", "-M", "prepared", "-c", str(up.options.clients), "-j", str(up.options.threads)]
    argv += ["-T", str(round(seconds)), "-b", "select-only", "-h", reach.host, "-p", str(reach.port), "-U", reach.user, reach.database]
    command = Command(argv, join=reach.room.join, cpus=reach.room.cpus, user=up.fleet.account)
    view = up.fleet.view()
    begun = deployed.containers_cpu(node, view)
    done = subprocess.run(wrap(command), env=environment({}), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return measured(done.stdout, begun, deployed.containers_cpu(node, view), 0.0)


def under_pgherd(up: deployed.Deployed, node: deployed.CountedNode, seconds: float) -> dict[str, float]:
    """The same load as a trial of pgherd. The ramp-up is part of the run: all of it is compared."""
    target = up.targets()[0]
    load = Load(
        clients=up.options.clients,
        threads=up.options.threads,
        scripts=up.options.scripts,
        protocol="prepared",
        sampling=up.options.sampling,
    )
    ramp = min(1.0, seconds / 2)
    trial = up.trial({target: load}, ramp=ramp, seconds=seconds - ramp)
    scratch = up.fleet.scratch / "trial"
    node.make_dir(str(scratch), mode=0o711)
    view = up.fleet.view()
    with tempfile.TemporaryDirectory(prefix="pgherd-benchmark-") as directory, deployed.watcher() as progress:
        progress.planned(2, 2 * seconds)
        progress.trial(trial, 1)
        begun = deployed.containers_cpu(node, view)
        played, _ = phases.play(node, trial, up.fleet, Path(directory), scratch, progress, up.fleet.watched)
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


def estimate(raw: list[dict[str, Any]], what: str, *, inverse: bool = False) -> Any:
    """The ratio of one quantity over the pairs; ``inverse``: of what there is for one unit of it."""
    ours, plain = ([pair[side][what] for pair in raw] for side in ("pgherd", "plain"))
    return paired.ratio(plain, ours) if inverse else paired.ratio(ours, plain)


def narrow(raw: list[dict[str, Any]], width: float) -> bool:
    """Whether the intervals are narrow enough. Only their width is looked at, never where they lie."""
    found = [estimate(raw, "tps")] + ([estimate(raw, "all CPU", inverse=True)] if "all CPU" in raw[0]["plain"] else [])
    widths = [paired.half_width(one) for one in found]
    return all(one is not None and one <= width for one in widths)


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """The ratios, each so that 1 means no cost."""
    made = []
    goal = f"≥ {GOAL}, ± {WIDTH} at most (this or the next)"
    for name, what, inverse, aim, note in (
        ("throughput, pgherd ÷ bare", "tps", False, goal, ""),
        (
            "transactions per CPU second, pgherd ÷ bare",
            "all CPU",
            True,
            goal,
            "CPU of server, clients, sampling backends and pgherd itself",
        ),
        ("the same without pgherd's own process", "container CPU", True, "", "CPU of the container: server, clients, sampling backend"),
    ):
        if what in raw[0]["plain"]:
            found = estimate(raw, what, inverse=inverse)
            made.append(Figure.of(name, "", found, aim, judge(found) if aim else None, note))
    if "all CPU" in raw[0]["plain"]:
        ours = [pair["pgherd"] for pair in raw]
        shares = [100 * (run["pgherd CPU s"] + run["backends CPU s"]) / (run["all CPU"] * run["transactions"] / 1e6) for run in ours]
        note = "counted, not compared: exact to what neighbours do, but without what the transaction log costs the clients"
        made.append(Figure.of("pgherd and its sampling backend", "% of all CPU", mean_interval(shares), note=note))
    reported = paired.ratio([pair["pgherd"]["tps by pgherd"] for pair in raw], [pair["plain"]["tps"] for pair in raw])
    made.append(Figure.of("throughput that pgherd reports ÷ bare", "", reported, note="without the ramp-up, in the common window"))
    return made


def judge(found: Any) -> bool | None:
    """Whether the goal is met; None while the interval is too wide to say."""
    width = paired.half_width(found)
    if width is None or width > WIDTH:
        return False if found.high is not None and found.high < GOAL else None
    return bool(found.value >= GOAL)


if __name__ == "__main__":
    outcome.run(main)
