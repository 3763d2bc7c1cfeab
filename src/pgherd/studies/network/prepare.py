"""Completing a network request: iperf3, where to, and whether somebody answers there."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Mapping, Sequence

from pgherd.drivers.iperf3 import MOST_STREAMS, read_report
from pgherd.host import namespaces, paths
from pgherd.host.account import server_account
from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.model.deployment import Host, Link
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import Surroundings
from pgherd.model.units import parse_bytes, parse_seconds
from pgherd.node.protocol import CANNOT_RUN, Command, Node
from pgherd.prepare import host_share
from pgherd.prepare.merge_hosts import versions_text
from pgherd.prepare.prepared_study import Prepared, thresholds
from pgherd.runner.deploy.targets import refusal
from pgherd.studies.network.options import NetworkOptions, NetworkRequest

PORT = 5201
"""iperf3's own."""
MEMORY = 128 * 2**20
"""What iperf3 and the sockets' buffers take."""
_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def prepare(node: Node, asked: NetworkRequest, dry: bool) -> Prepared:
    """Complete a network request for this host; see ``runner.catalogue.prepare`` for what it raises."""
    limits = thresholds(asked.threshold)
    version = _iperf3(node)
    links = _links(asked)
    facts = gather(node)
    account = server_account(asked.run_as)
    cores = host_share.cores_of(asked.host_cores, facts)
    if asked.netns:
        _insist_namespaces(node, links[-1], dry)
    options = NetworkOptions(
        links=links,
        streams=asked.streams,
        reverse=asked.reverse,
        window=None if asked.window is None else parse_bytes(asked.window),
        congestion=_congestion(node, asked.congestion),
        iperf3_version=version,
        cores=cores,
        repeats=asked.repeats or NetworkOptions.model_fields["repeats"].default,
        seconds=parse_seconds(asked.duration or "6s"),
        ramp=parse_seconds(asked.warmup or "0s"),
        budget_seconds=parse_seconds(asked.time_budget) if asked.time_budget else None,
        seed=asked.seed if asked.seed is not None else random.randrange(2**31),
        thresholds=limits,
    )
    if options.seconds < 2:
        raise UsageError(f"--duration {asked.duration}: iperf3 counts by seconds; give 2 s or more")
    for link in links:
        if link.kind == "remote" and not dry:
            _try(node, link)
    return Prepared(
        study="network",
        options=options,
        surroundings=Surroundings(runtime="process", run_as=account, cores=cores, memory=min(facts.memory, MEMORY)),
        thresholds=limits,
        facts=facts,
        installation=None,
        choices=tuple(_choices(options)),
        settings=(),
        host_changes=_changes(asked),
        disk=0,
        memory=MEMORY,
        tools={"iperf3": version},
    )


def over_hosts(options: Mapping[str, NetworkOptions]) -> NetworkOptions:
    """The options of a run between the hosts of a cluster, each of which has completed them for itself: host → options."""
    first = next(iter(options.values()))
    version = versions_text({host: one.iperf3_version for host, one in options.items()})
    return first.model_copy(update={"iperf3_version": version, "cores": min(one.cores for one in options.values())})


def _changes(asked: NetworkRequest) -> tuple[str, ...]:
    if asked.over:
        return (f"iperf3's server on port {asked.port or PORT} of the host's address in the cluster, in trials that send to it alone",)
    return ("two network namespaces with a pair of virtual cards, held by processes of pgherd's",) if asked.netns else ()


def _between(asked: NetworkRequest) -> tuple[Link, ...]:
    """A link from every host of the cluster to every other.

    Raises:
        UsageError: there is but one host, or something is asked for that a cluster does not have.
        CapabilityError: no server can listen at this host's address.
    """
    for said, given in (("--to", asked.to), ("--netns", asked.netns), ("--reverse", asked.reverse)):
        if given:
            raise UsageError(f"{said} with --cluster: it measures from every host of the cluster to every other; leave {said} out")
    ends = asked.over  # those of ``between`` alone, where it names any
    if len(ends) < 2:
        one = "--hosts names" if asked.hosts else "the cluster has"
        raise UsageError(f"{one} one host, {ends[0].name}: there is no link to measure; --to names a host outside of a cluster")
    port = asked.port or PORT
    _insist_listening(asked.over, port)
    return tuple(
        Link(name=far.name, kind="hosts", near=near.name, host=far.address or far.name, port=port)
        for near in ends
        for far in ends
        if near != far
    )


def _insist_listening(hosts: Sequence[Host], port: int) -> None:
    """That a server can listen at this host's own address, which is whichever of the hosts' can be had here."""
    refused = {address: refusal(address, port) for address in (host.address or host.name for host in hosts)}
    if not all(refused.values()):
        return
    taken = next((address for address, error in refused.items() if error is not None and error.errno == errno.EADDRINUSE), None)
    if taken is not None:
        raise UsageError(f"something listens at {taken} port {port} already, where iperf3's server would; --port names another port")
    said = "; ".join(f"{address}: {error}" for address, error in refused.items())
    raise CapabilityError(f"iperf3's server can listen at none of the addresses by which the cluster knows its hosts ({said})")


def _iperf3(node: Node) -> str:
    missing = CapabilityError("iperf3 is not installed, which makes the load; install the package iperf3 (apt-get install iperf3)")
    try:
        told = node.run(Command(["iperf3", "--version"]))
    except OSError:
        raise missing from None
    if told.code in CANNOT_RUN:
        raise missing
    found = re.search(r"iperf (\d+\.\d+\S*)", told.out)
    if told.code != 0 or not found:
        raise CapabilityError(f"iperf3 does not run: {(told.err or told.out).strip()[:200]}")
    return found[1]


def _links(asked: NetworkRequest) -> tuple[Link, ...]:
    if not asked.netns and (asked.netns_rate is not None or asked.netns_delay is not None):
        raise UsageError(
            "--netns-rate and --netns-delay shape the link between namespaces, and --netns is not given; pgherd shapes no other link"
        )
    if asked.over:
        return _between(asked)
    if asked.port is not None:
        raise UsageError(f"--port {asked.port} is that of the servers on a cluster's hosts; for another's write --to HOST:PORT")
    if asked.hosts:
        raise UsageError(f"--hosts {','.join(asked.hosts)} names hosts of a cluster, and --cluster is not given")
    if not asked.to and not asked.netns:
        raise UsageError(
            "there is nothing to measure to: give --to HOST, where 'iperf3 --server' runs, --cluster for all pairs of its hosts, or "
            "--netns for two ends on this host"
        )
    links = [_remote(word) for word in asked.to]
    twice = sorted({link.name for link in links if sum(other.name == link.name for other in links) > 1})
    if twice:
        raise UsageError(f"--to names {', '.join(twice)} more than once")
    if asked.netns:
        delay = None if asked.netns_delay is None else 1000 * parse_seconds(asked.netns_delay)
        if delay is not None and not 0.01 <= delay <= 10000:
            raise UsageError(f"--netns-delay {asked.netns_delay}: give a time between 0.01ms and 10s, such as 5ms")
        links.append(
            Link(name="namespaces", kind="namespaces", rate=None if asked.netns_rate is None else parse_bits(asked.netns_rate), delay=delay)
        )
    return tuple(links)


def _remote(word: str) -> Link:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.%]+\]|[A-Za-z0-9_.-]+|[0-9a-fA-F]*:[0-9a-fA-F:.]+)(?::(\d{1,5}))?", word)
    port = int(match[2] or PORT) if match else 0
    if not match or not 1 <= port <= 65535 or match[1].startswith("-"):
        raise UsageError(f"--to {word}: write HOST or HOST:PORT, an IPv6 address in brackets, such as db2:5201 or [fd00::2]:5201")
    host = match[1].strip("[]")
    name = re.sub(r"[^A-Za-z0-9_.:-]", "_", host if port == PORT else f"{host}:{port}")
    return Link(name=name if name[0].isalnum() else f"h{name}", host=host, port=port)


def parse_bits(text: str) -> float:
    """Read ``200M`` or ``1.5 Gbit/s``: bits per second, with decimal prefixes as networks have them.

    Raises:
        UsageError: the text is not a rate.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:bits?(?:/s)?|bps)?\s*", text.lower())
    if not match or float(match[1]) <= 0:
        raise UsageError(f"'{text}' is not a rate in bits per second; write a number and a unit, such as 200M or 10G")
    return float(match[1]) * _BITS[match[2]]


def _congestion(node: Node, asked: str | None) -> str | None:
    if asked is None:
        return None
    known = node.read("/proc/sys/net/ipv4/tcp_available_congestion_control").decode().split()
    if asked not in known:
        raise UsageError(f"--congestion {asked}: this kernel has {', '.join(known)}")
    return asked


def _insist_namespaces(node: Node, link: Link, dry: bool) -> None:
    namespaces.insist(node)
    if dry or (link.rate is None and link.delay is None):
        return
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        namespaces.require_shaping(node, journal, rate=link.rate, delay=link.delay)
    finally:
        journal.close()


def _try(node: Node, link: Link) -> None:
    """A second of iperf3 at a trickle: whoever does not answer now will not later."""
    argv = ["iperf3", "--client", link.host, "--port", str(link.port), "--time", "1", "--bitrate", "100k"]
    argv += ["--connect-timeout", "5000", "--json"]
    try:
        told = node.run(Command(argv), timeout=30)
        read_report({"stdout": told.out, "stderr": told.err})
    except (ValueError, TimeoutError) as error:
        raise UsageError(
            f"--to {link.host}: no iperf3 server serves us at port {link.port} ({error}); "
            f"start one there: iperf3 --server --port {link.port}"
        ) from None


def _choices(options: NetworkOptions) -> list[str]:
    sender = "the first host of a link" if options.hosts else "the far end" if options.reverse else "this host"
    said = [f"iperf3 {options.iperf3_version}; {sender} sends."]
    said += [f"Link {link.name} is {_shape(link)}." for link in options.links if link.kind == "namespaces"]
    if max(options.streams) > MOST_STREAMS // 2:
        said.append(f"Warning: {max(options.streams)} streams are near the most that iperf3 takes ({MOST_STREAMS}).")
    return said


def _shape(link: Link) -> str:
    parts = ["between two network namespaces of this host"]
    parts += [f"limited to {link.rate / 1e6:g} Mbit/s"] if link.rate is not None else []
    parts += [f"held up by {link.delay:g} ms each way"] if link.delay is not None else []
    return ", ".join(parts)
