"""Servers with pg_balloon for balloon.py and balloon_native.py: built, started in control groups, loaded by pgbench, removed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import slices

from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError, TrialError
from pgherd.node import interruption
from pgherd.node.local import LocalNode
from pgherd.node.process import environment, wrap
from pgherd.node.protocol import Command
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, initdb

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/extension"))
from built import build

MB = 1024 * 1024


@dataclass
class Home:
    """A directory with the extension built for one PostgreSQL, the servers that run below it, and the control group of each, if any."""

    place: Path
    installation: Installation
    servers: list[Instance] = field(default_factory=list)
    groups: dict[str, str | None] = field(default_factory=dict)

    def start(self, name: str, pool: int, sessions: int, own: dict[str, str] | None = None) -> Instance:
        """A running server with ``pool`` MB of shared_buffers; ``own`` are settings below pg_balloon. (None: without the library)."""
        node, account = LocalNode(), server_account()
        home = self.place / name
        home.mkdir(mode=0o755)
        home.chmod(0o755)
        initdb(node, self.installation, str(home / "data"), account=account)
        server = Instance(node, self.installation, str(home / "data"), str(home / "s"), account=account, name=name)
        settings = {
            "shared_buffers": f"{pool}MB", "max_connections": str(sessions + 20), "fsync": "off", "autovacuum": "off",
            "max_wal_size": "8GB", "checkpoint_timeout": "1h",
        }  # fmt: skip
        if own is not None:
            settings |= {"shared_preload_libraries": "pg_balloon"} | {f"pg_balloon.{key}": value for key, value in own.items()}
        server.write_settings(settings)
        self.groups[name] = memory_group(f"pgherd-balloon-{os.getpid()}-{name}")
        self.servers.append(server)
        self._start(server)
        server.sql("CREATE EXTENSION pg_prewarm")
        if own is not None:
            server.sql("CREATE EXTENSION pg_balloon")
        return server

    def start_again(self, server: Instance) -> None:
        """Stop it and start it, with new shared memory."""
        server.disconnect()
        server.stop("fast", 60)
        self._start(server)

    def _start(self, server: Instance) -> None:
        group = self.groups[server.name]
        server.start(join=(f"{group}/cgroup.procs",) if group else ())
        server.wait_ready()

    def close(self) -> None:
        """Stop the servers, then remove groups and directories; what fails is raised once the rest has been done."""
        with contextlib.ExitStack() as stack:  # the last one first
            stack.callback(shutil.rmtree, self.place, ignore_errors=True)
            for group in filter(None, self.groups.values()):
                stack.callback(remove_group, group)
            for server in self.servers:
                stack.callback(server.stop, "immediate", 10)


@contextlib.contextmanager
def home(kind: str) -> Iterator[Home]:
    """The first PostgreSQL of this kind with the extension; all is removed at the end, that by a signal too (``outcome.run``).

    Raises:
        CapabilityError: there is none.
    """
    found = [one for one in installations.find_all(LocalNode()) if one.kind == kind]
    if not found:
        raise CapabilityError(f"there is no {kind} PostgreSQL here; name another --kind")
    made = Home(Path(tempfile.mkdtemp(prefix="pgherd-balloon-", dir="/var/tmp")), found[0])
    try:
        made.place.chmod(0o755)
        made.installation = build(found[0], made.place).installation
        yield made
    finally:
        with interruption.undisturbed():
            made.close()


def memory_group(name: str) -> str | None:
    """A new control group that counts memory, if this account may make one."""
    for mount in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        path = f"{mount}/{name}"
        try:
            os.mkdir(path)
        except OSError:
            continue
        if os.path.exists(f"{path}/memory.stat"):
            return path
        os.rmdir(path)
    return None


def remove_group(path: str) -> None:
    """Remove a control group; its last processes may take some seconds to be gone."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            os.rmdir(path)
            return
        time.sleep(0.1)


def keep_the_rules(server: Instance) -> None:
    """Raises TrialError if the pool breaks a rule of the balloon: what it then holds is not to be trusted."""
    ((broken,),) = server.sql("SELECT pg_balloon_check()")
    if broken:
        raise TrialError(f"pg_balloon_check() found {broken} buffers that break a rule, where none may: a defect of pg_balloon")


def pgbench(server: Instance, words: Sequence[str]) -> subprocess.Popen[str]:
    """pgbench at work on a server, as the server's account."""
    where = ["-h", server.socket_dir, "-p", str(server.port), "-U", server.user, "postgres"]
    command = wrap(Command([server.installation.tool("pgbench"), *words, *where], user=server.account))
    return subprocess.Popen(command, env=environment({}), cwd="/", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finished(running: subprocess.Popen[str], timeout: float) -> str:
    """What pgbench said; raises TrialError if it failed."""
    out, errors = running.communicate(timeout=timeout)
    if running.returncode != 0:
        raise TrialError(f"pgbench failed: {errors[-500:]}")
    return out


def load(server: Instance, words: Sequence[str], longest: float, logs: Path) -> slices.Load:
    """pgbench that goes on at a server for ``longest`` seconds at most, for slices; it logs into the directory ``logs``, made anew."""
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    logs.chmod(0o777)
    words = ["-n", "-M", "prepared", *words, "-l", f"--log-prefix={logs}/log", f"--sampling-rate={slices.SAMPLING}", "-T", f"{longest:.0f}"]
    return slices.Load(pgbench(server, words), logs, slices.ServerCpu(server.pid))
