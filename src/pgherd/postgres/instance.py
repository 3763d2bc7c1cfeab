"""PostgreSQL server of pgherd: initdb, start, readiness, settings, stop, and cleanup after a kill."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pgherd.host import shared_memory
from pgherd.host.paths import SOCKET_PATH_MAX
from pgherd.model.errors import TrialError, UsageError
from pgherd.node.files import FileEnd, UnsafeFileError
from pgherd.node.protocol import Command, Node, Process
from pgherd.postgres import configuration, tcp_access
from pgherd.postgres.installations import Installation
from pgherd.postgres.settings import DIFFERING, differing

StopMode = Literal["fast", "immediate"]

SUPERUSER = "postgres"
"""Database superuser of every private server, independent of its operating system user."""
WRITABLE = "SET default_transaction_read_only = off"
"""Statement after which a connection may write to a server whose transactions are read-only by default (--read-only)."""

# pg_file_settings also reports an error for a setting that requires a restart. The query excludes these.
_REJECTED = """SELECT 1 FROM pg_file_settings f LEFT JOIN pg_settings s USING (name)
WHERE f.error IS NOT NULL AND NOT coalesce(s.pending_restart, false)"""


def checksums_default(major: int) -> bool:
    """Return True if initdb enables data checksums by default (since PostgreSQL 18)."""
    return major >= 18


def initdb_arguments(major: int, *, checksums: bool | None = None) -> list[str]:
    """Return initdb's arguments except the data directory. ``checksums`` None means the default of the version.

    The collation is by byte order in all versions, so that versions and hosts are comparable. The builtin provider's
    C.UTF-8 (since 17) requires no locale of the system.

    Authentication is 'trust'. This is safe because the server listens only on a Unix socket in a directory of mode 0700,
    which only its user and root can reach. Host connections are rejected even if listen_addresses is set.
    """
    arguments = [f"--username={SUPERUSER}", "--encoding=UTF8", "--locale=C", "--auth-local=trust", "--auth-host=reject", "--no-sync"]
    if major >= 16:  # initdb's own servers would try the host's huge pages, which a container may not be allowed to touch (SIGBUS)
        arguments += ["--set", "huge_pages=off"]
    if major >= 17:
        arguments += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    if checksums is not None and checksums != checksums_default(major):
        arguments.append("--data-checksums" if checksums else "--no-data-checksums")
    return arguments


def initdb(node: Node, installation: Installation, data_dir: str, *, account: str | None, checksums: bool | None = None) -> None:
    """Create an empty data directory, owned by ``account``. It is not synced to disk.

    Raises:
        TrialError: initdb fails. The message contains its error.
    """
    node.make_dir(data_dir, mode=0o700, user=account)
    argv = [installation.tool("initdb"), "-D", data_dir, *initdb_arguments(installation.major, checksums=checksums)]
    # SIGTERM lets initdb's server finish first. After SIGKILL it would leave shared memory behind.
    completed = node.run(Command(argv, user=account, death_signal="TERM"), timeout=300)
    if completed.code != 0:
        lines = completed.err.strip().splitlines()
        errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
        raise TrialError(f"initdb of PostgreSQL {installation.version} failed in {data_dir}: {' '.join(errors)}")


class Instance:
    """Private server on ``data_dir``, a data directory owned by ``account`` (None: the current user).

    It listens only on a Unix socket in ``socket_dir``, a directory of mode 0700 owned by ``account``. This makes 'trust'
    authentication safe (see ``initdb_arguments``). With ``access`` (a server in a guest) it also listens on TCP, where the
    superuser requires the password. ``conninfo`` and ``sql`` then use TCP, and drivers in the guest the socket. With
    ``opening`` it also listens on TCP with TLS for clients on other hosts, and pgherd still uses the socket.

    The log file is ``log``, by default the path of the data directory with '.log' appended. The directory of the log must
    not belong to ``account``, which could exchange the log for a link. ``write_settings`` replaces
    postgresql.conf completely, so that settings that initdb derived from the host have no effect. The next ``start`` is
    under SCHED_BATCH if ``sched_batch`` is true.
    """

    user = SUPERUSER

    def __init__(
        self,
        node: Node,
        installation: Installation,
        data_dir: str,
        socket_dir: str,
        *,
        account: str | None = None,
        name: str = "pg",
        port: int = 5432,
        log: str | None = None,
        access: tcp_access.TcpAccess | None = None,
        opening: tcp_access.TcpListener | None = None,
    ) -> None:
        """Raise UsageError if the path of the socket is longer than the kernel allows."""
        self.node = node
        self.installation = installation
        self.data_dir = data_dir
        self.socket_dir = socket_dir
        self.account = account
        self.name = name
        self.port = port
        self.log = log or f"{data_dir}.log"
        self.access = access
        self._opening = opening
        self.sched_batch = False
        self._admitted = False
        self._process: Process | None = None
        self._log_start = 0
        socket = os.path.join(socket_dir, f".s.PGSQL.{port}")
        if len(os.fsencode(socket)) > SOCKET_PATH_MAX:
            raise UsageError(
                f"the socket path {socket} has {len(os.fsencode(socket))} bytes, but the kernel allows {SOCKET_PATH_MAX}; "
                "use a shorter directory for sockets"
            )

    @property
    def bin(self) -> str:
        """Directory of the server's programs."""
        return self.installation.bin

    @property
    def pid(self) -> int:
        """The postmaster's pid; raises TrialError before ``start``."""
        if self._process is None:
            raise TrialError(f"server {self.name} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """True while the postmaster started by this object runs."""
        return self._process is not None and self._process.poll() is None

    def conninfo(self, database: str = "postgres") -> str:
        """Return the conninfo of the superuser, for connections from this process. A password is referenced by its file."""
        from psycopg.conninfo import make_conninfo

        if self.access is not None:
            address = {"host": self.access.host, "port": str(self.access.port), "passfile": self.access.password_file}
            address["connect_timeout"] = "10"  # a port forwarder accepts connections even if the guest does not respond
            return make_conninfo(**address, user=self.user, dbname=database, application_name="pgherd")
        return make_conninfo(host=self.socket_dir, port=str(self.port), user=self.user, dbname=database, application_name="pgherd")

    def sql(self, statement: str, parameters: Sequence[Any] = (), *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement on the node's open connection; raises psycopg.Error."""
        return self.node.sql(self.conninfo(database), statement, parameters)

    def write_settings(self, settings: Mapping[str, str]) -> None:
        """Write postgresql.conf with these settings and the private ones. It takes effect at ``start`` or ``reload``."""
        if self.access is not None or self._opening is not None:
            rules = tcp_access.HBA if self._opening is None else tcp_access.TLS_HBA
            self.node.write(os.path.join(self.data_dir, "pg_hba.conf"), rules.encode(), user=self.account)
        private = {
            "listen_addresses": "" if self.access is None else self.access.listen,
            "unix_socket_directories": self.socket_dir,
            "port": str(self.port),
            "cluster_name": self.name,
            **({} if self._opening is None else self._opening.settings()),
        }
        text = configuration.write({**settings, **private})
        self.node.write(os.path.join(self.data_dir, "postgresql.conf"), text.encode(), user=self.account)

    def start(self, join: tuple[str, ...] = (), cpus: tuple[int, ...] | None = None) -> None:
        """Spawn the postmaster into its container and return immediately. Call ``wait_ready`` to wait until it is ready.

        The postmaster is spawned directly and not by pg_ctl, so that it is a child process: its exit code is available,
        and it receives SIGQUIT if pgherd exits. Call this from a thread that outlives the server (see ``Node.spawn``).
        """
        if self.running:
            raise TrialError(f"server {self.name} already runs as process {self.pid}")
        self.node.make_dir(self.socket_dir, mode=0o700, user=self.account)
        self._log_start = self._read_log().size
        self._admitted = False
        self._process = self.node.spawn(
            Command(
                [self.installation.tool("postgres"), "-D", self.data_dir],
                join=join,
                cpus=cpus,
                user=self.account,
                death_signal="QUIT",
                sched_batch=self.sched_batch,
                stdout=self.log,
                stderr=self.log,
            )
        )

    def ready(self) -> bool:
        """Return True if postmaster.pid reports that the server accepts connections.

        Raises:
            TrialError: The postmaster has exited. The message contains the last lines of its log.
        """
        if not self.running:
            raise TrialError(f"server {self.name} {self.ending()} while starting; its log ends with:\n{self.log_tail(8)}")
        try:
            path = os.path.join(self.data_dir, "postmaster.pid")
            lines = self.node.read_untrusted(path).decode(errors="replace").splitlines()
        except UnsafeFileError as error:
            raise TrialError(f"server {self.name} cannot be watched: {error}") from None
        except OSError:
            return False
        # Lines: pid, data directory, start time, port, socket directory, listen address, shared memory key, status.
        return len(lines) >= 8 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready"

    def admit(self) -> None:
        """Set the superuser's password for TCP, if TCP is used. A cloned data directory does not contain it.

        Raises:
            TrialError: The server rejects the statement.
        """
        credentials = self.access or self._opening
        if credentials is None or self._admitted:
            return
        statement = f"{self.data_dir}.password.sql"  # contains the verifier; read from standard input, it appears in no command line
        self.node.write(statement, tcp_access.set_password(self.user, credentials.password).encode())
        address = ["-h", self.socket_dir, "-p", str(self.port), "-U", self.user, "-d", "postgres"]
        psql = Command([self.installation.tool("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", *address], user=self.account, stdin=statement)
        try:
            completed = self.node.run(psql)
        except TimeoutError as error:
            raise TrialError(f"server {self.name} does not accept the password for TCP: {error}") from None
        self.node.write(statement, b"")
        if completed.code != 0:
            raise TrialError(f"server {self.name} does not accept the password for TCP: {completed.err.strip() or completed.out.strip()}")
        self._admitted = True

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until the server accepts connections and has answered a query.

        Raises:
            TrialError: The server exits, is not ready within ``timeout`` seconds (it may be recovering), or has another
                version than its installation.
        """
        wait_all_ready([self], timeout)

    def stop(self, mode: StopMode = "fast", timeout: float = 60.0) -> None:
        """Shut down and wait for the exit. 'fast' writes a checkpoint, 'immediate' requires recovery at the next start.

        After ``timeout`` seconds the server is shut down in mode 'immediate', and killed 10 s later. The shared memory of a
        killed server is removed. A stopped server is left unchanged.
        """
        stop_all([self], mode, timeout)

    def signal_stop(self, mode: StopMode) -> None:
        """Start the shutdown and return immediately."""
        if self._process is not None:
            self._process.signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)

    def wait_stopped(self, timeout: float) -> None:
        """Wait for the end of the shutdown, and enforce it as in ``stop``."""
        if self._process is None:
            return
        for patience, harder in ((timeout, signal.SIGQUIT), (10.0, signal.SIGKILL)):
            try:
                self._process.wait(patience)
                break
            except TimeoutError:
                self._process.signal(harder)
        if self._process.wait(10.0) < 0 and self.access is None:  # in a guest the next server releases the memory
            shared_memory.release(self.node, self.data_dir)

    def kill(self) -> None:
        """Kill the postmaster with SIGKILL, to test recovery. Its child processes detect this and exit.

        Its shared memory remains until ``stop``, the next start or the journal removes it.
        """
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
            self._process.wait(10.0)

    def reload(self, timeout: float = 10.0) -> None:
        """Reload the settings of the running server and wait until they are in effect.

        Raises:
            TrialError: The reload does not happen in time, or the file has errors. The message contains the server's log.
        """
        load_time = "SELECT pg_conf_load_time()"
        previous, log_start = self.sql(load_time), self._read_log().size
        if self._process is None:
            raise TrialError(f"server {self.name} has not been started")
        self._process.signal(signal.SIGHUP)
        deadline = time.monotonic() + timeout
        while True:
            # The postmaster forks each new connection, so a new one reports the time at which the postmaster read the file.
            self.node.disconnect(self.conninfo())
            if self.sql(load_time) != previous:
                break
            if time.monotonic() > deadline:
                raise TrialError(f"server {self.name} did not reload its settings within {timeout:.0f} s:\n{self.log_tail(4)}")
            time.sleep(0.02)
        if self.sql(_REJECTED):
            messages = self._read_log().after(log_start).strip()
            raise TrialError(f"server {self.name} does not accept its new settings:\n{messages}")

    def checkpoint(self) -> None:
        """Write a checkpoint now, so that checkpoint_timeout starts over."""
        self.sql("CHECKPOINT")

    def differing(self) -> dict[str, str]:
        """Return the settings of the running server that differ from their default."""
        return differing((name, setting, boot, source, shown) for name, setting, boot, source, shown in self.sql(DIFFERING))

    def disconnect(self, databases: Sequence[str] = ()) -> None:
        """Close the node's open connections to these databases and to 'postgres'."""
        for database in {"postgres", *databases}:
            self.node.disconnect(self.conninfo(database))

    def ending(self) -> str:
        """Describe how the postmaster ended, as a predicate for messages."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return "has not ended"
        return f"ended with exit code {code}" if code >= 0 else f"was ended by signal {signal.Signals(-code).name}"

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the log since the last start."""
        try:
            return "\n".join(self._read_log().after(self._log_start).splitlines()[-lines:])
        except TrialError as error:
            return str(error)

    def _read_log(self) -> FileEnd:
        """Read the end of the log, to which the server, and so its SQL, can write without limit.

        Raises:
            TrialError: it is a link or no regular file.
        """
        try:
            return self.node.read_end(self.log)
        except UnsafeFileError as error:
            raise TrialError(f"the log of server {self.name} cannot be read: {error}") from None
        except OSError:
            return FileEnd(0, b"")


Launch = tuple[Instance, tuple[str, ...], tuple[int, ...] | None]
"""Instance with the ``join`` files and ``cpus`` of its container."""


def start_all(launches: Sequence[Launch], timeout: float = 60.0) -> None:
    """Start servers concurrently and wait until all are ready. If one fails, stop all of them.

    Raises:
        TrialError: As in ``Instance.wait_ready``.
    """
    instances = [instance for instance, _, _ in launches]
    try:
        for instance, join, cpus in launches:
            instance.start(join, cpus)
        wait_all_ready(instances, timeout)
    except BaseException:
        stop_all(instances, "immediate", 10.0)
        raise


def wait_all_ready(instances: Sequence[Instance], timeout: float = 60.0) -> None:
    """Wait until all servers accept connections and have answered a query; raises TrialError."""
    deadline = time.monotonic() + timeout
    pending = list(instances)
    while pending:
        polled = time.monotonic()
        pending = [instance for instance in pending if not (instance.ready() and _answers(instance))]
        if pending and time.monotonic() > deadline:
            names = ", ".join(instance.name for instance in pending)
            raise TrialError(f"not ready within {timeout:.0f} s: {names}; the log of the first ends with:\n{pending[0].log_tail(8)}")
        if pending:  # polling a guest is slow and takes CPU time from its start, so poll it less often
            time.sleep(min(0.1, max(0.01, 3 * (time.monotonic() - polled))))


def _answers(instance: Instance) -> bool:
    import psycopg

    try:
        instance.admit()
        version = str(instance.sql("SHOW server_version")[0][0])
    except psycopg.OperationalError:
        return False
    instance.disconnect()
    expected = instance.installation
    if version != (expected.build or version) or version.split()[0] != expected.version:  # as by an unattended upgrade
        raise TrialError(
            f"server {instance.name} is PostgreSQL {version}, but {expected.bin} held {expected.build or expected.version} when the run "
            "started: PostgreSQL was upgraded during the run; start a new run"
        )
    return True


def stop_all(instances: Sequence[Instance], mode: StopMode = "fast", timeout: float = 60.0) -> None:
    """Stop servers concurrently, as in ``Instance.stop``."""
    _each(instances, lambda instance: instance.disconnect())
    _each(instances, lambda instance: instance.signal_stop(mode))
    deadline = time.monotonic() + timeout
    _each(instances, lambda instance: instance.wait_stopped(max(0.1, deadline - time.monotonic())))


def _each(instances: Sequence[Instance], action: Callable[[Instance], None]) -> None:
    """Apply the action to all instances, then raise the first error."""
    errors: list[Exception] = []
    for instance in instances:
        try:
            action(instance)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
