"""Servers of somebody else that are part of a trial: attached, loaded and let go. They are never started, set or stopped."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Literal, Protocol

from pgherd.host import cgroups, oom_log, processes
from pgherd.host.oom_log import Victim
from pgherd.metrics.balloon import THERE
from pgherd.metrics.sampler import ServerView
from pgherd.model.deployment import Container, Database, Server
from pgherd.model.errors import PgherdError, TrialError, UsageError
from pgherd.model.result import MemoryKill
from pgherd.model.trial import Trial
from pgherd.node.protocol import Node
from pgherd.postgres import balloon_build, clones
from pgherd.postgres.external import External
from pgherd.postgres.instance import Instance
from pgherd.runner.deploy.targets import Reach
from pgherd.runner.deploy.transition import ServerKey
from pgherd.runner.session import Session
from pgherd.runtimes.runtime import Room
from pgherd.workloads.registry import find


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


def server_view(node: Node, name: str, instance: Instance, settings: Mapping[str, str], cache: str) -> ServerView:
    """The view of a server of ours; ``name`` is ``container/server``, ``cache`` where on ``node``, this host, a pg_balloon that pgherd
    built lies.

    A server that loads pg_balloon is asked whether it can tell of it. Where its functions are missing they are made in the maintenance
    database, which is as much ours as the server.
    """
    conninfo = instance.conninfo("postgres")
    pid = instance.pid if instance.access is None else 0  # a guest's pids mean nothing here
    return ServerView(name, conninfo, instance.installation.major, pid, balloon=_has_balloon(node, instance, settings, cache))


def _has_balloon(node: Node, instance: Instance, settings: Mapping[str, str], cache: str) -> bool:
    import psycopg

    loaded = ",".join(value for key, value in settings.items() if key.endswith("_preload_libraries"))
    if balloon_build.NAME not in loaded:
        return False
    try:
        if not instance.sql(THERE)[0][0]:
            library = balloon_build.find_balloon(node, instance.installation, cache)
            if library is not None:
                balloon_build.create_functions(node, instance.installation, library, instance.conninfo("postgres"))
        return bool(instance.sql(THERE)[0][0])
    except (psycopg.Error, PgherdError, OSError):  # a server that has just died is found out elsewhere
        return False
    finally:
        instance.disconnect(["postgres"])


Readings = dict[str, dict[str, float]]
"""Entity → metric → value."""

IN_USE = """SELECT count(*) FILTER (WHERE b.usagecount > 0), count(*) FILTER (WHERE b.usagecount > 1), count(b.relfilenode),
       current_setting('block_size')::int
FROM pg_buffercache b LEFT JOIN pg_database d ON d.oid = b.reldatabase WHERE d.datname IS DISTINCT FROM 'postgres'"""
"""Buffers used at all, used again since they were read in, and filled, but for those of the maintenance database; bytes of a buffer.

A buffer's usage count is 1 when it is read (by the warm-up too), rises with every use up to 5, and falls each time the clock sweep passes
in its search for a buffer to evict."""

UNITS: Mapping[str, str] = {"buffers.used": "bytes", "buffers.reused": "bytes", "buffers.filled": "bytes"}


def buffer_readings(node: Node, trial: Trial | None, instances: Mapping[ServerKey, Instance]) -> Readings:
    """Bytes of shared buffers of each server that is up; nothing where the trial does not ask, or the extension is missing."""
    import psycopg

    found: Readings = {}
    if trial is None or "buffers" not in trial.looks:
        return found
    for key, instance in instances.items():
        # A server at the edge of its memory may not live through being asked: the trial was over before.
        with contextlib.suppress(psycopg.Error, OSError):
            instance.sql("CREATE EXTENSION IF NOT EXISTS pg_buffercache")
            used, reused, filled, size = instance.sql(IN_USE)[0]
            values = (float(used * size), float(reused * size), float(filled * size))
            found[f"server:{'/'.join(key)}"] = dict(zip(UNITS, values, strict=True))
        node.disconnect(instance.conninfo())
    return found


def drop_cached_files(node: Node, restarted: Sequence[tuple[Instance, Container]]) -> None:
    """Take the files of restarted servers out of the page cache where their containers' memory is limited: what an earlier trial
    brought in is charged to a control group that may be gone, and would be memory that the container has for nothing."""
    clones.drop_cache(node, [instance.data_dir for instance, container in restarted if container.memory is not None])


def merge_readings(*parts: Readings) -> Readings:
    """Readings of several kinds together, entity by entity."""
    found: Readings = {}
    for part in parts:
        for entity, values in part.items():
            found.setdefault(entity, {}).update(values)
    return found


_LOOK_SECONDS = 0.5


def warm_all(instances: Mapping[ServerKey, Instance], warm: Callable[[ServerKey], None], insist: Callable[[], None]) -> None:
    """Call ``warm`` for each server in a thread of its own, and raise what the first of them raised once all have ended.

    Ctrl-C, or whatever ``insist`` raises (it is called now and then in this thread), shuts the servers down at once: whoever waits for
    one that reads for minutes is told by it that the connection is lost.
    """
    with ThreadPoolExecutor(max_workers=len(instances)) as pool:
        try:
            warmed = [pool.submit(warm, key) for key in instances]
            while wait(warmed, _LOOK_SECONDS).not_done:
                insist()
        except BaseException:
            for instance in instances.values():
                with contextlib.suppress(OSError):  # a guest that does not answer any more is ended with all that is in it
                    instance.signal_stop("immediate")
            raise
    for one in warmed:
        one.result()


class Asked(Protocol):
    """A server that can be asked (pgherd.postgres.instance.Instance is one)."""

    @property
    def name(self) -> str:
        """The server's name."""
        ...

    def sql(self, statement: str, parameters: Sequence[Any] = (), *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """The rows of one statement."""
        ...

    def disconnect(self, databases: Sequence[str] = ("postgres",)) -> None:
        """Close the kept connections."""
        ...


def require_consistent(server: Asked, database: Database) -> None:
    """Check a database's consistency conditions.

    Raises:
        TrialError: one does not hold, or they cannot be asked for.
    """
    import psycopg

    where = f"database {database.name} of server {server.name}"
    try:
        broken = find(database.workload).violations(lambda statement: server.sql(statement, database=database.name))
    except (psycopg.Error, ValueError) as error:
        raise TrialError(f"the consistency of {where} cannot be checked: {str(error).strip()}") from None
    finally:
        server.disconnect([database.name])
    if broken:
        raise TrialError(f"{where} contradicts itself after the trial, so its numbers do not count: {'; '.join(broken)}")


_TELLING = re.compile(r"(WARNING|ERROR|FATAL|PANIC):  (?!the database system is)|LOG:  server process")


def log_ending(lines: Sequence[str]) -> str:
    """The last lines of a server's log that tell of trouble, or else its last lines; or that there are none."""
    if not lines:
        return "nothing can be read of the server's log"
    telling = [line for line in lines if _TELLING.search(line)]
    return "\n".join(["the server's log ends with:", *(telling[-4:] or lines[-2:])])


def memory_kill_message(container: str, kills: int) -> str:
    """That the kernel ended so many of a container's processes for want of memory, and what to do."""
    return (
        f"container {container} needed more than its memory limit, and the kernel ended {processes.counted(kills)} in it: raise --memory, "
        "or lower --scale or --set shared_buffers"
    )


_CLOCKS_APART = 2.0
"""Seconds by which the clock of the kernel's log may be behind or ahead of the wall clock."""


class MemoryKills:
    """Counts of a run's containers. A group's own count never goes down, so what is new is what has been added since."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._began = 0.0
        self._counted: dict[str, int] = {}
        self._seen: list[MemoryKill] = []

    def begin(self) -> None:
        """A trial begins: what was seen belongs to the one before."""
        self._began = self._node.now()
        self._seen = []

    def look(self, container: str, groups: Mapping[str, str]) -> int:
        """How many processes were ended in a container since it was last looked at; they are noted."""
        total = cgroups.oom_kills(self._node, groups)
        new = total - self._counted.get(container, 0)
        self._counted[container] = total
        if new > 0:
            self._seen.append(MemoryKill(container=container, processes=new, at=self._node.now()))
        return max(new, 0)

    def seen(self, containers: Mapping[str, Mapping[str, str]]) -> tuple[MemoryKill, ...]:
        """All of this trial, after one more look at these containers (name → groups)."""
        for name, groups in containers.items():
            self.look(name, groups)
        victims = oom_log.victims(self._node, self._began - _CLOCKS_APART) if self._seen else []
        return tuple(with_victims(kill, victims) for kill in self._seen)

    def forget(self, container: str) -> None:
        """The container is gone, and its count with it."""
        self._counted.pop(container, None)


def with_victims(kill: MemoryKill, victims: Sequence[Victim]) -> MemoryKill:
    """What was counted, with what the kernel's log says of it: who, when, and at whose limit."""
    own = [one for one in victims if posixpath.basename(one.group) == kill.container and one.at <= kill.at + _CLOCKS_APART]
    if not own:
        return kill
    by_container = any(one.limited == one.group for one in own)
    names = tuple(f"{one.process} ({one.pid})" for one in own[: kill.processes])
    limit: Literal["container", "budget"] = "container" if by_container else "budget"
    return kill.model_copy(update={"at": min(own[0].at, kill.at), "names": names, "limit": limit})
