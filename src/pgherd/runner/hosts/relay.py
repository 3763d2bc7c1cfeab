"""What hosts show of a trial while they measure it, asked for every few seconds and put where a run on one host has it.

It is written into the run's directory in the same form (pgherd.store.live), on the driver's clock, so that whoever watches need not know
where a run measures. It goes when the trial has been played: then all samples come.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pgherd.drivers.telling import on_clock
from pgherd.runner.hosts.agent import Glimpse
from pgherd.runner.hosts.clocks import Clocks
from pgherd.runner.hosts.crew import Crew
from pgherd.runner.hosts.merging import qualified
from pgherd.store.live import SPOOL, TOLD, output_name

INTERVAL = 5.0
"""Seconds between two glimpses of a host."""


class Relay:
    """Asks hosts for glimpses while they play, and writes them down. It never waits, and never fails a trial."""

    def __init__(self, crew: Crew, hosts: Sequence[str], directory: Path, clocks: Clocks) -> None:
        """``directory`` is the trial's own in the run; ``clocks`` those of the hosts."""
        self._crew, self._hosts, self._directory, self._clocks = crew, list(hosts), directory, clocks
        self._asked: dict[str, Future[Any]] = {}
        self._sources: dict[tuple[str, str], int] = {}
        self._due = 0.0

    def look(self, now: float, *, quiet: bool) -> None:
        """Write down what has come, and ask again if it is time, but not while all is to be ``quiet``."""
        for host, job in list(self._asked.items()):
            if job.done():
                del self._asked[host]
                with contextlib.suppress(Exception):  # whatever ails the host, the play itself says; nothing fails for being watched
                    self._write(host, job.result())
        if quiet or now < self._due:
            return
        self._due = now + INTERVAL
        for host in self._hosts:
            if host not in self._asked:
                self._asked[host] = self._crew.ask(host, "glimpse")

    def end(self) -> None:
        """The play is over: what was written goes, since all of it is collected."""
        with contextlib.suppress(OSError):
            (self._directory / SPOOL).unlink(missing_ok=True)
        shutil.rmtree(self._directory / TOLD, ignore_errors=True)

    def _write(self, host: str, seen: Glimpse) -> None:
        documents: list[dict[str, Any]] = []
        sources = dict(self._sources)
        for t, sampler, entity, values in seen.readings:
            key = (sampler, qualified(entity, host))
            if key not in sources:
                sources[key] = len(sources)
                documents.append({"sources": [[*key, "read on", host, ""]], "first": sources[key]})
            documents.append({"t": self._clocks.to_driver(host, t), "i": sources[key], "values": values})
        with open(self._directory / SPOOL, "a", encoding="utf-8") as spool:
            spool.write("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in documents))
        self._sources = sources  # only now: what could not be written has announced none
        ahead = self._clocks.offset(host, time.time())
        for number, target, driver, lines in seen.told:
            place = self._directory / TOLD / output_name(number, target)
            place.mkdir(parents=True, exist_ok=True)
            with open(place / "stderr", "a", encoding="utf-8") as stderr:
                stderr.write(on_clock(driver, lines, ahead))
