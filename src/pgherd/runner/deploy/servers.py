"""Parts of the deployment of servers: external servers, samplers' views, warm-up, buffer readings, consistency, OOM
kills and log endings.

Buffer counts come from the extension pg_buffercache. It is created in the maintenance database of a private server,
so the workload's database stays unchanged. An external server is never read this way.
"""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, Literal, Protocol

from pgherd.host import cgroup_memory, processes, server_cgroup
from pgherd.host.cgroup_memory import OomVictim
from pgherd.host.server_cgroup import ServerCgroup
from pgherd.metrics import prometheus
from pgherd.metrics.sampler import ServerView
from pgherd.metrics.server_statistics import HAS_BALLOON
from pgherd.metrics.spool import SpoolReading
from pgherd.model.deployment import Container, Database, Server
from pgherd.model.errors import LostServerError, PgherdError, TrialError, UsageError
from pgherd.model.prometheus import PrometheusSource, PrometheusView
from pgherd.model.result import OomKill
from pgherd.model.trial import Trial
from pgherd.node.protocol import Command, Node
from pgherd.postgres import pg_balloon
from pgherd.postgres.external_server import ExternalServer
from pgherd.postgres.instance import WRITABLE, Instance
from pgherd.runner.deploy.targets import TargetEndpoint
from pgherd.runner.deploy.transition_plan import ServerKey
from pgherd.runner.session import RunSession
from pgherd.runtimes.runtime import ContainerHandle
from pgherd.workloads.registry import find

Readings = dict[str, dict[str, float]]
"""Entity → metric → value."""


class ExternalServers:
    """External servers of a deployment, by (container, server). They are loaded, and never started, configured or stopped.

    A server that was connected to in this run and refuses connections now is lost. Only trials that load it fail.
    """

    def __init__(self, session: RunSession) -> None:
        self._session = session
        self._external: dict[ServerKey, ExternalServer] = {}
        self._seen: set[str] = set()
        self._lost: dict[ServerKey, str] = {}
        self._sources: dict[ServerKey, PrometheusSource] = {}
        self._groups: dict[str, ServerCgroup] = {}

    def __contains__(self, key: ServerKey) -> bool:
        return key in self._external or key in self._lost

    def __getitem__(self, key: ServerKey) -> ExternalServer:
        return self._external[key]

    def attach(self, wanted: Mapping[ServerKey, tuple[Container, Server]]) -> None:
        """Connect to each server once. A server attached under the same name before is detached.

        Raises:
            UsageError: the connection fails or the server was upgraded, and it was never attached since the run was started or resumed.
        """
        for key, (container, server) in wanted.items():
            self.detach(key)
            assert server.dsn is not None
            passfile = self._session.work / f"passfile-{container.name}-{server.name}"
            try:
                external = ExternalServer(
                    self._session.node,
                    server.dsn,
                    name="/".join(key),
                    passfile=str(passfile),
                    account=self._session.account,
                    allow_writes=True,  # ``endpoint`` refuses this to loads that do not write
                    query_timeout=server.query_timeout,
                    direct=server.direct,
                )
                _require_version(external, server)
            except UsageError as error:
                if server.dsn not in self._seen:
                    raise
                self._lost[key] = str(error)
                continue
            self._external[key] = external
            self._seen.add(server.dsn)
            if container.prometheus is not None:
                self._sources[key] = container.prometheus
            elif container.cgroup is not None or self._external[key].pid:
                self._find_cgroup(key, container)

    def _find_cgroup(self, key: ServerKey, container: Container) -> None:
        """Find the cgroup that the container names, or that of the server's process. Without the named one, the server counts as lost."""
        try:
            text = container.cgroup or f"pid:{self._external[key].pid}"
            self._groups[container.name] = server_cgroup.resolve(self._session.node, text, f"cgroup of {container.name}:")
        except UsageError as error:
            if container.cgroup is not None:
                self.detach(key)
                self._lost[key] = str(error)

    @property
    def cgroups(self) -> dict[str, ServerCgroup]:
        """Cgroups of the servers on this host, by container. One that two servers share is neither's alone, and is left out."""
        found = [group.groups for group in self._groups.values()]
        return {name: group for name, group in self._groups.items() if found.count(group.groups) == 1}

    def from_prometheus(self, windows: Sequence[tuple[float, float]]) -> tuple[list[SpoolReading], list[PrometheusView]]:
        """Return the samples that Prometheus has of the servers' hosts in and around these windows, and a view of each server and window.

        Raises:
            TrialError: Prometheus does not answer.
        """
        readings: list[SpoolReading] = []
        views: list[PrometheusView] = []
        for (container, server), source in self._sources.items():
            found, described = prometheus.observe(source, container, f"{container}/{server}", windows)
            readings += found
            views += described
        return readings, views

    def readings(self) -> Readings:
        """Return the limits around each server: cores and bytes."""
        limits = {
            f"container:{name}": {"cpu.limit": group.cores, "memory.limit": None if group.memory is None else float(group.memory)}
            for name, group in self.cgroups.items()
        }
        return {entity: {name: limit for name, limit in values.items() if limit is not None} for entity, values in limits.items()}

    def answers(self, key: ServerKey) -> bool:
        """Return True if the server accepts a connection now."""
        return key in self._external and self._external[key].answers

    def endpoint(self, key: ServerKey, handle: ContainerHandle, bin_: str, database: Database, *, writes: bool) -> TargetEndpoint:
        """Return the endpoint of the database that the DSN names. Sessions are read-only unless the load ``writes``.

        Raises:
            UsageError: the load does not write, but its sessions might.
            LostServerError: the server is lost, and others are not.
            TrialError: pgbench cannot connect, or all servers are lost.
        """
        if key in self._lost:
            raise (LostServerError if self._external else TrialError)(self._lost[key])
        external = self._external[key]
        if not writes:
            external.require_read_only(bin_)
        address = external.address(writes=writes)
        return TargetEndpoint(handle, bin_, address.host, address.port, address.conninfo, address.user, database.scale, address.environment)

    def detach(self, key: ServerKey) -> None:
        """Close the connections to the server, if there are any."""
        self._lost.pop(key, None)
        external = self._external.pop(key, None)
        self._groups.pop(key[0], None)
        self._sources.pop(key, None)
        if external is not None:
            with contextlib.suppress(OSError):
                external.disconnect()

    def views(self) -> list[ServerView]:
        """Return the servers for samplers. The pid is 0, because processes of an external server cannot be read."""
        return [ServerView("/".join(key), external.conninfo(), external.major, 0, waits=True) for key, external in self._external.items()]

    def settings(self) -> dict[str, str] | None:
        """Return the non-default settings of the first server that responds, or None."""
        import psycopg

        for external in self._external.values():
            with contextlib.suppress(psycopg.Error):
                return external.differing()
        return None


def _require_version(external: ExternalServer, server: Server) -> None:
    """Require that a server has the version with which the run was prepared. Raises UsageError."""
    import psycopg

    try:
        version = str(external.sql("SHOW server_version")[0][0]).split()[0]
    except psycopg.Error as error:
        raise UsageError(f"{external.dsn}: no connection: {' '.join(str(error).split())}") from None
    external.disconnect()
    if version != server.version:
        raise UsageError(f"{external.dsn} is PostgreSQL {version} now, but was {server.version} before; start a new run")


def server_view(node: Node, name: str, instance: Instance, settings: Mapping[str, str], cache: str) -> ServerView:
    """Return the samplers' view of a private server.

    If the server loads pg_balloon but lacks its functions, create them in its maintenance database.

    Args:
        name: ``container/server``.
        cache: directory on ``node`` (this host) that holds a pg_balloon built by pgherd.
    """
    conninfo = instance.conninfo("postgres")
    pid = instance.pid if instance.access is None else 0  # a guest has pids of a different kernel
    return ServerView(name, conninfo, instance.installation.major, pid, balloon=_has_balloon(node, instance, settings, cache))


def _has_balloon(node: Node, instance: Instance, settings: Mapping[str, str], cache: str) -> bool:
    import psycopg

    loaded = ",".join(value for key, value in settings.items() if key.endswith("_preload_libraries"))
    if pg_balloon.NAME not in loaded:
        return False
    try:
        if not instance.sql(HAS_BALLOON)[0][0]:
            library = pg_balloon.find_balloon(node, instance.installation, cache)
            if library is not None:
                pg_balloon.create_functions(node, instance.installation, library, instance.conninfo("postgres"))
        return bool(instance.sql(HAS_BALLOON)[0][0])
    except (psycopg.Error, PgherdError, OSError):  # a dead server is reported by Deployer.check
        return False
    finally:
        instance.disconnect(["postgres"])


IN_USE = """SELECT count(*) FILTER (WHERE b.usagecount > 0), count(*) FILTER (WHERE b.usagecount > 1), count(b.relfilenode),
       current_setting('block_size')::int
FROM pg_buffercache b LEFT JOIN pg_database d ON d.oid = b.reldatabase WHERE d.datname IS DISTINCT FROM 'postgres'"""
"""Buffers with usage count over 0, over 1, and filled, without those of the maintenance database; bytes of a buffer.

A buffer's usage count is 1 when it is read (also by the warm-up). It rises with every use up to 5, and falls each
time the clock sweep passes in its search for a buffer to evict.
"""

UNITS: Mapping[str, str] = {"buffers.used": "bytes", "buffers.reused": "bytes", "buffers.filled": "bytes"}


def buffer_readings(node: Node, trial: Trial | None, instances: Mapping[ServerKey, Instance]) -> Readings:
    """Return bytes of shared buffers for each running server.

    The result is empty if the trial does not request it, or if the extension is missing.
    """
    import psycopg

    readings: Readings = {}
    if trial is None or "buffers" not in trial.final_readings:
        return readings
    for key, instance in instances.items():
        # A server close to its memory limit may fail here. That is harmless, because the trial is over.
        with contextlib.suppress(psycopg.Error, OSError):
            instance.sql(WRITABLE)
            instance.sql("CREATE EXTENSION IF NOT EXISTS pg_buffercache")
            used, reused, filled, size = instance.sql(IN_USE)[0]
            values = (float(used * size), float(reused * size), float(filled * size))
            readings[f"server:{'/'.join(key)}"] = dict(zip(UNITS, values, strict=True))
        node.disconnect(instance.conninfo())
    return readings


_AUTOVACUUM = "SELECT coalesce(sum(autovacuum_count + autoanalyze_count), 0)::bigint FROM pg_stat_all_tables"
AUTOVACUUM_RUNS = "autovacuum.runs"
"""Reading of an idle server: tables that autovacuum has vacuumed or analyzed in the trial."""


def autovacuum_runs(trial: Trial | None, instances: Mapping[ServerKey, Instance]) -> Readings:
    """Return the number of autovacuum's runs on tables so far, for each server that the trial leaves alone. Its connections are closed."""
    import psycopg

    readings: Readings = {}
    quiet = [] if trial is None else [(c, s) for _, c, s in trial.deployment.servers() if c.name in trial.quiet]
    for container, server in quiet:
        instance = instances[container.name, server.name]
        names = list(dict.fromkeys(database.dbname for database in server.databases))
        with contextlib.suppress(psycopg.Error, OSError):
            runs = sum(float(instance.sql(_AUTOVACUUM, database=name)[0][0]) for name in names)
            readings[f"server:{container.name}/{server.name}"] = {AUTOVACUUM_RUNS: runs}
        instance.disconnect(names)
    return readings


def increase(after: Readings, before: Readings) -> Readings:
    """Return the increase of each reading that both have."""
    return {
        entity: {name: value - before[entity][name] for name, value in values.items()}
        for entity, values in after.items()
        if entity in before
    }


def merge_readings(*parts: Readings) -> Readings:
    """Merge readings of several kinds by entity."""
    merged: Readings = {}
    for part in parts:
        for entity, values in part.items():
            merged.setdefault(entity, {}).update(values)
    return merged


_POLL_INTERVAL_S = 0.5


def warm_all(instances: Mapping[ServerKey, Instance], warm: Callable[[ServerKey], None], check_cancelled: Callable[[], None]) -> None:
    """Call ``warm`` for each server in a separate thread, and raise the first error once all threads have ended.

    The servers warm up in parallel, because each reads within its container's CPU limit and mostly waits. Ctrl-C, or
    an error raised by ``check_cancelled`` (called every ``_POLL_INTERVAL_S`` in this thread), shuts all servers down
    immediately. That ends reads that would last minutes, because their connections are lost.
    """
    with ThreadPoolExecutor(max_workers=len(instances)) as pool:
        try:
            futures = [pool.submit(warm, key) for key in instances]
            while wait(futures, _POLL_INTERVAL_S).not_done:
                check_cancelled()
        except BaseException:
            for instance in instances.values():
                with contextlib.suppress(OSError):  # a guest that does not respond is ended together with its servers
                    instance.signal_stop("immediate")
            raise
    for future in futures:
        future.result()


class SqlServer(Protocol):
    """Server that runs statements; ``pgherd.postgres.instance.Instance`` is one."""

    @property
    def name(self) -> str: ...

    def sql(self, statement: str, parameters: Sequence[Any] = (), *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Return the rows of one statement."""
        ...

    def disconnect(self, databases: Sequence[str] = ("postgres",)) -> None:
        """Close the kept connections."""
        ...


def require_consistent(server: SqlServer, database: Database) -> None:
    """Check a database's consistency conditions after a trial.

    Raises:
        TrialError: a condition is violated or cannot be checked.
    """
    import psycopg

    label = f"{'database' if database.schema_of is None else 'schema'} {database.name} of server {server.name}"
    try:
        if database.schema_of is not None:
            server.sql(f'SET search_path = "{database.name}"', database=database.dbname)
        violations = find(database.workload).violations(lambda statement: server.sql(statement, database=database.dbname))
    except (psycopg.Error, ValueError) as error:
        raise TrialError(f"the consistency of {label} cannot be checked: {str(error).strip()}") from None
    finally:
        server.disconnect([database.dbname])
    if violations:
        raise TrialError(f"{label} is inconsistent after the trial, so its results are discarded: {'; '.join(violations)}")


_ONLY_ITS_TABLES = """SELECT 1 / (count(*) > 0 AND bool_and(n.nspname = '{}'))::int
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND pg_table_is_visible(c.oid);
"""
"""pgbench script that fails unless a session finds tables by name, and all of them in the schema."""


def require_schema(server: Instance, database: Database) -> None:
    """Require that sessions of pgbench with the connection of a load find the tables of their schema, and no others.

    Raises:
        TrialError: they do not.
    """
    script = f"{server.data_dir}.schema-{database.name}.sql"
    server.node.write(script, _ONLY_ITS_TABLES.format(database.name).encode())
    address = ["-h", server.socket_dir, "-p", str(server.port), "-U", server.user, database.connection]
    argv = [server.installation.tool("pgbench"), "-n", "-M", "simple", "-c", "1", "-t", "1", "-f", "-", *address]
    tried = server.node.run(Command(argv, user=server.account, stdin=script))
    if tried.code != 0:
        raise TrialError(f"loads of schema {database.name} of server {server.name} do not use its tables: {tried.err.strip()[-300:]}")


_TROUBLE = re.compile(r"(WARNING|ERROR|FATAL|PANIC):  (?!the database system is)|LOG:  server process")


def log_ending(lines: Sequence[str]) -> str:
    """Return the last warnings and errors of a server's log, or its last lines if there are none."""
    if not lines:
        return "the server's log cannot be read"
    trouble = [line for line in lines if _TROUBLE.search(line)]
    return "\n".join(["the server's log ends with:", *(trouble[-4:] or lines[-2:])])


def memory_kill_message(container: str, kills: int) -> str:
    """Describe OOM kills in a container, with a remedy."""
    return (
        f"container {container} exceeded its memory limit, and the kernel killed {processes.counted(kills)} in it: raise --memory, "
        "or lower --scale or --set shared_buffers"
    )


class MemoryKills:
    """OOM kills in a run's containers: the increase of each cgroup's counter since the last reading. A counter that has fallen is of
    a new cgroup, as after an external server has restarted, and counts from 0.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._began = self._log_end = 0.0
        self._counted: dict[str, int] = {}
        self._seen: list[OomKill] = []

    def begin(self) -> None:
        """Start a trial: discard the kills of the previous one."""
        self._began, self._log_end = self._node.now(), cgroup_memory.log_end(self._node)
        self._seen = []

    def watch(self, containers: Mapping[str, Mapping[str, str]]) -> None:
        """Count new kills in cgroups that existed before the run, by container."""
        for name, groups in containers.items():
            total = cgroup_memory.oom_kills(self._node, groups)
            self._counted[name] = min(self._counted.get(name, total), total)

    def poll(self, container: str, groups: Mapping[str, str]) -> int:
        """Record and return the number of OOM kills in a container since the last call."""
        total = cgroup_memory.oom_kills(self._node, groups)
        counted = self._counted.get(container, 0)
        new = total - counted if total >= counted else total
        self._counted[container] = total
        if new > 0:
            self._seen.append(OomKill(container=container, processes=new, time=self._node.now()))
        return new

    def seen(self, containers: Mapping[str, Mapping[str, str]]) -> tuple[OomKill, ...]:
        """Return all OOM kills of this trial, after one more reading of these containers (name → cgroups)."""
        for name, groups in containers.items():
            self.poll(name, groups)
        victims = cgroup_memory.victims(self._node, self._log_end) if self._seen else []
        return tuple(with_victims(kill, victims, self._began) for kill in self._seen)

    def forget(self, container: str) -> None:
        """Discard the count of a container that was removed."""
        self._counted.pop(container, None)


def with_victims(kill: OomKill, victims: Sequence[OomVictim], began: float) -> OomKill:
    """Add the kernel log's details to a counted kill: processes, time, and the limit that was reached.

    ``victims`` are those since the trial ``began``. Their times are estimates and stay within the trial.
    """
    matching = [victim for victim in victims if posixpath.basename(victim.group) == kill.container][: kill.processes]
    if not matching:
        return kill
    by_container = any(victim.limited == victim.group for victim in matching)
    names = tuple(f"{victim.process} ({victim.pid})" for victim in matching)
    limit: Literal["container", "run"] = "container" if by_container else "run"
    return kill.model_copy(update={"time": min(max(matching[0].at, began), kill.time), "names": names, "limit": limit})
