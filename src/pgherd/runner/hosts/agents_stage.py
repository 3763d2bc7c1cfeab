"""The stage on which an agent plays its part of a trial."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from pgherd.metrics.sampler import View
from pgherd.model.errors import TrialError
from pgherd.model.load import Script
from pgherd.runner.deploy.fleet import Fleet
from pgherd.runner.deploy.targets import Reach
from pgherd.runner.hosts.distant_clients import Ways
from pgherd.runtimes.runtime import Room


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
