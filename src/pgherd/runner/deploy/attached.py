"""Servers of somebody else that are part of a trial: attached, loaded and let go. They are never started, set or stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from pgherd.metrics.sampler import ServerView
from pgherd.model.deployment import Container, Database, Server
from pgherd.model.errors import TrialError, UsageError
from pgherd.postgres.external import External
from pgherd.runner.deploy.stage import Reach
from pgherd.runner.deploy.transition import ServerKey
from pgherd.runner.session import Session
from pgherd.runtimes.runtime import Room


class Attached:
    """All servers of one fleet that are somebody else's, by (container, server)."""

    def __init__(self, session: Session) -> None:
        """Nothing is attached yet."""
        self._session = session
        self._there: dict[ServerKey, External] = {}
        self._seen: set[str] = set()

    def __contains__(self, key: ServerKey) -> bool:
        return key in self._there

    def __getitem__(self, key: ServerKey) -> External:
        return self._there[key]

    def attach(self, wanted: Mapping[ServerKey, tuple[Container, Server]]) -> None:
        """Connect to each once; what was attached under its name is let go.

        Raises:
            UsageError: it cannot be connected to, and never could in this run.
            TrialError: it could before.
        """
        for key, (container, server) in wanted.items():
            self.detach(key)
            assert server.dsn is not None
            passfile = self._session.work / f"passfile-{container.name}-{server.name}"
            try:
                self._there[key] = External(
                    self._session.node,
                    server.dsn,
                    name="/".join(key),
                    passfile=str(passfile),
                    account=self._session.account,
                )
            except UsageError as error:
                if server.dsn not in self._seen:
                    raise
                raise TrialError(str(error)) from None
            self._seen.add(server.dsn)

    def reach(self, key: ServerKey, room: Room, bin_: str, database: Database, *, writes: bool) -> Reach:
        """The way to the database that its DSN names, in read-only sessions unless the load ``writes``."""
        at = self._there[key].address(writes=writes)
        return Reach(room, bin_, at.host, at.port, at.database, at.user, database.scale, at.environment)

    def detach(self, key: ServerKey) -> None:
        """Close our connections to it, if there are any."""
        theirs = self._there.pop(key, None)
        if theirs is not None:
            with contextlib.suppress(OSError):
                theirs.disconnect()

    def views(self) -> list[ServerView]:
        """For samplers: what the servers say of themselves. Their processes are not ours to see."""
        return [ServerView("/".join(key), theirs.conninfo(), theirs.major, 0) for key, theirs in self._there.items()]

    def settings(self) -> dict[str, str] | None:
        """Settings of the first that answers, where they differ from the default; None where none does."""
        import psycopg

        for theirs in self._there.values():
            with contextlib.suppress(psycopg.Error):
                return theirs.differing()
        return None
