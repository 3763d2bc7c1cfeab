"""One PostgreSQL server: start, readiness, settings, stop, and what it leaves behind when it is killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pgherd.host import shared_memory
from pgherd.host.paths import SOCKET_PATH_MAX
from pgherd.model.errors import TrialError, UsageError
from pgherd.node.protocol import Command, Node, Process
from pgherd.postgres import configuration, tcp_access
from pgherd.postgres.initdb import SUPERUSER
from pgherd.postgres.installations import Installation
from pgherd.postgres.settings import DIFFERING, differing

StopMode = Literal["fast", "immediate"]

# A setting that waits for a restart is also reported as one that could not be applied; that is no error.
_REFUSED = """SELECT 1 FROM pg_file_settings f LEFT JOIN pg_settings s USING (name)
WHERE f.error IS NOT NULL AND NOT coalesce(s.pending_restart, false)"""


class Instance:
    """A private server in ``data_dir``, which must hold a cluster owned by ``account`` (None: our own account).

    It listens on a Unix socket in ``socket_dir`` only, a directory of mode 0700 that belongs to ``account``: that is
    why 'trust' authentication is safe (see ``initdb.arguments``). With ``access`` (a server in a guest) it also listens on
    TCP, where the superuser needs the password; ``conninfo`` and ``sql`` then go that way, drivers inside still by the socket.
    With ``opening`` it listens on TCP as well, with TLS, for clients on other hosts; pgherd itself uses the socket as ever.
    Its log is ``log``, by default the data directory's path with '.log' appended. postgresql.conf is written whole by
    ``write_settings``, so that nothing that initdb found out about the machine slips in.
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
        opening: tcp_access.Opening | None = None,
    ) -> None:
        """Nothing happens yet. Raises UsageError when the socket's path would be longer than the kernel allows."""
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
        self._admitted = False
        self._process: Process | None = None
        self._log_start = 0
        socket = os.path.join(socket_dir, f".s.PGSQL.{port}")
        if len(os.fsencode(socket)) > SOCKET_PATH_MAX:
            raise UsageError(
                f"the socket's path {socket} has {len(os.fsencode(socket))} bytes, but the kernel allows {SOCKET_PATH_MAX}; "
                "use a shorter directory for sockets"
            )

    @property
    def bin(self) -> str:
        """Directory of the server's programs."""
        return self.installation.bin

    @property
    def pid(self) -> int:
        """The postmaster's pid; raises TrialError if it was not started by us."""
        if self._process is None:
            raise TrialError(f"server {self.name} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the postmaster that we started still runs."""
        return self._process is not None and self._process.poll() is None

    def conninfo(self, database: str = "postgres") -> str:
        """How to connect as superuser, from where this process runs; a password is named by its file."""
        from psycopg.conninfo import make_conninfo

        if self.access is not None:
            way = {"host": self.access.host, "port": str(self.access.port), "passfile": self.access.password_file}
            way["connect_timeout"] = "10"  # whoever forwards the port accepts, though the guest may not answer
            return make_conninfo(**way, user=self.user, dbname=database, application_name="pgherd")
        return make_conninfo(host=self.socket_dir, port=str(self.port), user=self.user, dbname=database, application_name="pgherd")

    def sql(self, statement: str, parameters: Sequence[Any] = (), *, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement on the node's kept connection; raises psycopg.Error."""
        return self.node.sql(self.conninfo(database), statement, parameters)

    def write_settings(self, settings: Mapping[str, str]) -> None:
        """Write postgresql.conf: these settings, and the ones that make the server private. Takes effect at ``start`` or ``reload``."""
        if self.access is not None or self._opening is not None:
            admitted = tcp_access.HBA if self._opening is None else tcp_access.TLS_HBA
            self.node.write(os.path.join(self.data_dir, "pg_hba.conf"), admitted.encode())
        private = {
            "listen_addresses": "" if self.access is None else self.access.listen,
            "unix_socket_directories": self.socket_dir,
            "port": str(self.port),
            "cluster_name": self.name,
            **({} if self._opening is None else self._opening.settings()),
        }
        self.node.write(os.path.join(self.data_dir, "postgresql.conf"), configuration.write({**settings, **private}).encode())

    def start(self, join: tuple[str, ...] = (), cpus: tuple[int, ...] | None = None) -> None:
        """Spawn the postmaster into its container and return at once; ``wait_ready`` tells when it serves.

        It is spawned directly rather than by pg_ctl, so that it is our child: we see how it ends, and it shuts down
        at once (SIGQUIT) if we die. Call it from a thread that outlives the server (see ``Node.spawn``).
        """
        if self.running:
            raise TrialError(f"server {self.name} already runs, as process {self.pid}")
        self.node.make_dir(self.socket_dir, mode=0o700, user=self.account)
        self._log_start = len(self._read_log())
        self._admitted = False
        self._process = self.node.spawn(
            Command(
                [self.installation.tool("postgres"), "-D", self.data_dir],
                join=join,
                cpus=cpus,
                user=self.account,
                death_signal="QUIT",
                stdout=self.log,
                stderr=self.log,
            )
        )

    def ready(self) -> bool:
        """Whether the postmaster says that it accepts connections.

        Raises:
            TrialError: it has ended; the message holds the last lines of its log.
        """
        if not self.running:
            raise TrialError(f"server {self.name} {self.ending()} while starting; its log ends with:\n{self.log_tail(8)}")
        try:
            lines = self.node.read(os.path.join(self.data_dir, "postmaster.pid")).decode(errors="replace").splitlines()
        except OSError:
            return False
        # Lines: pid, data directory, start time, port, socket directory, listen address, shared memory key, status.
        return len(lines) >= 8 and lines[0].strip() == str(self.pid) and lines[7].strip() == "ready"

    def admit(self) -> None:
        """Let the superuser in over TCP, if that is asked: a server that was copied or restored does not know the password yet.

        Raises:
            TrialError: the server refuses it.
        """
        outside = self.access or self._opening
        if outside is None or self._admitted:
            return
        statement = f"{self.data_dir}.password.sql"  # of the verifier; on the standard input it is in no command line
        self.node.write(statement, tcp_access.set_password(self.user, outside.password).encode())
        way = ["-h", self.socket_dir, "-p", str(self.port), "-U", self.user, "-d", "postgres"]
        psql = Command([self.installation.tool("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", *way], user=self.account, stdin=statement)
        try:
            done = self.node.run(psql)
        except TimeoutError as error:
            raise TrialError(f"server {self.name} does not take the password for TCP: {error}") from None
        self.node.write(statement, b"")
        if done.code != 0:
            raise TrialError(f"server {self.name} does not take the password for TCP: {done.err.strip() or done.out.strip()}")
        self._admitted = True

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until it accepts connections, and has answered one.

        Raises:
            TrialError: it ended, was not ready within ``timeout`` seconds (it may be recovering), or is of another version than its
                installation was found to be.
        """
        wait_all_ready([self], timeout)

    def stop(self, mode: StopMode = "fast", timeout: float = 60.0) -> None:
        """Shut down and wait for the end. 'fast' writes a checkpoint; 'immediate' leaves recovery to the next start.

        What does not end within ``timeout`` seconds is shut down immediately, and after ten more killed. What a killed
        server left in shared memory is removed. Does nothing if it does not run.
        """
        stop_all([self], mode, timeout)

    def signal_stop(self, mode: StopMode) -> None:
        """Begin to shut down; returns at once."""
        if self._process is not None:
            self._process.signal(signal.SIGINT if mode == "fast" else signal.SIGQUIT)

    def wait_stopped(self, timeout: float) -> None:
        """Wait for the end of a shutdown that was begun, and enforce it as ``stop`` says."""
        if self._process is None:
            return
        for patience, harder in ((timeout, signal.SIGQUIT), (10.0, signal.SIGKILL)):
            try:
                self._process.wait(patience)
                break
            except TimeoutError:
                self._process.signal(harder)
        if self._process.wait(10.0) < 0 and self.access is None:  # a guest's memory is not ours to look into: its next server does it
            shared_memory.release(self.node, self.data_dir)

    def kill(self) -> None:
        """End the postmaster with SIGKILL, to see what comes of it; its children notice and end by themselves.

        Its shared memory is left as it is, until ``stop``, the next start, or the journal removes it.
        """
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
            self._process.wait(10.0)

    def reload(self, timeout: float = 10.0) -> None:
        """Make the running server read its settings again, and wait until it has.

        Raises:
            TrialError: it did not, or the file has errors; the message holds the server's own words.
        """
        asked = "SELECT pg_conf_load_time()"
        before, said = self.sql(asked), len(self._read_log())
        if self._process is None:
            raise TrialError(f"server {self.name} has not been started")
        self._process.signal(signal.SIGHUP)
        deadline = time.monotonic() + timeout
        while True:
            # A new connection is forked by the postmaster and so has the time at which that read the file.
            self.node.disconnect(self.conninfo())
            if self.sql(asked) != before:
                break
            if time.monotonic() > deadline:
                raise TrialError(f"server {self.name} did not read its settings again within {timeout:.0f} s:\n{self.log_tail(4)}")
            time.sleep(0.02)
        if self.sql(_REFUSED):
            words = self._read_log()[said:].decode(errors="replace").strip()
            raise TrialError(f"server {self.name} does not accept its new settings:\n{words}")

    def checkpoint(self) -> None:
        """Write a checkpoint now, so that a timed one is as far away as checkpoint_timeout allows."""
        self.sql("CHECKPOINT")

    def differing(self) -> dict[str, str]:
        """Settings that differ from the default, as the running server says."""
        return differing((name, setting, boot, source, shown) for name, setting, boot, source, shown in self.sql(DIFFERING))

    def disconnect(self, databases: Sequence[str] = ()) -> None:
        """Close the node's kept connections to these databases and to 'postgres'."""
        for database in {"postgres", *databases}:
            self.node.disconnect(self.conninfo(database))

    def ending(self) -> str:
        """How the postmaster ended, in words."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return "has not ended"
        return f"ended with exit code {code}" if code >= 0 else f"was ended by signal {signal.Signals(-code).name}"

    def log_tail(self, lines: int = 20) -> str:
        """The last lines of the log since the last start."""
        return "\n".join(self._read_log()[self._log_start :].decode(errors="replace").splitlines()[-lines:])

    def _read_log(self) -> bytes:
        try:
            return self.node.read(self.log)
        except OSError:
            return b""


Launch = tuple[Instance, tuple[str, ...], tuple[int, ...] | None]
"""An instance with the ``join`` files and ``cpus`` of its container."""


def start_all(launches: Sequence[Launch], timeout: float = 60.0) -> None:
    """Start servers side by side and wait until all are ready; if one fails, all of them are stopped again.

    Raises:
        TrialError: as ``Instance.wait_ready``.
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
    """Wait until all accept connections and have answered one; raises TrialError."""
    deadline = time.monotonic() + timeout
    pending = list(instances)
    while pending:
        looked = time.monotonic()
        pending = [instance for instance in pending if not (instance.ready() and _answers(instance))]
        if pending and time.monotonic() > deadline:
            names = ", ".join(instance.name for instance in pending)
            raise TrialError(f"not ready within {timeout:.0f} s: {names}; the log of the first ends with:\n{pending[0].log_tail(8)}")
        if pending:  # looking into a guest takes it longer than looking here, and takes it CPU with which it could start
            time.sleep(min(0.1, max(0.01, 3 * (time.monotonic() - looked))))


def _answers(instance: Instance) -> bool:
    import psycopg

    try:
        instance.admit()
        said = str(instance.sql("SHOW server_version")[0][0])
    except psycopg.OperationalError:
        return False
    instance.disconnect()
    found = instance.installation
    if said != (found.build or said) or said.split()[0] != found.version:  # as by an unattended upgrade
        raise TrialError(
            f"server {instance.name} is PostgreSQL {said}, but {found.bin} held {found.build or found.version} when the run began: it was "
            "upgraded meanwhile; start a new run"
        )
    return True


def stop_all(instances: Sequence[Instance], mode: StopMode = "fast", timeout: float = 60.0) -> None:
    """Stop servers side by side; see ``Instance.stop``."""
    _each(instances, lambda instance: instance.disconnect())
    _each(instances, lambda instance: instance.signal_stop(mode))
    deadline = time.monotonic() + timeout
    _each(instances, lambda instance: instance.wait_stopped(max(0.1, deadline - time.monotonic())))


def _each(instances: Sequence[Instance], action: Callable[[Instance], None]) -> None:
    """Do it for each, and raise the first error only after all had their turn."""
    errors: list[Exception] = []
    for instance in instances:
        try:
            action(instance)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
