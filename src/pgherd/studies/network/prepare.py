"""Completion of a network request: iperf3, the links, and the checks of their far ends."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Mapping, Sequence

from pgherd.drivers.iperf3 import MAX_STREAMS, read_report
from pgherd.host import netns, paths
from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.host.server_user import server_account
from pgherd.model.deployment import Host, Link
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import RunEnvironment
from pgherd.node.protocol import CANNOT_RUN, Command, Node
from pgherd.prepare import hosts
from pgherd.prepare.merge import versions_text
from pgherd.prepare.prepared_study import PreparedStudy, thresholds
from pgherd.runner.deploy.targets import refusal
from pgherd.studies.network.options import NetworkOptions, NetworkRequest
from pgherd.studies.network.study import STUDY
from pgherd.study.study import StudyCapability

PORT = 5201
"""Default port of iperf3."""
MEMORY = 128 * 2**20
"""Memory in bytes of iperf3 and of the socket buffers."""
_BITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def capability(node: Node, facts: HostFacts) -> StudyCapability:
    """Check links to other hosts, and network namespaces."""
    try:
        _iperf3(node)
    except CapabilityError as error:
        return StudyCapability(STUDY.name, "unavailable", STUDY.capability, str(error))
    try:
        netns.require_root(node)
    except CapabilityError as error:
        return StudyCapability(STUDY.name, "limited", "links to hosts that run 'iperf3 --server'", str(error))
    return StudyCapability(STUDY.name, "available", "links to hosts that run 'iperf3 --server', and between network namespaces")


def prepare(node: Node, request: NetworkRequest, dry: bool) -> PreparedStudy:
    """Complete a network request for this host; see ``prepare.prepared_study.prepare`` for what it raises."""
    limits = thresholds(request.threshold)
    version = _iperf3(node)
    links = _links(request)
    facts = gather(node)
    account = server_account(request.run_as)
    cores = hosts.cores_of(request.host_cores, facts)
    if request.netns:
        _require_namespaces(node, links[-1], dry)
    options = NetworkOptions(
        links=links,
        streams=request.streams,
        reverse=request.reverse,
        window=request.window,
        congestion=_congestion(node, request.congestion),
        iperf3_version=version,
        host_cores=cores,
        repeats=request.planned_repeats(NetworkOptions.model_fields["repeats"].default),
        fixed_repeats=request.repeats is not None,
        duration=6.0 if request.duration is None else request.duration,
        warmup=request.warmup or 0.0,
        time_budget=request.time_budget,
        seed=request.seed if request.seed is not None else random.randrange(2**31),
        thresholds=limits,
    )
    if options.duration < 2:
        raise UsageError(f"--duration {request.duration}: iperf3 reports once per second; give 2 s or more")
    for link in links:
        if link.kind == "remote" and not dry:
            _try(node, link)
    return PreparedStudy(
        study="network",
        options=options,
        environment=RunEnvironment(runtime="process", run_as=account, cores=cores, memory=min(facts.memory, MEMORY)),
        thresholds=limits,
        facts=facts,
        installation=None,
        defaults_chosen=tuple(_choices(options)),
        settings=(),
        host_changes=_changes(request),
        disk=0,
        memory=MEMORY,
        tools={"iperf3": version},
    )


def over_hosts(options: Mapping[str, NetworkOptions]) -> NetworkOptions:
    """Merge the options that the hosts of a cluster completed. ``options`` maps each host to its options."""
    first = next(iter(options.values()))
    version = versions_text({host: host_options.iperf3_version for host, host_options in options.items()})
    return first.model_copy(
        update={"iperf3_version": version, "host_cores": min(host_options.host_cores for host_options in options.values())}
    )


def _changes(request: NetworkRequest) -> tuple[str, ...]:
    if request.over:
        return (f"an iperf3 server on port {request.port or PORT} of the host's cluster address, in trials that send to this host",)
    return ("two network namespaces with a pair of virtual interfaces, held by processes of pgherd",) if request.netns else ()


def _between(request: NetworkRequest) -> tuple[Link, ...]:
    """Return a link from every host of the cluster to every other.

    Raises:
        UsageError: there is only one host, or an option does not apply to a cluster.
        CapabilityError: iperf3 cannot listen at this host's cluster address.
    """
    for option, value in (("--to", request.to), ("--netns", request.netns), ("--reverse", request.reverse)):
        if value:
            raise UsageError(f"{option} does not apply with --cluster, which measures between all pairs of hosts; leave {option} out")
    ends = request.over  # only the hosts that --hosts names, if it is given
    if len(ends) < 2:
        source = "--hosts names" if request.hosts else "the cluster has"
        raise UsageError(f"{source} only one host, {ends[0].name}, and a link needs two; add a host, or give --to HOST without --cluster")
    port = request.port or PORT
    _require_listening(request.over, port)
    return tuple(
        Link(name=far.name, kind="hosts", near=near.name, host=far.address or far.name, port=port)
        for near in ends
        for far in ends
        if near != far
    )


def _require_listening(hosts: Sequence[Host], port: int) -> None:
    """Require that an iperf3 server can listen at one of the cluster's addresses, which is then the address of this host."""
    refused = {address: refusal(address, port) for address in (host.address or host.name for host in hosts)}
    if not all(refused.values()):
        return
    taken = next((address for address, error in refused.items() if error is not None and error.errno == errno.EADDRINUSE), None)
    if taken is not None:
        raise UsageError(f"port {port} of {taken} is in use, and the iperf3 server needs it; choose another port with --port")
    reasons = "; ".join(f"{address}: {error}" for address, error in refused.items())
    raise CapabilityError(f"the iperf3 server cannot listen at any address of the cluster's hosts ({reasons}); check the cluster file")


def _iperf3(node: Node) -> str:
    missing = CapabilityError("iperf3 is not installed, and this study needs it; install the package iperf3 (apt-get install iperf3)")
    try:
        result = node.run(Command(["iperf3", "--version"]))
    except OSError:
        raise missing from None
    if result.code in CANNOT_RUN:
        raise missing
    version = re.search(r"iperf (\d+\.\d+\S*)", result.out)
    if result.code != 0 or not version:
        raise CapabilityError(f"iperf3 does not run: {(result.err or result.out).strip()[:200]}")
    return version[1]


def _links(request: NetworkRequest) -> tuple[Link, ...]:
    if not request.netns and (request.netns_rate is not None or request.netns_delay is not None):
        raise UsageError("--netns-rate and --netns-delay apply only to the link between namespaces; add --netns, or leave them out")
    if request.over:
        return _between(request)
    if request.port is not None:
        raise UsageError(f"--port {request.port} applies only to the hosts of a cluster; for another host give --to HOST:PORT")
    if request.hosts:
        raise UsageError(f"--hosts {','.join(request.hosts)} names hosts of a cluster, but --cluster is not given; add it, or use --to")
    if not request.to and not request.netns:
        raise UsageError(
            "there is no link to measure; give --to HOST, where 'iperf3 --server' runs, --cluster for all pairs of its hosts, or --netns "
            "for two ends on this host"
        )
    links = [_remote(word) for word in request.to]
    twice = sorted({link.name for link in links if sum(other.name == link.name for other in links) > 1})
    if twice:
        raise UsageError(f"--to names {', '.join(twice)} more than once; give each host once")
    if request.netns:
        delay = None if request.netns_delay is None else 1000 * request.netns_delay
        if delay is not None and not 0.01 <= delay <= 10000:
            raise UsageError(f"--netns-delay {request.netns_delay}: give a time between 0.01ms and 10s, such as 5ms")
        links.append(
            Link(
                name="namespaces",
                kind="namespaces",
                rate=None if request.netns_rate is None else parse_bits(request.netns_rate),
                delay=delay,
            )
        )
    return tuple(links)


def _remote(word: str) -> Link:
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+(?:%[\w.-]+)?\]|[A-Za-z0-9_.-]+|[0-9a-fA-F]*:[0-9a-fA-F:.]+(?:%[\w.-]+)?)(?::(\d{1,5}))?", word)
    port = int(match[2] or PORT) if match else 0
    if not match or not 1 <= port <= 65535 or match[1].startswith("-"):
        raise UsageError(f"--to {word}: write HOST or HOST:PORT, an IPv6 address in brackets, such as db2:5201 or [fd00::2]:5201")
    host = match[1].strip("[]")
    name = re.sub(r"[^A-Za-z0-9_.:-]", "_", host if port == PORT else f"{host}:{port}")
    return Link(name=name if name[0].isalnum() else f"h{name}", host=host, port=port)


def parse_bits(text: str) -> float:
    """Read a rate such as ``200M`` or ``1.5 Gbit/s`` in bits per second, with decimal prefixes.

    Raises:
        UsageError: the text is not a rate.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:bits?(?:/s)?|bps)?\s*", text.lower())
    if not match or float(match[1]) <= 0:
        raise UsageError(f"'{text}' is not a rate in bits per second; write a number and a unit, such as 200M or 10G")
    return float(match[1]) * _BITS[match[2]]


def _congestion(node: Node, request: str | None) -> str | None:
    if request is None:
        return None
    known = node.read("/proc/sys/net/ipv4/tcp_available_congestion_control").decode().split()
    if request not in known:
        raise UsageError(f"--congestion {request}: the kernel does not have this algorithm; use one of {', '.join(known)}")
    return request


def _require_namespaces(node: Node, link: Link, dry: bool) -> None:
    netns.require_root(node)
    if dry or (link.rate is None and link.delay is None):
        return
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        netns.require_shaping(node, journal, rate=link.rate, delay=link.delay)
    finally:
        journal.close()


def _try(node: Node, link: Link) -> None:
    """Require that the far end of a link answers, with one second of iperf3 at a low rate. Raises UsageError if it does not."""
    argv = ["iperf3", "--client", link.host, "--port", str(link.port), "--time", "1", "--bitrate", "100k"]
    argv += ["--connect-timeout", "5000", "--json"]
    try:
        result = node.run(Command(argv), timeout=30)
        read_report({"stdout": result.out, "stderr": result.err})
    except (ValueError, TimeoutError) as error:
        raise UsageError(
            f"--to {link.host}: no iperf3 server answers at port {link.port} ({error}); "
            f"start one on that host: iperf3 --server --port {link.port}"
        ) from None


def _choices(options: NetworkOptions) -> list[str]:
    sender = "the first host of a link" if options.hosts else "the far end" if options.reverse else "this host"
    choices = [f"iperf3 {options.iperf3_version}; {sender} sends."]
    choices += [f"Link {link.name} is {_shape(link)}." for link in options.links if link.kind == "namespaces"]
    if max(options.streams) > MAX_STREAMS // 2:
        choices.append(f"Warning: {max(options.streams)} streams are close to the maximum of iperf3 ({MAX_STREAMS}).")
    return choices


def _shape(link: Link) -> str:
    parts = ["between two network namespaces of this host"]
    parts += [f"limited to {link.rate / 1e6:g} Mbit/s"] if link.rate is not None else []
    parts += [f"delayed by {link.delay:g} ms each way"] if link.delay is not None else []
    return ", ".join(parts)
