"""Statements of external servers in the phases of a trial: a snapshot of pg_stat_statements at each border, and the increase.

A server that does not show them, or does not answer, has none. Statements in progress at a border are counted when they end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TypeVar

from pgherd.metrics.sampler import ServerView
from pgherd.model.result import ServerStatements, StatementUse
from pgherd.node import interruption
from pgherd.node.protocol import Node
from pgherd.postgres import statement_statistics
from pgherd.postgres.statement_statistics import TOP, Snapshot, Sql

_MAX_THREADS = 8
_TIMEOUT_S = 10.0
_POLL_INTERVAL_S = 0.5

_T = TypeVar("_T")


class StatementRecorder:
    """Snapshots of the servers of one trial, which are asked at the same time. A server that does not answer is left out from then on."""

    def __init__(self, node: Node, servers: Sequence[ServerView]) -> None:
        """Find the external servers that show their statements."""
        self._sql: dict[str, Sql] = {server.name: partial(node.sql, server.conninfo) for server in servers if server.waits}
        schemas = self._ask(self._sql, lambda _, sql: statement_statistics.schema(sql))
        self._schemas = {name: schema for name, schema in schemas.items() if schema}
        self._borders: dict[int, list[tuple[float, Mapping[str, Snapshot]]]] = {}

    def mark(self, phase: int) -> None:
        """Take a snapshot of each server at a border of the phase of this number."""
        if self._schemas:
            at = time.monotonic()
            found = self._ask(self._schemas, lambda name, sql: statement_statistics.snapshot(sql, self._schemas[name]))
            self._borders.setdefault(phase, []).append((at, found))

    def stop(self) -> dict[int, dict[str, ServerStatements]]:
        """Return phase → server → statements between the phase's borders. Texts are read now, when no load runs."""
        increases: dict[int, tuple[float, dict[str, Snapshot]]] = {}
        for phase, borders in self._borders.items():
            (start, before), (end, after) = borders[0], borders[-1]
            both = [name for name in after if name in before] if len(borders) > 1 else []
            increases[phase] = end - start, {name: statement_statistics.increase(before[name], after[name]) for name in both}
        chosen: dict[str, set[str]] = {}
        for _, found in increases.values():
            for name, used in found.items():
                chosen.setdefault(name, set()).update(list(used)[:TOP])
        texts = self._ask(chosen, lambda name, sql: statement_statistics.texts(sql, self._schemas[name], sorted(chosen[name])))
        return {
            phase: {name: _described(seconds, used, texts.get(name, {})) for name, used in found.items()}
            for phase, (seconds, found) in increases.items()
        }

    def _ask(self, names: Collection[str], query: Callable[[str, Sql], _T]) -> dict[str, _T]:
        """Return server → answer, of those servers that give one in time."""
        import psycopg

        if not names:
            return {}
        pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="pgherd-statements")
        try:
            running = {name: pool.submit(query, name, self._sql[name]) for name in names if name in self._sql}
            deadline = time.monotonic() + _TIMEOUT_S
            while wait(running.values(), _POLL_INTERVAL_S).not_done and time.monotonic() < deadline:
                interruption.check()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        answers: dict[str, _T] = {}
        for name, future in running.items():
            if future.done() and not future.cancelled() and future.exception() is None:
                answers[name] = future.result()
                continue
            error = future.exception() if future.done() and not future.cancelled() else None
            if error is not None and not isinstance(error, psycopg.Error | OSError):
                raise error
            del self._sql[name]
        return answers


def _described(seconds: float, used: Snapshot, texts: dict[str, str]) -> ServerStatements:
    return ServerStatements(
        seconds=seconds,
        calls=sum(counters.calls for counters in used.values()),
        time_ms=sum(counters.time_ms for counters in used.values()),
        top=[
            StatementUse(queryid=queryid, text=texts.get(queryid, ""), **vars(counters)) for queryid, counters in list(used.items())[:TOP]
        ],
    )
