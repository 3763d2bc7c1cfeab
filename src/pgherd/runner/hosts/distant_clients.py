"""Drivers on another host than their server: how the server's host opens it to them, and how theirs reaches it.

Over TCP, with TLS 1.3 and scram-sha-256. The certificate's authority and the password are made for one run on one host, and go to the
clients' host by the cluster's own channel: so a driver that trusts that authority alone talks to that host and to no other.
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
from pgherd.metrics.sampler import View
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.model.load import Script
from pgherd.model.trial import Trial
from pgherd.postgres import tcp_access, validation
from pgherd.postgres.installations import Installation
from pgherd.postgres.tcp_access import Opening, TcpAccess
from pgherd.runner.deploy.fleet import Fleet
from pgherd.runner.deploy.targets import NO_ROOM, Reach, Stage
from pgherd.runner.session import Session
from pgherd.runtimes.runtime import Room


@dataclass(frozen=True)
class Way:
    """To one database from another host. ``bin`` is the installation's as trials name it, ``authority`` PEM."""

    bin: str
    host: str
    port: int
    database: str
    user: str
    scale: int
    authority: str
    password: str = field(repr=False)


class Opened:
    """The servers' host. All its servers of a run have one certificate and one password."""

    def __init__(self, session: Session, address: str) -> None:
        """Makes both. Raises CapabilityError without the library for it."""
        authority = certificates.authority("of a run's servers")
        pem = session.work / "tls.pem"
        certificates.write_private(pem, authority.issue(address))
        if session.account is not None:
            owner = pwd.getpwnam(session.account)
            os.chown(pem, owner.pw_uid, owner.pw_gid)
        self.opening = Opening(address, str(pem), tcp_access.generate())
        self._authority = authority.certificate

    def ways(self, trial: Trial, stage: Stage) -> dict[str, Way]:
        """Target → the way to it, for all databases of a trial that is up here."""
        found = {}
        for place, _, _, server, _ in trial.deployment.databases():
            reach = stage.reach(str(place))
            found[str(place)] = Way(
                bin=server.bin,
                host=self.opening.address,
                port=reach.port,
                database=reach.database,
                user=reach.user,
                scale=reach.scale,
                authority=self._authority,
                password=self.opening.password,
            )
        return found


class Ways:
    """The clients' host: how its drivers reach databases of others."""

    def __init__(self) -> None:
        """No way is known yet."""
        self._reaches: dict[str, Reach] = {}

    def learn(self, ways: Mapping[str, Way], session: Session, installations: Mapping[str, Installation]) -> None:
        """Know these ways and no others. ``installations`` maps bin directories, as trials name them, to those of this host."""
        passwords, roots = session.work / "passwords", dict[str, Path]()
        entries = dict.fromkeys((way.host, way.port, way.user, way.password) for way in ways.values())
        access = [(TcpAccess(host, port, str(passwords), password), user) for host, port, user, password in entries]
        tcp_access.write_password_file(str(passwords), access, session.account)
        for number, pem in enumerate(dict.fromkeys(way.authority for way in ways.values())):
            roots[pem] = session.work / f"authority-{number}.pem"
            roots[pem].write_text(pem)
            roots[pem].chmod(0o644)  # the drivers' account reads it; it is no secret
        self._reaches = {target: _reach(way, passwords, roots[way.authority], installations) for target, way in ways.items()}

    def get(self, target: str) -> Reach | None:
        """The way to a target; None: it is none of another host."""
        return self._reaches.get(target)


def _reach(way: Way, passwords: Path, root: Path, installations: Mapping[str, Installation]) -> Reach:
    words = {
        "PGPASSFILE": str(passwords),
        "PGSSLMODE": "verify-ca",
        "PGSSLROOTCERT": str(root),
        "PGSSLMINPROTOCOLVERSION": "TLSv1.3",
        "PGGSSENCMODE": "disable",
    }
    return Reach(NO_ROOM, installations[way.bin].bin, way.host, way.port, way.database, way.user, way.scale, words)


def insist_tls(session: Session, installation: Installation) -> None:
    """Raise CapabilityError where a PostgreSQL cannot have TLS."""
    refused = validation.no_tls(session.node, installation, session.account, str(session.work))
    if refused:
        raise CapabilityError(
            f"clients on another host need TLS, which PostgreSQL {installation.version} in {installation.bin} cannot have ({refused}); "
            "name one that is built with OpenSSL, such as a distribution's, with --pg-bin, or leave --client-host out"
        )


class AgentsStage:
    """A fleet's stage on which the play can be called off, from which databases of other hosts are reached, and which knows how long
    before it was to begin (s) it was last asked for what has to be known by then. Implements ``runner.stage.Stage``."""

    def __init__(self, fleet: Fleet, ways: Ways, called_off: threading.Event, begin: float) -> None:
        """``begin`` is the agreed instant, of this host's clock."""
        self.account = fleet.account
        self.ready = 0.0
        self._fleet, self._ways, self._called_off, self._begin = fleet, ways, called_off, begin

    def reach(self, target: str) -> Reach:
        """As the fleet's; or the way to a server of another host."""
        self._note()
        return self._ways.get(target) or self._fleet.reach(target)

    def guests(self) -> Mapping[str, Room]:
        """As the fleet's."""
        return self._fleet.guests()

    def script(self, script: Script) -> Script:
        """As the fleet's."""
        return self._fleet.script(script)

    def view(self) -> View:
        """As the fleet's."""
        self._note()
        return self._fleet.view()

    def check(self) -> None:
        """As the fleet's; raises TrialError, too, once the play is called off."""
        if self._called_off.is_set():
            raise TrialError("called off by the driver")
        self._fleet.check()

    def said(self, target: str) -> str:
        """As the fleet's; of another host's server that host tells."""
        return self._fleet.said(target) if self._ways.get(target) is None else f"its server runs on host {target.split('/')[0]}"

    def _note(self) -> None:
        left = self._begin - time.time()
        if left > 0:
            self.ready = left
