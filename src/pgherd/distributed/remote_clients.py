"""Drivers on another host than their server: access that the server's host provides, and endpoints for the clients'
host.

Connections use TCP with TLS 1.3 and scram-sha-256. The certificate authority and the password are created for one run
on one host, and go to the clients' host by the cluster's channel. So a driver that trusts only that authority
connects to that host and to no other.
"""

from __future__ import annotations

import os
import pwd
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.cluster import certificates
from pgherd.metrics.sampler import SamplingView
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.load import Script
from pgherd.model.trial import Trial
from pgherd.postgres import settings_validation, tcp_access
from pgherd.postgres.installations import Installation
from pgherd.postgres.tcp_access import TcpAccess, TcpListener
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.deploy.targets import NO_CONTAINER, TargetEndpoint, TargetResolver
from pgherd.runner.session import RunSession
from pgherd.runtimes.runtime import ContainerHandle


@dataclass(frozen=True)
class RemoteEndpoint:
    """Endpoint of one database for another host. ``bin`` is the installation as trials name it, ``authority`` is PEM."""

    bin: str
    host: str
    port: int
    database: str
    user: str
    scale: int
    authority: str
    password: str = field(repr=False)


class ServerAccess:
    """Access to the servers of a host. All its servers of a run share one certificate and one password."""

    def __init__(self, session: RunSession, address: str) -> None:
        """Create certificate and password. Raises CapabilityError if the library for it is missing."""
        authority = certificates.authority("of a run's servers")
        pem = session.work / "tls.pem"
        certificates.write_private(pem, authority.issue(address))
        if session.account is not None:
            owner = pwd.getpwnam(session.account)
            os.chown(pem, owner.pw_uid, owner.pw_gid)
        self.opening = TcpListener(address, str(pem), tcp_access.generate())
        self._authority = authority.certificate

    def ways(self, trial: Trial, resolver: TargetResolver) -> dict[str, RemoteEndpoint]:
        """Return target → endpoint for all databases of a trial that is deployed here."""
        endpoints = {}
        for address, _, _, server, _ in trial.deployment.databases():
            reach = resolver.endpoint(str(address))
            endpoints[str(address)] = RemoteEndpoint(
                bin=server.bin,
                host=self.opening.address,
                port=reach.port,
                database=reach.database,
                user=reach.user,
                scale=reach.scale,
                authority=self._authority,
                password=self.opening.password,
            )
        return endpoints


class RemoteEndpoints:
    """Endpoints of other hosts' databases, on the clients' host."""

    def __init__(self) -> None:
        self._reaches: dict[str, TargetEndpoint] = {}

    def learn(self, ways: Mapping[str, RemoteEndpoint], session: RunSession, installations: Mapping[str, Installation]) -> None:
        """Replace the endpoints. ``installations`` maps bin directories, as trials name them, to those of this host."""
        passwords, roots = session.work / "passwords", dict[str, Path]()
        entries = dict.fromkeys((way.host, way.port, way.user, way.password) for way in ways.values())
        access = [(TcpAccess(host, port, str(passwords), password), user) for host, port, user, password in entries]
        tcp_access.write_password_file(str(passwords), access, session.account)
        for number, pem in enumerate(dict.fromkeys(way.authority for way in ways.values())):
            roots[pem] = session.work / f"authority-{number}.pem"
            roots[pem].write_text(pem)
            roots[pem].chmod(0o644)  # the drivers' user reads it; it is not secret
        self._reaches = {target: _reach(way, passwords, roots[way.authority], installations) for target, way in ways.items()}

    def get(self, target: str) -> TargetEndpoint | None:
        """Return the endpoint of a target, or None if it is not on another host."""
        return self._reaches.get(target)


def _reach(way: RemoteEndpoint, passwords: Path, root: Path, installations: Mapping[str, Installation]) -> TargetEndpoint:
    environment = {
        "PGPASSFILE": str(passwords),
        "PGSSLMODE": "verify-ca",
        "PGSSLROOTCERT": str(root),
        "PGSSLMINPROTOCOLVERSION": "TLSv1.3",
        "PGGSSENCMODE": "disable",
    }
    return TargetEndpoint(NO_CONTAINER, installations[way.bin].bin, way.host, way.port, way.database, way.user, way.scale, environment)


def require_tls(session: RunSession, installation: Installation) -> None:
    """Raise CapabilityError if a PostgreSQL installation does not support TLS."""
    refused = settings_validation.no_tls(session.node, installation, session.account, str(session.work))
    if refused:
        raise CapabilityError(
            f"clients on another host need TLS, but PostgreSQL {installation.version} in {installation.bin} lacks it ({refused}); "
            "choose one that is built with OpenSSL, such as a distribution's, with --pg-bin, or omit --client-host"
        )


class AgentTargetResolver:
    """Target resolver of an agent for its part of a trial. It can be called off and reaches databases of other
    hosts.

    ``ready`` is the time (s) before the agreed instant at which it was last asked for something required by then.
    Implements ``TargetResolver``.
    """

    def __init__(self, deployer: Deployer, ways: RemoteEndpoints, called_off: threading.Event, begin: float) -> None:
        """Args:
        begin: the agreed instant, of this host's clock.
        """
        self.account = deployer.account
        self.ready = 0.0
        self._deployer, self._ways, self._called_off, self._begin = deployer, ways, called_off, begin

    def endpoint(self, target: str) -> TargetEndpoint:
        self._record_readiness()
        return self._ways.get(target) or self._deployer.endpoint(target)

    def guests(self) -> Mapping[str, ContainerHandle]:
        return self._deployer.guests()

    def try_memory(self, container: str, memory: int) -> bool:
        return self._deployer.try_memory(container, memory)

    def script(self, script: Script) -> Script:
        return self._deployer.script(script)

    def view(self) -> SamplingView:
        self._record_readiness()
        return self._deployer.view()

    def check(self) -> None:
        """Also raise TrialError once the trial was called off."""
        if self._called_off.is_set():
            raise TrialError("called off by the driver")
        self._deployer.check()

    def error_text(self, target: str) -> str:
        return self._deployer.error_text(target) if self._ways.get(target) is None else f"its server runs on host {target.split('/')[0]}"

    def _record_readiness(self) -> None:
        remaining = self._begin - time.time()
        if remaining > 0:
            self.ready = remaining
