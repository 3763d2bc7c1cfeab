"""Sampling in the guests of a trial, beside that of the host: each reads its own files, and all of it becomes one spool."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgherd.metrics import registry as samplers
from pgherd.metrics.sampler import View
from pgherd.model.errors import TrialError
from pgherd.node.protocol import Sampling
from pgherd.runner.deploy.targets import Stage
from pgherd.runner.play.launching import Running, driver_sources
from pgherd.runtimes.runtime import Room
from pgherd.runtimes.vm import guest_spool
from pgherd.runtimes.vm.guest_clock import GuestClock
from pgherd.runtimes.vm.guest_spool import GuestSpool


@dataclass(frozen=True)
class _One:
    room: Room
    spool: Path
    sampling: Sampling


class GuestSampling:
    """The sampling loops in all guests of a trial. SQL goes to their servers from the host, whose own loop asks it."""

    def __init__(self, directory: Path) -> None:
        """``directory`` is the trial's. Nothing is sampled yet."""
        self._directory = directory
        self._guests: list[_One] = []

    def begin(self, rooms: Mapping[str, Room]) -> None:
        """Start to sample in these guests; raises TrialError where one does not answer."""
        try:
            for name, room in rooms.items():
                assert room.node is not None
                spool = self._directory / f"guest-{name}.jsonl"
                self._guests.append(_One(room, spool, room.node.sample(samplers.sources(View()), str(spool))))
            self._record(self._directory / "spool.jsonl")
        except OSError as error:
            raise TrialError(f"a guest cannot be sampled: {error}") from None

    def add(self, running: Sequence[Running], stage: Stage) -> None:
        """Watch the drivers that run in guests too; raises TrialError where a guest does not answer."""
        try:
            for one in self._guests:
                assert one.room.node is not None
                sources = driver_sources(list(running), stage, one.room.node)
                if sources:
                    one.sampling.add(sources)
        except OSError as error:
            stage.check()
            raise TrialError(f"a guest cannot be sampled: {error}") from None

    def mark(self) -> None:
        """Read everything once now, at a border of the window; raises TrialError where a guest does not answer."""
        try:
            for one in self._guests:
                one.sampling.add(())
        except OSError as error:
            raise TrialError(f"a guest cannot be sampled: {error}") from None

    def stop(self) -> None:
        """End them, and put what they have read into the trial's spool, on the host's clock; raises TrialError."""
        if not self._guests:
            return
        found = []
        try:
            for one in self._guests:
                one.sampling.stop()
                assert isinstance(one.room.clock, GuestClock)
                found.append(GuestSpool(one.room.container, one.spool.read_text().splitlines(keepends=True), one.room.clock))
            self._record(None)
        except OSError as error:
            self.abandon()
            raise TrialError(f"a guest cannot be sampled: {error}") from None
        guest_spool.append(self._directory / "spool.jsonl", found)
        for one in self._guests:
            one.spool.unlink()

    def abandon(self) -> None:
        """The trial has failed already: end what can be ended."""
        for one in self._guests:
            with contextlib.suppress(OSError):
                one.sampling.stop()
        with contextlib.suppress(OSError, TrialError):
            self._record(None)

    def _record(self, spool: Path | None) -> None:
        """Have what the host sees of the guests' balloons and drives written beside: one manager sees all of them."""
        for recorder in {id(one.room.balloons): one.room.balloons for one in self._guests}.values():
            if recorder is not None:
                recorder.record(spool)
