"""What virtual machines cost: from a template to the first answer of a server, its root image, QEMU's own memory, watching eight.

Each guest is booted alone, with a pgbench database of scale 1, one vCPU and 512 MB, by whatever accelerator works here (a figure says
which). To the first answer counts packing the disk, booting, connecting to the agent, and starting the server; the template, the
kernel and the root image are there before. The image is made from what the page cache holds. The memory is that of the guest's QEMU process
without the mapping of the guest's own memory, by the proportional set sizes of /proc/PID/smaps (proc(5)), when the guest has idled.
What watching takes is measured with eight guests that are up together (``guests_watched``).
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Any

import guests_watched
import outcome
from outcome import Figure

from pgherd.analysis.intervals import mean_interval
from pgherd.host import paths
from pgherd.host.journal import Journal
from pgherd.host.server_user import server_account
from pgherd.model.errors import UsageError
from pgherd.node import interruption
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.runner.deploy.single_guest import GuestRequest, boot_single_guest
from pgherd.runtimes.vm import boot_images
from pgherd.runtimes.vm.runtime import BootOptions

SECONDS_TO_READY = 15.0
SECONDS_TO_IMAGE = 5.0
MEGABYTES_BEYOND = 120.0
CORES_WATCHING, GUESTS = 0.01, 8
MIB = 2**20


def main() -> None:
    """Measure, print, write."""
    parser = outcome.parser(__doc__, 6, "guests, one after the other")
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="how long a guest idles first  [default: 20; --quick: 2]")
    parser.add_argument("--together", type=int, metavar="N", help="guests that are watched together; 0: none  [default: 8; --quick: 2]")
    parser.add_argument("--windows", type=int, metavar="N", help="windows of a minute in which they are  [default: 4; --quick: 1 of 3 s]")
    parser.add_argument("--watch-only", action="store_true", help="measure what watching takes; the rest is that of the last result")
    options = parser.parse_args()
    idle = options.idle if options.idle is not None else (2.0 if options.quick else 20.0)
    together = options.together if options.together is not None else (2 if options.quick else 8)
    seed = outcome.seed_of(options)
    before = outcome.cpu_seconds()
    chosen = installations.choose(LocalNode())
    wanted = GuestRequest(scale=1, boot=BootOptions(timeout_s=300.0))
    settings: dict[str, Any] = {"postgres": chosen.version, "scale": 1, "vcpus": 1, "memory": wanted.memory, "idle": idle}
    raw: list[dict[str, Any]] = []
    if options.watch_only:
        settings, raw = kept(options, settings)
    with interruption.ended_by_signals():
        if not options.watch_only:
            raw += alone(chosen, wanted, options.pairs or (1 if options.quick else 6), idle)
            settings["accelerator"] = raw[0]["accelerator"]
        if together:
            seconds, windows = (3.0, 1) if options.quick else (60.0, 4)
            accelerator, watched = guests_watched.watch(chosen, together, seconds, options.windows or windows, outcome.say)
            raw += [{**row, "accelerator": accelerator} for row in watched]
    result = outcome.Outcome("guests", options.quick, seed, settings, figures(raw), raw, outcome.noise_since(before))
    outcome.conclude(result, options)


def kept(options: argparse.Namespace, settings: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What --watch-only keeps of the last result: its settings, and its guests that were alone.

    Raises:
        UsageError: nothing would be watched, an option is about those guests, or they are not there or were others.
    """
    if options.together is not None and options.together < 1:
        raise UsageError(f"--together {options.together} with --watch-only measures nothing; give at least 1, or leave --together out")
    if options.idle is not None or options.pairs is not None:
        raise UsageError("--idle and --pairs are about guests that --watch-only does not boot; leave them out")
    # Those that are watched run no server: with which PostgreSQL the others did does not matter to them.
    document = outcome.document_before("guests", options, settings, "--watch-only", free=("idle", "accelerator", "postgres"))
    rows = [row for row in document["raw"] if "seconds" in row]
    if not rows:
        raise UsageError("--watch-only: the last result has no guests that were measured alone; leave --watch-only out")
    return document["settings"], rows


def alone(chosen: installations.Installation, wanted: GuestRequest, guests: int, idle: float) -> list[dict[str, Any]]:
    """One row for each of so many guests, which run one after the other and idle for so many seconds."""
    node, rows = LocalNode(), []
    with boot_single_guest(node, chosen, wanted):
        pass  # makes what is missing, and reads everything into the page cache
    for number in range(1, guests + 1):
        row: dict[str, Any] = {"image": image_seconds(node, chosen)}
        with boot_single_guest(node, chosen, wanted) as found:
            time.sleep(idle)
            row |= {"accelerator": found.images.hypervisor.accelerator, "seconds": found.seconds}
            row |= memory(found.machine.pid, wanted.memory)
        rows.append(row)
        outcome.say(
            f"guest {number}: image {row['image']:.1f} s, ready after {row['seconds']['ready']:.1f} s "
            f"(booting {row['seconds']['booting']:.1f}), beyond its memory {row['beyond']:.0f} MB"
        )
    return rows


def image_seconds(node: LocalNode, chosen: installations.Installation) -> float:
    """Seconds to make the root image anew."""
    journal = Journal.open(node, paths.state_dir(), "guests-image")
    try:
        account, cache = server_account(), str(paths.cache_dir())
        scratch = boot_images.scratch_tree(node, journal)
        usable = installations.reachable_copy(node, chosen, account, cache)
        began = time.monotonic()
        boot_images.root_image.ensure(node, usable, account, cache, scratch, again=True)
        return time.monotonic() - began
    finally:
        journal.close()


def memory(pid: int, given: int) -> dict[str, float]:
    """MB of a QEMU process: ``touched`` of the guest's own memory, and ``beyond`` it; raises ValueError where that mapping is not found."""
    return parse_smaps(Path(f"/proc/{pid}/smaps").read_text(), given)


def parse_smaps(text: str, given: int) -> dict[str, float]:
    """The same from the text of /proc/PID/smaps."""
    own = whole = 0
    found = False
    for block in re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", text, flags=re.MULTILINE):
        size, share = (re.search(rf"^{name}:\s+(\d+) kB", block, re.MULTILINE) for name in ("Size", "Pss"))
        if size is None or share is None:
            continue
        whole += int(share[1])
        if int(size[1]) * 1024 == given and not found:
            own, found = int(share[1]), True
    if not found:
        raise ValueError(f"no mapping of {given} bytes is the guest's memory")
    return {"touched": own / 1024, "beyond": (whole - own) / 1024}


def figures(raw: list[dict[str, Any]]) -> list[Figure]:
    """The goals first; a goal is met where the whole interval is within it."""

    def of(name: str, unit: str, values: list[float], goal: float | None = None, words: str = "", note: str = "") -> Figure:
        found = mean_interval(values)
        return Figure.of(name, unit, found, words, None if goal is None else outcome.met(found, most=goal), note)

    one, watched = [row for row in raw if "seconds" in row], [row for row in raw if "together" in row]
    ways = {"kvm": "by KVM", "tcg": "emulated processor (TCG)"}
    by = ways[one[0]["accelerator"]]
    made = [
        of("template to first answer", "s", [row["seconds"]["ready"] for row in one], SECONDS_TO_READY, "≤ 15 s", by),
        of("root image made again", "s", [row["image"] for row in one], SECONDS_TO_IMAGE, "≤ 5 s"),
        of("idle guest, beyond its memory", "MB", [row["beyond"] for row in one], MEGABYTES_BEYOND, "≤ 120 MB", by),
    ]
    if watched:
        guests, unit = f"{watched[0]['together']} guests", "% of a core"
        goal = 100 * CORES_WATCHING if watched[0]["together"] == GUESTS else None
        both, manager = ([100 * row[side] for row in watched] for side in ("both", "manager"))
        note = f"pgherd's own CPU; {ways[watched[0]['accelerator']]}"
        made.append(of(f"manager and samplers, {guests}", unit, both, goal, "" if goal is None else "≤ 1 %", note))
        made.append(of(f"manager alone, {guests}", unit, manager))
    made.append(of("idle guest, of its memory", "MB", [row["touched"] for row in one], note="of 512 MB"))
    for part in ("packing the disk", "booting", "first answer of the agent", "starting the server"):
        made.append(of(part, "s", [row["seconds"][part] for row in one]))
    return made


if __name__ == "__main__":
    outcome.run(main)
