"""Live samples from hosts during a trial, fetched every few seconds and stored as for a run on one host.

They are written into the run's directory in the same form (pgherd.store.live) and in the driver's time, so an
observer need not know where a run measures. They are removed after the trial, when all samples are collected.
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

from pgherd.distributed.agent import HostSnapshot
from pgherd.distributed.agent_pool import AgentPool
from pgherd.distributed.clock_alignment import Clocks
from pgherd.distributed.merge_results import qualified
from pgherd.drivers.registry import on_clock
from pgherd.store.live import SPOOL, TOLD, output_name

FORWARD_INTERVAL_S = 5.0
"""Seconds between two glimpses of a host."""


class LiveForwarder:
    """Requests glimpses from hosts during a trial and writes them. It never waits, and never fails a trial."""

    def __init__(self, pool: AgentPool, hosts: Sequence[str], directory: Path, clocks: Clocks) -> None:
        """Args:
        directory: the trial's directory in the run.
        clocks: clocks of the hosts.
        """
        self._pool, self._hosts, self._directory, self._clocks = pool, list(hosts), directory, clocks
        self._requests: dict[str, Future[Any]] = {}
        self._sources: dict[tuple[str, str], int] = {}
        self._due = 0.0

    def look(self, now: float, *, quiet: bool) -> None:
        """Write what has arrived, and request more if due and not ``quiet``."""
        for host, job in list(self._requests.items()):
            if job.done():
                del self._requests[host]
                with contextlib.suppress(Exception):  # errors of the host are reported by the trial; live samples may fail
                    self._write(host, job.result())
        if quiet or now < self._due:
            return
        self._due = now + FORWARD_INTERVAL_S
        for host in self._hosts:
            if host not in self._requests:
                self._requests[host] = self._pool.ask(host, "glimpse")

    def end(self) -> None:
        """Remove what was written, since all samples are collected after the trial."""
        with contextlib.suppress(OSError):
            (self._directory / SPOOL).unlink(missing_ok=True)
        shutil.rmtree(self._directory / TOLD, ignore_errors=True)

    def _write(self, host: str, glimpse: HostSnapshot) -> None:
        documents: list[dict[str, Any]] = []
        sources = dict(self._sources)
        for t, sampler, entity, values in glimpse.readings:
            key = (sampler, qualified(entity, host))
            if key not in sources:
                sources[key] = len(sources)
                documents.append({"sources": [[*key, "read on", host, ""]], "first": sources[key]})
            documents.append({"t": self._clocks.to_driver(host, t), "i": sources[key], "values": values})
        with open(self._directory / SPOOL, "a", encoding="utf-8") as spool:
            spool.write("".join(json.dumps(document, separators=(",", ":")) + "\n" for document in documents))
        self._sources = sources  # only after writing, because unwritten sources are not announced
        ahead = self._clocks.offset(host, time.time())
        for number, target, driver, lines in glimpse.told:
            output_directory = self._directory / TOLD / output_name(number, target)
            output_directory.mkdir(parents=True, exist_ok=True)
            with open(output_directory / "stderr", "a", encoding="utf-8") as stderr:
                stderr.write(on_clock(driver, lines, ahead))
