"""Start and stop of a cluster over SSH.

A cluster is a scheduler on this machine and an agent on each host, all with certificates of a private authority.
Each process is recorded right after its start, so that ``stop`` finds it after any failure.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pgherd import __version__
from pgherd.cluster import certificates, cluster_file, host_software, scheduler_address, scheduler_process
from pgherd.cluster.cluster_file import AgentRecord, ClusterRecord
from pgherd.cluster.labels import text as label_text
from pgherd.cluster.ssh import Ssh, joined_name
from pgherd.host import processes
from pgherd.model.errors import CapabilityError, PgherdError, TrialError, UsageError
from pgherd.node.local import LocalNode

AT_ONCE = 32
"""Hosts that are started or stopped at the same time."""
_SCHEDULER_START_S = 30.0
_JOIN_TIMEOUT_S = 60.0
_INSTALL_TIMEOUT_S = 900.0
"""Maximum silence of a host during an installation, in seconds."""
_STOP_TIMEOUT_S = 150.0
_AUTHORITY_KEY = "authority.key"

Say = Callable[[str], None]


@dataclass(frozen=True)
class StartRequest:
    """Request of ``cluster start``.

    ``listen`` is the scheduler's address; None means that on the route to the hosts. ``port`` 0 means any.
    ``private`` installs pgherd on every host, even if the driver's environment exists there. ``labels`` are by joined
    name. They add to those with which a host was started, and replace those of the same key.
    """

    name: str
    hosts: tuple[str, ...]
    ssh: Ssh = field(default_factory=Ssh)
    listen: str | None = None
    port: int = 0
    private: bool = False
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def start(wanted: StartRequest, say: Say) -> ClusterRecord:
    """Start a cluster, or its missing agents. Returns once all have joined.

    Raises PgherdError if any host cannot be started; a new cluster is then stopped again.
    """
    scheduler_address.check_name(wanted.name)
    known = cluster_file.load(wanted.name)
    fresh = known is None
    if known is None:
        known = _start_new(wanted, say)
    else:
        _require_same_hosts(known, wanted)
    try:
        known = _start_agents(known, wanted, say)
        _wait_until_joined(known)
    except BaseException:
        if fresh:
            say("stopping what was started")
            stop(wanted.name, lambda sentence: None)
        raise
    return known


def stop(name: str, say: Say, *, forget: bool = False) -> list[str]:
    """Stop the agents, each of which stops what it runs, then the scheduler. Return the hosts on which something is left.

    These could not be reached, or could not be cleaned. They stay recorded, unless ``forget``.

    Raises UsageError if there is no such cluster.
    """
    known = cluster_file.load(name)
    if known is None:
        names = ", ".join(cluster_file.names()) or "none"
        raise UsageError(f"no cluster called '{name}' has been started here (started: {names})")
    ssh = Ssh(known.ssh_config)

    def stop_agent(agent: AgentRecord) -> str | None:
        orders = {"action": "stop", "directory": agent.directory, "python": agent.python}
        try:
            answer = ssh.run(agent.name, orders, timeout=_STOP_TIMEOUT_S)
        except PgherdError as error:
            say(f"{agent.name}: not stopped: {error}")
            return agent.name
        say(f"{agent.name}: {answer['how']}")
        for sentence in answer.get("left", ()):
            say(f"{agent.name}: {sentence}")
        return agent.name if answer.get("left") else None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        unreached = [host for host in pool.map(stop_agent, known.hosts) if host is not None]
    _end_scheduler(known)
    if unreached and not forget:
        cluster_file.save(known.model_copy(update={"hosts": tuple(agent for agent in known.hosts if agent.name in unreached)}))
    else:
        cluster_file.drop(name)
    return unreached


def scheduler_lives(known: ClusterRecord) -> bool:
    """Return whether the scheduler's process runs. Clusters are recorded on the machine where they were started."""
    node = LocalNode()
    return processes.boot_id(node) == known.boot and processes.start_time(node, known.pid) == known.start


def _start_new(wanted: StartRequest, say: Say) -> ClusterRecord:
    """Create certificates and start the scheduler."""
    directory = cluster_file.make_directory(wanted.name)
    authority = certificates.authority(wanted.name)
    certificates.write_private(directory / _AUTHORITY_KEY, authority.key)
    certificates.write_private(directory / certificates.AUTHORITY, authority.certificate)
    certificates.write_private(directory / certificates.MEMBER, authority.issue("driver"))
    listen = wanted.listen or _local_address(wanted)
    try:
        pid, start_time, where = _start_scheduler(directory, listen, wanted.port)
    except BaseException:
        cluster_file.drop(wanted.name)
        raise
    say(f"the scheduler listens at {where}")
    identity = uuid.uuid4().hex[:12]
    boot = processes.boot_id(LocalNode())
    place = {"address": where, "pid": pid, "start": start_time, "boot": boot}
    known = ClusterRecord(name=wanted.name, id=identity, ssh_config=wanted.ssh.config, **place)
    cluster_file.save(known)
    return known


def _local_address(wanted: StartRequest) -> str:
    """Return this machine's address on the route to the hosts. No packet is sent."""
    local = []
    for host in wanted.hosts:
        name = wanted.ssh.address(host)
        try:
            family, kind, _, _, where = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(where)
                local.append(str(probe.getsockname()[0]))
        except OSError as error:
            raise UsageError(f"no route to host {host} ({name}): {error}; set this machine's address with --listen") from error
    return next((candidate for candidate in local if not scheduler_address.is_loopback(candidate)), local[0])


def _start_scheduler(directory: Path, listen: str, port: int) -> tuple[int, int, str]:
    """Return its pid, start time and address. Raises CapabilityError with the end of its log if it does not start."""
    address_file = directory / scheduler_process.ADDRESS
    address_file.unlink(missing_ok=True)
    with open(directory / "scheduler.log", "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-I", "-m", "pgherd.cluster.scheduler_process", str(directory), listen, str(port)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    start_time = processes.start_time(LocalNode(), process.pid) or 0
    try:
        if (
            not processes.wait_until(lambda: address_file.exists() or process.poll() is not None, _SCHEDULER_START_S)
            or not address_file.exists()
        ):
            log_lines = (directory / "scheduler.log").read_text(errors="replace").strip().splitlines()
            raise CapabilityError(f"the scheduler does not start at {listen}: {log_lines[-1] if log_lines else 'no output'}")
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process.pid, start_time, address_file.read_text(encoding="utf-8").strip()


def _end_scheduler(known: ClusterRecord) -> None:
    if not scheduler_lives(known):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(known.pid, signal.SIGTERM)
    if not processes.wait_until(lambda: not scheduler_lives(known), 10):
        with contextlib.suppress(ProcessLookupError):
            os.kill(known.pid, signal.SIGKILL)


def _require_same_hosts(known: ClusterRecord, wanted: StartRequest) -> None:
    """Require that the running cluster has the requested hosts. Then only missing agents are started."""
    stop_first = f"stop it first: 'pgherd cluster stop --name {known.name}'"
    if not scheduler_lives(known):
        raise UsageError(f"cluster '{known.name}' was started, but its scheduler has ended; {stop_first}")
    running = tuple(agent.name for agent in known.hosts)
    if known.hosts and set(running) != set(wanted.hosts):
        raise UsageError(f"cluster '{known.name}' runs on {', '.join(running)}, not on {', '.join(wanted.hosts)}; {stop_first}")


def _start_agents(known: ClusterRecord, wanted: StartRequest, say: Say) -> ClusterRecord:
    directory = cluster_file.directory(known.name)
    authority = certificates.Authority(
        (directory / certificates.AUTHORITY).read_text(encoding="utf-8"), (directory / _AUTHORITY_KEY).read_text(encoding="utf-8")
    )
    requirements = host_software.requirements()
    orders = {
        "action": "start",
        "cluster": known.id,
        "same": sys.executable,
        "version": __version__,
        "python": host_software.required_versions()["Python"],
        "private": wanted.private,
        "key": host_software.environment_key(requirements),
        "digest": host_software.digest(),
        "requirements": requirements,
        "proof": host_software.COMPILED,
    }
    package, libraries = Lazy(host_software.archive), Lazy(host_software.libraries)
    started_agents = {agent.name: agent for agent in known.hosts}
    record_lock = threading.Lock()

    def start_agent(host: str) -> AgentRecord:
        name = joined_name(host)
        previous = started_agents.get(host)
        requested = wanted.labels.get(name, {})
        labels = {**(previous.labels if previous is not None else {}), **requested}
        agent = json.dumps({"scheduler": known.address, "host": name, "labels": labels})
        files = {"agent.json": agent, certificates.AUTHORITY: authority.certificate, certificates.MEMBER: authority.issue(name)}
        answer = wanted.ssh.run(host, {**orders, "host": host, "files": files})
        if answer.get("need") == "package":
            library_files = libraries() if answer["kind"] == host_software.kind() else b""
            note = (
                ""
                if answer["kind"] is None
                else " with the libraries of this machine"
                if library_files
                else "; pip gets the libraries there"
            )
            say(f"{host}: installing pgherd {__version__} there{note}")
            sent = {"package": len(package()), "libraries": len(library_files)}
            answer = wanted.ssh.run(
                host, {**orders, **sent, "host": host, "files": files}, package(), library_files, timeout=_INSTALL_TIMEOUT_S
            )
        if not answer.get("was"):
            say(f"{host}: its agent has started (pid {answer['pid']})")
        else:  # its labels count, not the record's, which a killed driver may not have written
            labels = dict(answer["labels"])
        details = {key: answer[key] for key in ("pid", "start", "directory", "python")}
        started = AgentRecord(name=host, labels=labels, **details)
        with record_lock:  # immediately, because 'stop' must find it if other hosts fail
            started_agents[host] = started
            cluster_file.save(_with_agents(known, wanted, started_agents))
        if (expected := {**labels, **requested}) != labels:
            raise UsageError(
                f"the agent of host {host} runs with {_describe(labels)}, not with {_describe(expected)}; "
                f"stop it first: 'pgherd cluster stop --name {known.name}'"
            )
        return started

    failures: list[Exception] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(start_agent, host) for host in wanted.hosts]:
            try:
                future.result()
            except (PgherdError, OSError) as error:
                failures.append(error)
    if failures:
        raise failures[0]
    return _with_agents(known, wanted, started_agents)


def _describe(labels: Mapping[str, str]) -> str:
    return f"the labels {text}" if (text := label_text(labels)) else "no labels"


def _with_agents(known: ClusterRecord, wanted: StartRequest, agents: Mapping[str, AgentRecord]) -> ClusterRecord:
    hosts = tuple(agents[name] for name in wanted.hosts if name in agents)
    return known.model_copy(update={"hosts": hosts, "private": known.private or wanted.private})


def _wait_until_joined(known: ClusterRecord) -> None:
    """Raise TrialError with the log of an agent that does not join, UsageError if two names are one machine."""
    from pgherd.cluster import dask_client

    deadline = time.monotonic() + _JOIN_TIMEOUT_S
    with dask_client.connect(known.name, hold=False) as joined:
        while True:
            present = joined.joined()
            missing = [agent for agent in known.hosts if joined_name(agent.name) not in present]
            if not missing:
                break
            if time.monotonic() > deadline:
                raise TrialError(
                    f"host {missing[0].name} did not join the cluster within {_JOIN_TIMEOUT_S:.0f} s; {_log_of(known, missing[0])}"
                )
            time.sleep(0.2)
    by_address: dict[str, list[str]] = {}
    for host, host_address in present.items():
        by_address.setdefault(host_address, []).append(host)
    duplicates = next((hosts for hosts in by_address.values() if len(hosts) > 1), None)
    if duplicates:
        raise UsageError(f"{' and '.join(duplicates)} are one machine; give it once")


def _log_of(known: ClusterRecord, agent: AgentRecord) -> str:
    try:
        return f"log of its agent:\n{Ssh(known.ssh_config).run(agent.name, {'action': 'log', 'directory': agent.directory})['log']}"
    except PgherdError as error:
        return f"and its log cannot be read: {error}"


class Lazy:
    """Value that is created at its first use, by any thread."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._value: bytes | None = None

    def __call__(self) -> bytes:
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value
