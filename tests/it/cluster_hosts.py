"""Hosts of a cluster on one machine: each a network, process and mount namespace of its own with its own SSH server, joined by a bridge.

The driver has a network namespace, too, which holds the bridge: the machine's own network is not touched. Nothing of /etc/ssh or
~/.ssh is read or changed. All processes of a host end with its first one, which the kernel kills when whoever made the bed dies.
Each host may have a control group of its own with a share of this machine, which pgherd on it takes for the machine's limits.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgherd.host import netns
from pgherd.host.cgroup_parent import read_layout
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Process

NETWORK = "10.204.0"
DRIVER = f"{NETWORK}.254"
BRIDGE = "bed"
_CLONE_NEWNET = 0x40000000
_UP = 20.0
_GROUP = "bed-of-pid-"

_SSHD = """
Port 22
ListenAddress {address}
HostKey {root}/host_key
PidFile none
AuthorizedKeysFile {root}/user_key.pub
StrictModes no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
MaxStartups 100
SetEnv {environment}
"""

_CLIENT = """
Host {names}
    User root
    IdentityFile {root}/user_key
    IdentitiesOnly yes
    UserKnownHostsFile {root}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking accept-new
    LogLevel ERROR
"""

# sshd wants its directory in /run. A /run of the host's own also keeps sockets and ledgers of hosts apart.
_INIT = 'mount -t tmpfs -o mode=755 run /run && mkdir -m 755 /run/sshd && exec /usr/sbin/sshd -D -e -f "$1"'


class NotToBeHad(Exception):
    """Why there can be no such hosts here."""


@dataclass
class Bed:
    """The hosts, by ``up`` until ``down``. ``skew``: host → seconds by which its agent's clock is wrong. ``cores`` and ``memory`` (bytes)
    are each host's budget, None for no group of its own."""

    root: Path
    names: Sequence[str] = ("a", "b", "c", "d")
    skew: Mapping[str, float] = field(default_factory=dict)
    cores: float | None = None
    memory: int | None = None

    def __post_init__(self) -> None:
        self.node = LocalNode()
        self.driver: Process | None = None
        self.holders: dict[str, Process] = {}
        self.groups: list[Path] = []

    # ---- making and removing

    def up(self) -> Bed:
        """Make all of it; raises NotToBeHad."""
        self._insist()
        _sweep_groups()
        try:
            for key in ("host_key", "user_key"):
                self._run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.root / key))
            self.config.write_text(
                _CLIENT.format(names=" ".join(self.names), root=self.root)
                + "".join(f"Host {name}\n    HostName {self.address(name)}\n" for name in self.names)
            )
            self.driver = self._hold("unshare", "--net", "sleep", "infinity")
            self._bridge()
            for name in self.names:
                self._host(name)
            deadline = time.monotonic() + _UP
            for name in self.names:
                while self.ssh(name, "true").returncode:
                    if time.monotonic() > deadline:
                        raise NotToBeHad(f"sshd of {name} does not answer: {(self.root / name / 'sshd.log').read_text()}")
                    time.sleep(0.05)
        except BaseException:
            self.down()
            raise
        return self

    def start_agents(self) -> None:
        """``cluster start`` on all of them."""
        ended = self.pgherd("cluster", "start", "--hosts", ",".join(self.names), "--ssh-config", str(self.config))
        assert ended.returncode == 0, ended.stderr

    def down(self) -> None:
        """End every process of every host, and with them their namespaces."""
        for holder in [*self.holders.values(), *([self.driver] if self.driver else [])]:
            holder.signal(signal.SIGKILL)
            holder.wait(10)
        self.holders, self.driver = {}, None
        for group in self.groups:
            _remove_group(group)
        self.groups = []

    def __enter__(self) -> Bed:
        return self.up()

    def __exit__(self, *exception: object) -> None:
        self.down()

    # ---- using it

    @property
    def config(self) -> Path:
        """For ``ssh -F``."""
        return self.root / "ssh_config"

    def address(self, name: str) -> str:
        """A host's address."""
        return f"{NETWORK}.{self.names.index(name) + 1}"

    def places(self, name: str) -> dict[str, str]:
        """The environment that a host's programs get: its own state and cache, and a wrong clock."""
        own = {"XDG_STATE_HOME": str(self.root / name / "state"), "XDG_CACHE_HOME": str(self.root / name / "cache")}
        return own | ({"PGHERD_TEST_CLOCK_SKEW": str(self.skew[name])} if name in self.skew else {})

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """The calling thread, and what it starts meanwhile, stands in the driver's network."""
        assert self.driver is not None
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        file = os.open(f"/proc/{self.driver.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(file)
            yield
        finally:
            _enter(before)
            os.close(file)
            os.close(before)

    def environment(self) -> dict[str, str]:
        """For pgherd as the driver."""
        retained = {name: value for name, value in os.environ.items() if not name.startswith(("PGHERD_", "XDG_"))}
        mine = {"XDG_STATE_HOME": str(self.root / "driver/state"), "XDG_CACHE_HOME": str(self.root / "driver/cache")}
        return retained | mine | {"PGHERD_RUNS": str(self.root / "driver/runs"), "COLUMNS": "200"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start pgherd as the driver."""
        with self.inside():
            return subprocess.Popen(
                [sys.executable, "-P", "-m", "pgherd", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=self.environment(),
                cwd="/",
            )

    def pgherd(self, *arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run pgherd as the driver to its end."""
        process = self.start(*arguments)
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def ssh(self, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command on a host."""
        with self.inside():
            return subprocess.run(
                ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", name, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )

    @contextlib.contextmanager
    def without(self, name: str, program: str) -> Iterator[None]:
        """A host on which this program is not to be had: in its own mount namespace nothing executable stands in its place."""
        location = shutil.which(program)
        assert location is not None
        within = ("nsenter", "--target", str(self._first(name)), "--mount", "--pid", "--")
        self._run(*within, "mount", "--bind", "/dev/null", location)
        try:
            yield
        finally:
            self._run(*within, "umount", location)

    @contextlib.contextmanager
    def hidden(self, name: str, directory: Path) -> Iterator[None]:
        """A host on which this directory is an empty file system of 64 MB: in its own mount namespace that is mounted over it."""
        within = ("nsenter", "--target", str(self._first(name)), "--mount", "--pid", "--")
        self._run(*within, "mount", "-t", "tmpfs", "-o", "mode=755,size=64m", "hidden", str(directory))
        try:
            yield
        finally:
            self._run(*within, "umount", str(directory))

    def cut(self, name: str) -> None:
        """Cut a host off in the middle of the way: both ends of its link stay up, so that nobody is told."""
        self._ip("link", "set", f"to-{name}", "nomaster")

    def mend(self, name: str) -> None:
        """Join it again."""
        self._ip("link", "set", f"to-{name}", "master", BRIDGE)

    def pids(self, name: str, word: str = "") -> list[int]:
        """This machine's pids of a host's processes that have the word in their command line (sshd and what it starts for a session
        left out)."""
        namespace = _namespace(self._first(name))
        collected = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                line = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                if word in line and "sshd" not in line.partition(" ")[0] and line and _namespace(int(entry.name)) == namespace:
                    collected.append(int(entry.name))
        return collected

    def agent(self, name: str) -> int:
        """This machine's pid of a host's agent."""
        found = self.pids(name, "pgherd.cluster.agent_process")
        parents = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in found}
        # A child has the agent's command line until it runs its program.
        (pid,) = [pid for pid, parent in parents.items() if parent not in found]
        return pid

    # ---- the parts

    def _first(self, name: str) -> int:
        holder = self.holders[name].pid
        children = Path(f"/proc/{holder}/task/{holder}/children").read_text().split()
        return int(children[0])

    def _insist(self) -> None:
        try:
            netns.require_root(self.node)
        except CapabilityError as error:
            raise NotToBeHad(str(error)) from error
        for tool in ("/usr/sbin/sshd", "ssh", "ssh-keygen"):
            if shutil.which(tool) is None:
                raise NotToBeHad(f"{tool} is missing; install openssh-server and openssh-client")
        if self.node.run(Command(["unshare", "--net", "ip", "link", "add", BRIDGE, "type", "bridge"])).code:
            raise NotToBeHad("this kernel has no network bridges")
        if self.node.run(Command(["unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "true"])).code:
            raise NotToBeHad("this host lets nobody make process namespaces")

    def _hold(self, *argv: str, **named: object) -> Process:
        return self.node.spawn(Command(argv, **named))  # type: ignore[arg-type]

    def _bridge(self) -> None:
        assert self.driver is not None
        own = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + _UP
        while os.readlink(f"/proc/{self.driver.pid}/ns/net") == own and time.monotonic() < deadline:
            time.sleep(0.005)
        self._ip("link", "set", "lo", "up")
        self._ip("link", "add", BRIDGE, "type", "bridge")
        self._ip("address", "add", f"{DRIVER}/24", "dev", BRIDGE)
        self._ip("link", "set", BRIDGE, "up")

    def _host(self, name: str) -> None:
        home = self.root / name
        home.mkdir(mode=0o755)
        for part in ("state", "cache"):
            (home / part).mkdir(mode=0o755)
        environment = " ".join(f"{key}={value}" for key, value in self.places(name).items())
        config = home / "sshd_config"
        config.write_text(_SSHD.format(address=self.address(name), root=self.root, environment=environment))
        holder = self._hold(
            *("unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"),
            *("sh", "-c", f'until ip address show dev eth0 2>/dev/null | grep -q "inet "; do sleep 0.02; done; {_INIT}', "sh", str(config)),
            join=self._group(name),
            stdout=str(home / "sshd.log"),
            stderr=str(home / "sshd.log"),
        )
        self.holders[name] = holder
        own = os.readlink("/proc/self/ns/net")
        deadline = time.monotonic() + _UP
        while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
            if time.monotonic() > deadline or holder.poll() is not None:
                raise NotToBeHad(f"host {name} could not be made: {(home / 'sshd.log').read_text()}")
            time.sleep(0.005)
        # While it starts, the holder passes through several programs: in its own network at last, it stays there.
        self._ip("link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        self._ip("link", "set", f"to-{name}", "master", BRIDGE, "up")
        within = ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "--", "ip")
        self._run(*within, "link", "set", "lo", "up")
        self._run(*within, "link", "set", "eth0", "up")
        self._run(*within, "address", "add", f"{self.address(name)}/24", "dev", "eth0")

    def _group(self, name: str) -> tuple[str, ...]:
        """A control group with the host's share of this machine; the files to join it."""
        if self.cores is None:
            return ()
        layout = read_layout(self.node)
        if layout.manager != "v1":
            return ()
        joins = []
        for controller, file, value in (
            ("cpu", "cpu.cfs_quota_us", str(int(self.cores * 100_000))),
            ("memory", "memory.limit_in_bytes", None if self.memory is None else str(self.memory)),
        ):
            group = Path(layout.v1[controller].mount) / f"{_GROUP}{os.getpid()}-{name}"
            group.mkdir(exist_ok=True)
            self.groups.append(group)
            if value is not None:
                (group / file).write_text(value)
            joins.append(str(group / "cgroup.procs"))
        return tuple(joins)

    def _ip(self, *arguments: str) -> None:
        assert self.driver is not None
        self._run("nsenter", f"--net=/proc/{self.driver.pid}/ns/net", "--", "ip", *arguments)

    def _run(self, *argv: str) -> None:
        finished = self.node.run(Command(argv))
        if finished.code:
            raise NotToBeHad(f"{' '.join(argv)}: {finished.err.strip()}")


def _enter(number: int) -> None:
    """Move the calling thread into a network namespace (setns(2); Python has it from 3.12 on)."""
    if ctypes.CDLL(None, use_errno=True).setns(number, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _namespace(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/pid")


def _remove_group(group: Path) -> None:
    """With the groups in it; what is just ending is given a moment."""
    deadline = time.monotonic() + 5
    for directory in [*sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True), group]:
        while directory.is_dir():
            try:
                directory.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    return
                time.sleep(0.05)


def _sweep_groups() -> None:
    """Groups of beds whose maker was killed."""
    layout = read_layout(LocalNode())
    for controller in ("cpu", "memory"):
        if layout.manager == "v1" and controller in layout.v1:
            for group in Path(layout.v1[controller].mount).glob(f"{_GROUP}*"):
                pid = group.name.removeprefix(_GROUP).partition("-")[0]
                if not Path("/proc", pid).exists():
                    _remove_group(group)
