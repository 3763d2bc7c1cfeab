"""Sampling in the guests of a trial. Each guest reads its files, and all samples are merged into the trial's spool."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pgherd.metrics import sampler
from pgherd.metrics.sampler import SamplingView
from pgherd.model.errors import TrialError
from pgherd.node.protocol import SamplingLoop
from pgherd.runner.deploy.targets import TargetResolver
from pgherd.runner.execute.driver_launch import RunningDriver, driver_sources
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.runtimes.vm import guest_spool
from pgherd.runtimes.vm.guest_spool import GuestClock, GuestSpool


@dataclass(frozen=True)
class _SampledGuest:
    handle: ContainerHandle
    spool: Path
    sampling: SamplingLoop


class GuestSamplers:
    """Sampling loops in all guests of a trial. The host's loop runs the SQL queries on guests' servers."""

    def __init__(self, directory: Path) -> None:
        """Args:
        directory: the trial's directory.
        """
        self._directory = directory
        self._guests: list[_SampledGuest] = []

    def begin(self, handles: Mapping[str, ContainerHandle]) -> None:
        """Start sampling in these guests. Raises TrialError if a guest does not respond."""
        try:
            for name, handle in handles.items():
                assert handle.node is not None
                spool = self._directory / f"guest-{name}.jsonl"
                self._guests.append(_SampledGuest(handle, spool, handle.node.sample(sampler.sources(SamplingView()), str(spool))))
            self._record(self._directory / "spool.jsonl")
        except OSError as error:
            raise TrialError(f"a guest cannot be sampled: {error}") from None

    def add(self, running: Sequence[RunningDriver], resolver: TargetResolver) -> None:
        """Also sample the drivers in guests. Raises TrialError if a guest does not respond."""
        try:
            for guest in self._guests:
                assert guest.handle.node is not None
                sources = driver_sources(list(running), resolver, guest.handle.node)
                if sources:
                    guest.sampling.add(sources)
        except OSError as error:
            resolver.check()
            raise TrialError(f"a guest cannot be sampled: {error}") from None

    def mark(self) -> None:
        """Read everything once now, at a border of the window. Raises TrialError if a guest does not respond."""
        try:
            for guest in self._guests:
                guest.sampling.add(())
        except OSError as error:
            raise TrialError(f"a guest cannot be sampled: {error}") from None

    def stop(self) -> None:
        """Stop sampling, and append the samples to the trial's spool in the host's time. Raises TrialError."""
        if not self._guests:
            return
        spools = []
        try:
            for guest in self._guests:
                guest.sampling.stop()
                assert isinstance(guest.handle.clock, GuestClock)
                spools.append(GuestSpool(guest.handle.container, guest.spool.read_text().splitlines(keepends=True), guest.handle.clock))
            self._record(None)
        except OSError as error:
            self.abandon()
            raise TrialError(f"a guest cannot be sampled: {error}") from None
        guest_spool.append(self._directory / "spool.jsonl", spools)
        for guest in self._guests:
            guest.spool.unlink()

    def abandon(self) -> None:
        """Stop what can be stopped, after the trial failed."""
        for guest in self._guests:
            with contextlib.suppress(OSError):
                guest.sampling.stop()
        with contextlib.suppress(OSError, TrialError):
            self._record(None)

    def _record(self, spool: Path | None) -> None:
        """Have the host's view of the guests' balloons and drives recorded. All guests may share one manager."""
        for recorder in {id(guest.handle.balloons): guest.handle.balloons for guest in self._guests}.values():
            if recorder is not None:
                recorder.record(spool)
