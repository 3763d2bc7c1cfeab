"""A trial of iperf3 on a link as a shell script that repeats it with nothing but iperf3 (and iproute2 for namespaces)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import ceil

from pgherd.drivers import iperf3
from pgherd.drivers.driver import Endpoint
from pgherd.host.namespaces import BURST, CARDS, FAR, NEAR, PREFIX_LENGTH
from pgherd.model.deployment import Link
from pgherd.model.errors import UsageError
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord


def script(result: TrialResult, record: RunRecord) -> str:
    """The script for one trial whose one load is iperf3's on a link. It prints iperf3's own report in words.

    Raises:
        UsageError: the trial has several phases or loads.
    """
    if len(result.trial.phases) != 1 or len(result.trial.phases[0].loads) != 1:
        raise UsageError(f"trial {result.id} cannot be repeated by a script: it loads several links, or in several phases")
    return "\n".join(_lines(result, record)) + "\n"


def _lines(result: TrialResult, record: RunRecord) -> Iterator[str]:
    phase = result.trial.phases[0]
    (target, load), *_ = phase.loads.items()
    link = next(one for one in result.trial.deployment.links if one.target == target)
    host = FAR if link.kind == "namespaces" else link.host
    endpoint = Endpoint(target, "", host, link.port, "", "", "")
    argv = [word for word in iperf3.DRIVER.argv(load, endpoint, ceil(phase.ramp + phase.seconds)) if word != "--json"]
    # What pgherd leaves out as its ramp-up, iperf3 can leave out by itself.
    argv[argv.index("--time") + 1] = str(max(1, ceil(phase.seconds)))
    argv += ["--omit", str(ceil(phase.ramp))] if phase.ramp else []
    version = record.tools.get("iperf3", "of any version 3")
    yield "#!/bin/sh"
    yield _comment(f"Repeats trial {result.id} ({result.trial.key()}) of run {record.run} with nothing but iperf3 (it was {version}).")
    yield from (f"# {line}" for line in _told(result))
    yield "set -eu"
    if link.kind == "remote":
        yield _comment(f"'iperf3 --server --port {link.port}' must run on {link.host}.")
        yield shlex.join(argv)
        return
    if link.kind == "hosts":
        yield _comment(f"For host {link.near}. First, on host {link.name}: iperf3 --server --one-off --bind {link.host} --port {link.port}")
        yield shlex.join(argv)
        return
    yield "# As root: two network namespaces, held by two processes; they go with them."
    yield from _namespaces(link)
    yield f"nsenter --net=/proc/$near/ns/net -- {shlex.join(argv)}"


def _namespaces(link: Link) -> Iterator[str]:
    yield "server="
    yield "unshare --net sleep infinity & near=$!"
    yield "unshare --net sleep infinity & far=$!"
    yield "trap 'kill $near $far $server' EXIT"
    yield "sleep 0.5"
    yield 'near() { nsenter --net=/proc/$near/ns/net -- "$@"; }'
    yield 'far() { nsenter --net=/proc/$far/ns/net -- "$@"; }'
    yield f"ip link add {CARDS[0]} netns $near type veth peer name {CARDS[1]} netns $far"
    for name, card, address in (("near", CARDS[0], NEAR), ("far", CARDS[1], FAR)):
        yield f"{name} ip address add {address}/{PREFIX_LENGTH} dev {card}"
        yield f"{name} ip link set {card} up"
        if link.delay is not None:
            yield f"{name} tc qdisc add dev {card} root handle 1: netem delay {link.delay:g}ms limit 100000"
    if link.rate is not None:
        place = "root" if link.delay is None else "parent 1:"
        yield f"near tc qdisc add dev {CARDS[0]} {place} tbf rate {link.rate:.0f}bit burst {BURST} latency 50ms"
    yield f"nsenter --net=/proc/$far/ns/net -- iperf3 --server --bind {FAR} --port {link.port} >/dev/null 2>&1 & server=$!"
    yield "sleep 0.5"


def _told(result: TrialResult) -> Iterator[str]:
    for phase in result.phases:
        for target in phase.targets:
            speed = target.values.get("bits_per_second", 0.0)
            yield f"It measured {speed / 1e6:,.1f} Mbit/s on {target.target} over {phase.seconds:.2f} s."


def _comment(text: str) -> str:
    return "# " + "".join(c if c.isprintable() else " " for c in text)
