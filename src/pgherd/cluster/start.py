"""Start a cluster over SSH, see how it stands, and stop it.

A cluster is a scheduler here and an agent on each host, all with certificates of an authority made for this cluster alone. What is
started is written down before it is needed, so that ``stop`` finds it after whatever went wrong.
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
from pgherd.cluster import address, certificates, packing, record, scheduler_process, versions
from pgherd.cluster.labels import text as label_text
from pgherd.cluster.record import AgentRecord, ClusterRecord
from pgherd.cluster.ssh import Ssh, joined_name
from pgherd.host import processes
from pgherd.model.errors import CapabilityError, PgherdError, TrialError, UsageError
from pgherd.node.local import LocalNode

AT_ONCE = 32
"""Hosts that are started or stopped at the same time."""
_SCHEDULER = 30.0
_JOIN = 60.0
_INSTALL = 900.0
"""Seconds in which a host neither takes what is sent nor has done with it."""
_STOP = 150.0
_AUTHORITY_KEY = "authority.key"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What ``cluster start`` was asked for. ``listen``: the scheduler's address here, None for the one on the way to the hosts; ``port``
    0 for any. ``private`` installs pgherd anew on every host although the driver's own environment is there. ``labels``: those of hosts, by
    the names under which they join; they add to those with which a host was started, and replace those of the same key."""

    name: str
    hosts: tuple[str, ...]
    ssh: Ssh = field(default_factory=Ssh)
    listen: str | None = None
    port: int = 0
    private: bool = False
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def start(wanted: Wanted, say: Say) -> ClusterRecord:
    """Start a cluster, or those of its agents that are gone; returns once all have joined.

    Raises PgherdError when any host cannot be started; then nothing that was started for it is left.
    """
    versions.require_extra()
    address.check_name(wanted.name)
    known = record.load(wanted.name)
    fresh = known is None
    if known is None:
        known = _begin(wanted, say)
    else:
        _check_same(known, wanted)
    try:
        known = _start_agents(known, wanted, say)
        _wait_until_joined(known)
    except BaseException:
        if fresh:
            say("taking back what was started")
            stop(wanted.name, lambda sentence: None)
        raise
    return known


def stop(name: str, say: Say, *, forget: bool = False) -> list[str]:
    """End the agents, each of which stops what it runs, then the scheduler. Returns the hosts that could not be reached.

    These stay written down, unless they are to be forgotten. Raises UsageError when there is no such cluster.
    """
    known = record.load(name)
    if known is None:
        raise UsageError(f"no cluster called '{name}' has been started here; 'pgherd cluster status' tells which are")
    ssh = Ssh(known.ssh_config)

    def one(agent: AgentRecord) -> str | None:
        orders = {"action": "stop", "directory": agent.directory, "python": agent.python}
        try:
            how = ssh.run(agent.name, orders, timeout=_STOP)["how"]
        except PgherdError as error:
            say(f"{agent.name}: not stopped: {error}")
            return agent.name
        say(f"{agent.name}: {how}")
        return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        left = [host for host in pool.map(one, known.hosts) if host is not None]
    _end_scheduler(known)
    if left and not forget:
        record.save(known.model_copy(update={"hosts": tuple(agent for agent in known.hosts if agent.name in left)}))
    else:
        record.drop(name)
    return left


def scheduler_lives(known: ClusterRecord) -> bool:
    """Whether the scheduler's process is there (on this machine: clusters are written down where they were started)."""
    return processes.start_time(LocalNode(), known.pid) == known.start


def _begin(wanted: Wanted, say: Say) -> ClusterRecord:
    """Certificates and the scheduler."""
    directory = record.make_directory(wanted.name)
    authority = certificates.authority(wanted.name)
    certificates.write_private(directory / _AUTHORITY_KEY, authority.key)
    certificates.write_private(directory / certificates.AUTHORITY, authority.certificate)
    certificates.write_private(directory / certificates.MEMBER, authority.issue("driver"))
    listen = wanted.listen or _own_address(wanted)
    try:
        pid, start_time, where = _start_scheduler(directory, listen, wanted.port)
    except BaseException:
        record.drop(wanted.name)
        raise
    say(f"the scheduler listens at {where}")
    identity = uuid.uuid4().hex[:12]
    known = ClusterRecord(name=wanted.name, id=identity, address=where, pid=pid, start=start_time, ssh_config=wanted.ssh.config)
    record.save(known)
    return known


def _own_address(wanted: Wanted) -> str:
    """This machine's address on the way to the hosts (no packet is sent)."""
    found = []
    for host in wanted.hosts:
        name = wanted.ssh.address(host)
        try:
            family, kind, _, _, where = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, kind) as probe:
                probe.connect(where)
                found.append(str(probe.getsockname()[0]))
        except OSError as error:
            raise UsageError(f"no way to host {host} ({name}): {error}; name this machine's address for the hosts with --listen") from error
    return next((one for one in found if not address.is_loopback(one)), found[0])


def _start_scheduler(directory: Path, listen: str, port: int) -> tuple[int, int, str]:
    """Its pid, start time and address. Raises CapabilityError with what it said when it does not come up."""
    told = directory / scheduler_process.ADDRESS
    told.unlink(missing_ok=True)
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
        if not processes.wait_until(lambda: told.exists() or process.poll() is not None, _SCHEDULER) or not told.exists():
            said = (directory / "scheduler.log").read_text(errors="replace").strip().splitlines()
            raise CapabilityError(f"the scheduler does not start at {listen}: {said[-1] if said else 'it says nothing'}")
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process.pid, start_time, told.read_text(encoding="utf-8").strip()


def _end_scheduler(known: ClusterRecord) -> None:
    if not scheduler_lives(known):
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(known.pid, signal.SIGTERM)
    if not processes.wait_until(lambda: not scheduler_lives(known), 10):
        with contextlib.suppress(ProcessLookupError):
            os.kill(known.pid, signal.SIGKILL)


def _check_same(known: ClusterRecord, wanted: Wanted) -> None:
    """Insist that what runs is what is wanted: then only what is missing is started."""
    stop_first = f"stop it first: 'pgherd cluster stop --name {known.name}'"
    if not scheduler_lives(known):
        raise UsageError(f"cluster '{known.name}' was started, but its scheduler has ended; {stop_first}")
    have = tuple(agent.name for agent in known.hosts)
    if known.hosts and set(have) != set(wanted.hosts):
        raise UsageError(f"cluster '{known.name}' runs on {', '.join(have)}, not on {', '.join(wanted.hosts)}; {stop_first}")


def _start_agents(known: ClusterRecord, wanted: Wanted, say: Say) -> ClusterRecord:
    directory = record.directory(known.name)
    authority = certificates.Authority(
        (directory / certificates.AUTHORITY).read_text(encoding="utf-8"), (directory / _AUTHORITY_KEY).read_text(encoding="utf-8")
    )
    requirements = packing.requirements()
    orders = {
        "action": "start",
        "cluster": known.id,
        "same": sys.executable,
        "version": __version__,
        "python": versions.software()["Python"],
        "private": wanted.private,
        "key": packing.key(requirements),
        "digest": versions.digest(),
        "requirements": requirements,
        "proof": packing.COMPILED,
    }
    package, libraries = _Once(packing.archive), _Once(packing.libraries)
    began = {agent.name: agent for agent in known.hosts}
    noting = threading.Lock()

    def one(host: str) -> AgentRecord:
        name = joined_name(host)
        before = began.get(host)
        given = wanted.labels.get(name, {})
        labels = {**(before.labels if before is not None else {}), **given}
        agent = json.dumps({"scheduler": known.address, "host": name, "labels": labels})
        files = {"agent.json": agent, certificates.AUTHORITY: authority.certificate, certificates.MEMBER: authority.issue(name)}
        answer = wanted.ssh.run(host, {**orders, "host": host, "files": files})
        if answer.get("need") == "package":
            lent = libraries() if answer["kind"] == packing.kind() else b""
            what = "" if answer["kind"] is None else " with the libraries of this machine" if lent else "; pip gets the libraries there"
            say(f"{host}: installing pgherd {__version__} there{what}")
            sent = {"package": len(package()), "libraries": len(lent)}
            answer = wanted.ssh.run(host, {**orders, **sent, "host": host, "files": files}, package(), lent, timeout=_INSTALL)
        if not answer.get("was"):
            say(f"{host}: its agent has started (pid {answer['pid']})")
        else:  # its own labels count, not the record's: a driver that was killed may have written none
            labels = dict(answer["labels"])
        told = {key: answer[key] for key in ("pid", "start", "directory", "python")}
        started = AgentRecord(name=host, labels=labels, **told)
        with noting:  # at once, not when its turn comes: 'stop' must find it whatever happens to the others
            began[host] = started
            record.save(_with_agents(known, wanted, began))
        if (asked := {**labels, **given}) != labels:
            raise UsageError(
                f"the agent of host {host} runs with {_said(labels)}, not with {_said(asked)}; "
                f"stop it first: 'pgherd cluster stop --name {known.name}'"
            )
        return started

    failures: list[Exception] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for future in [pool.submit(one, host) for host in wanted.hosts]:
            try:
                future.result()
            except (PgherdError, OSError) as error:
                failures.append(error)
    if failures:
        raise failures[0]
    return _with_agents(known, wanted, began)


def _said(labels: Mapping[str, str]) -> str:
    return f"the labels {text}" if (text := label_text(labels)) else "no labels"


def _with_agents(known: ClusterRecord, wanted: Wanted, began: Mapping[str, AgentRecord]) -> ClusterRecord:
    hosts = tuple(began[name] for name in wanted.hosts if name in began)
    return known.model_copy(update={"hosts": hosts, "private": known.private or wanted.private})


def _wait_until_joined(known: ClusterRecord) -> None:
    """Raises TrialError with the log of an agent that does not join, UsageError when two names mean one machine."""
    from pgherd.cluster import engine

    deadline = time.monotonic() + _JOIN
    with engine.connect(known.name, hold=False) as joined:
        while True:
            there = joined.joined()
            missing = [agent for agent in known.hosts if joined_name(agent.name) not in there]
            if not missing:
                break
            if time.monotonic() > deadline:
                raise TrialError(f"host {missing[0].name} does not join the cluster within {_JOIN:.0f} s; {_log_of(known, missing[0])}")
            time.sleep(0.2)
    by_address: dict[str, list[str]] = {}
    for host, where in there.items():
        by_address.setdefault(where, []).append(host)
    same = next((hosts for hosts in by_address.values() if len(hosts) > 1), None)
    if same:
        raise UsageError(f"{' and '.join(same)} are one machine; name it once")


def _log_of(known: ClusterRecord, agent: AgentRecord) -> str:
    try:
        return f"its agent says:\n{Ssh(known.ssh_config).run(agent.name, {'action': 'log', 'directory': agent.directory})['log']}"
    except PgherdError as error:
        return f"and its log cannot be read: {error}"


class _Once:
    """A value that is made when it is first asked for, by whichever thread."""

    def __init__(self, make: Callable[[], bytes]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._value: bytes | None = None

    def __call__(self) -> bytes:
        with self._lock:
            if self._value is None:
                self._value = self._make()
            return self._value
