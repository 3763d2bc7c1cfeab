"""Trials grouped by number of clients."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from pgherd.model.result import TrialResult
from pgherd.study.database_options import DatabaseOptions
from pgherd.study.observation import Observation
from pgherd.study.repeats import Repeats, repeats


@dataclass(frozen=True)
class Point(Repeats):
    """All trials of one number of clients, of one variant."""

    clients: int

    @property
    def median(self) -> float:
        """Median throughput of the used trials."""
        return float(statistics.median(self.throughputs))


def group(options: DatabaseOptions, results: Sequence[TrialResult], variant: str = "") -> list[Point]:
    """Points of a variant that have at least one finished trial, by number of clients."""
    by_clients: dict[int, list[TrialResult]] = {}
    for result in results:
        clients = result.trial.point.get("clients")
        if isinstance(clients, int) and result.trial.point.get("variant", "") == variant:
            by_clients.setdefault(clients, []).append(result)
    points = []
    for clients, trials in sorted(by_clients.items()):
        found = repeats(options, trials)
        if found is not None:
            points.append(Point(found.used, found.tried, found.tainted, found.failed, clients))
    return points


def server_cpu_per_tx(observation: Observation) -> float | None:
    """The server's CPU time per transaction in ms, without pgbench's."""
    used = observation.cpu.databases
    return None if used is None or observation.throughput <= 0 else 1000 * used / observation.throughput


def client_share(observation: Observation) -> float | None:
    """pgbench's share of the CPU that it and the server used together."""
    server, clients = observation.cpu.databases, observation.cpu.clients
    return None if server is None or clients is None or server + clients <= 0 else clients / (server + clients)
