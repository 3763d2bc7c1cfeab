"""What phases need to know of what is up: how to reach a target, what can be watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from pgherd.metrics.sampler import View
from pgherd.model.load import Script
from pgherd.runtimes.runtime import Room

NO_ROOM = Room("")
"""Where a target stands that is in no container: its driver runs as it is."""


@dataclass(frozen=True)
class Reach:
    """How a driver reaches one target, and which room it stands in.

    A database has an address, and ``environment`` for libpq where a socket is not all; a volume a ``directory``; the far
    end of a link a ``host`` and ``port``. ``prefix`` stands before the driver's own command line (to enter a network
    namespace); ``privileged`` drivers run as we do, not under the servers' account, because the prefix needs it. ``outside`` is the
    way for a driver that does not stand in the target's room, where that is another: into a guest.
    """

    room: Room
    bin: str = ""
    host: str = ""
    port: int = 0
    database: str = ""
    user: str = ""
    scale: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    prefix: tuple[str, ...] = ()
    privileged: bool = False
    outside: Reach | None = None


class Stage(Protocol):
    """A deployment that is up on one node."""

    account: str | None

    def reach(self, target: str) -> Reach:
        """The way to a target of the deployment."""
        ...

    def guests(self) -> Mapping[str, Room]:
        """The rooms that are machines of their own, by container: each has a node and a clock."""
        ...

    def script(self, script: Script) -> Script:
        """The same script where the drivers' account can read it."""
        ...

    def view(self) -> View:
        """All containers and servers that can be watched."""
        ...

    def check(self) -> None:
        """Raise TrialError, with the server's last words, when a server has died."""
        ...

    def said(self, target: str) -> str:
        """What there is to say of the target's server when its driver has failed, such as the last lines of its log."""
        ...
