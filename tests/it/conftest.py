"""What the tests that run the whole program share: the program itself with places of its own, and what it leaves behind."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pgherd.host.cgroup_parent import read_layout
from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.host.shared_memory import parse_segments
from pgherd.model.analysis import Thresholds
from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import virtual_machine
from pgherd.runtimes.vm.runtime import VmRuntime

_QUICK = ("density", "--scale", "1", "--repeats", "1", "--duration", "1s", "--warmup", "0s", "--time-budget", "1s", "--no-report")
"""What is planned, and nothing beyond: there is no budget for it."""
PATIENCE = 120.0
"""No step takes this long unless it hangs."""

_LIMITS = Thresholds()
_NOT_BY_LOAD = {"cached", "huge-pages", "exit-code", "values-extracted"}
_BUSY = {"steal": _LIMITS.max_steal, "background-cpu": _LIMITS.max_background_cpu}

_JOURNAL = re.compile(r"-(\d+)-[0-9a-f]{8}\.jsonl$")
_SOCKETS = re.compile(r"pgherd-[0-9a-f]{8}")
_SETTLING = 10.0


class Ended:
    """A finished call of the program."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def message(self) -> str:
        """The one message on stderr; there must be one, and no traceback."""
        assert "Traceback" not in self.err and "internal error" not in self.err, self.err
        lines = self.err.splitlines()
        told = [index for index, line in enumerate(lines) if line.startswith("pgherd: ")]
        assert len(told) == 1, self.err
        return "\n".join(lines[told[0] :]).removeprefix("pgherd: ").strip()

    def __repr__(self) -> str:
        return f"exit code {self.code}\n{self.out}\n{self.err}"


class Program:
    """pgherd with a state directory, a cache and runs of its own, as the account that runs the tests or as another one."""

    def __init__(self, root: Path, runs: Path, watch: Watch, prefix: tuple[str, ...] = ()) -> None:
        self.root, self.runs, self.watch, self.prefix = root, runs, watch, prefix
        self.state, self.cache = root / "state/pgherd", root / "cache/pgherd"
        watch.states.add(self.state)
        self.before = Leftovers(self)
        self.patience = PATIENCE
        """Seconds after which a step is taken to hang."""
        self._running: list[subprocess.Popen[str]] = []
        self._cleans_alone = False

    def start(self, *words: str, through: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start it; its output is read by ``end``. ``through``: a command that starts it in its turn."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PGHERD_", "XDG_"))}
        environment |= {
            "XDG_STATE_HOME": str(self.root / "state"),
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "PGHERD_RUNS": str(self.runs),
        }
        environment |= {"HOME": str(self.root), "COLUMNS": "300"}
        process = subprocess.Popen(
            [*through, *self.prefix, sys.executable, "-P", "-m", "pgherd", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            cwd="/",
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # whoever runs the tests may ignore it
        )
        self._running.append(process)
        self.watch.pids.add(process.pid)
        return process

    def end(self, process: subprocess.Popen[str]) -> Ended:
        """Wait for its end."""
        out, err = process.communicate(timeout=self.patience)
        self._running.remove(process)
        return Ended(process.returncode, out, err)

    def __call__(self, *words: str, through: tuple[str, ...] = ()) -> Ended:
        """Run it to its end."""
        with self.cleaning_alone() if words[:1] == ("clean",) else contextlib.nullcontext():
            return self.end(self.start(*words, through=through))

    @contextlib.contextmanager
    def cleaning_alone(self) -> Iterator[None]:
        """Nobody else's ``clean`` meanwhile, in any worker: it takes back what any killed run holds on the host."""
        if self._cleans_alone:
            yield
            return
        with open(Path(tempfile.gettempdir(), f"it-pgherd-clean-{os.getuid()}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._cleans_alone = True
            try:
                yield
            finally:
                self._cleans_alone = False

    def density(self, *words: str, through: tuple[str, ...] = ()) -> Ended:
        """A run of few short trials (unless the words say otherwise) to its end; its numbers mean nothing."""
        return self(*_QUICK, *words, through=through)

    def start_density(self, *words: str, through: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Begin such a run."""
        return self.start(*_QUICK, *words, through=through)

    def wait_until(self, done: Callable[[], Any], pause: float = 0.005) -> Any:
        """Poll until it gives something true, and return that."""
        deadline = time.monotonic() + self.patience
        while not (found := done()):
            assert time.monotonic() < deadline, f"nothing came within {self.patience:.0f} s"
            time.sleep(pause)
        return found

    def kill_all(self) -> None:
        """End what a failed test left running."""
        for process in self._running:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=30)
            process.kill()
            process.communicate()

    def judged_fairly(self) -> set[str]:
        """No fault taints the trials of the only run. Returns how much CPU others used or the hypervisor withheld, where it was too much.

        Each trial records both. Where they are within the limits, what taints all trials is a fault. A trial that did not finish counts
        only if none did, because a study may try a size that is too small.
        """
        busy, quiet, faults = set(), [], []
        trials = self.trials()
        assert trials
        for trial in [trial for trial in trials if trial["error"] is None] or trials:
            checks = trial["checks"]
            shares = [(check["name"], re.match(r"(-?[0-9.]+)\W*%", check["observed"])) for check in checks if check["name"] in _BUSY]
            above = {f"{name} {share[0]}" for name, share in shares if share and float(share[1]) / 100 > _BUSY[name]}
            busy |= above
            taints = [check for check in checks if check["result"] == "fail" and check["severity"] == "taint"]
            faults.append({check["name"] for check in taints} & _NOT_BY_LOAD)
            if not above:
                quiet.append([trial["error"], *taints] if trial["error"] else taints)
        assert not quiet or not all(quiet), quiet
        assert not set.intersection(*faults), "a failed check of every trial that no other load causes"
        return busy

    def ended_well(self, ended: Ended) -> None:
        """The only run ended with exit code 0 and grade A or B. If not, and the host was busy, the rest of the test is skipped."""
        analysis = self.record()["analysis"]
        assert ended.code == (1 if analysis["grade"] == "C" else 0), ended
        busy = self.judged_fairly()
        if analysis["grade"] == "C" and busy:
            pytest.skip(f"the numbers need a quiet host, but it has {', '.join(sorted(busy)[:4])}; all else passed")
        assert analysis["grade"] in ("A", "B"), analysis["warnings"]

    @property
    def run(self) -> Path | None:
        """The directory of the only run, once it has a record."""
        found = sorted(self.runs.glob("*/run.json"))
        assert len(found) < 2, found
        return found[0].parent if found else None

    def record(self) -> dict[str, Any]:
        """What run.json holds."""
        assert self.run is not None
        document: dict[str, Any] = json.loads((self.run / "run.json").read_text())
        return document

    def trials(self) -> list[dict[str, Any]]:
        """All finished trials."""
        return [json.loads(file.read_text()) for file in sorted(self.runs.glob("*/trials/[0-9][0-9][0-9][0-9]/trial.json"))]

    def digests(self) -> dict[str, str]:
        """Every file of the finished trials with a hash of its bytes."""
        files = [file for file in self.runs.glob("*/trials/*/**/*") if file.is_file() and ".partial/" not in str(file)]
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def in_trial(self, number: int) -> bool:
        """Whether a trial is being measured right now."""
        spools = list(self.runs.glob(f"*/trials/{number:04d}.partial/spool.jsonl"))
        return any(spool.stat().st_size for spool in spools) and bool(self.programs("pgbench"))

    def programs(self, name: str) -> list[int]:
        """Pids of this program's servers (the postmasters only) or drivers."""
        return [
            pid for pid, words in _commands() if Path(words[0]).name == name and _belongs(pid, words, str(self.root)) and len(words) > 1
        ]

    def guests(self) -> list[virtual_machine.RunningGuest]:
        """The virtual machines of this program's runs: their disks lie in its cache."""
        return [guest for guest in virtual_machine.running_guests(LocalNode()) if any(str(self.cache) in file for file in guest.files)]

    def nothing_left(self, said: str = "") -> None:
        """Fail when the host holds more of ours than before this test, and show what was ``said``; what just ends is given a moment."""
        deadline = time.monotonic() + _SETTLING
        while left := self.before.compared_with(Leftovers(self)):
            assert time.monotonic() < deadline, "left behind:\n" + "\n".join([*left, said[-3000:]])
            time.sleep(0.1)


class Watch(threading.Thread):
    """Notes what is whose while that can be told: other runs and servers may come and go on the host meanwhile.

    ``places``: the data directory behind each piece of PostgreSQL's shared memory, its server's working directory. ``journals``: those
    that were ever in one of ``states``, the state directories of the programs tested; control groups and sockets are named after them.
    ``pids``: of the programs themselves.
    """

    def __init__(self) -> None:
        super().__init__(name="watch", daemon=True)
        self.places: dict[str, str] = {}
        self.states: set[Path] = set()
        self.journals: set[str] = set()
        self.pids: set[int] = set()
        self._done = threading.Event()

    def run(self) -> None:
        while not self._done.wait(0.03):
            self.look()

    def look(self) -> None:
        for state in tuple(self.states):
            self.journals |= {path.name for path in state.glob("journal/*.jsonl")}
        for segment in parse_segments(Path("/proc/sysvipc/shm").read_text()):
            if f"segment {segment.id}" not in self.places:
                with contextlib.suppress(OSError):
                    self.places[f"segment {segment.id}"] = os.readlink(f"/proc/{segment.creator}/cwd")
        new = [path for path in map(str, Path("/dev/shm").glob("PostgreSQL.*")) if path not in self.places]
        for process in Path("/proc").glob("[0-9]*") if new else ():
            with contextlib.suppress(OSError):
                if (process / "comm").read_text().startswith("postgres"):  # postgres.real is the hindered one
                    maps = (process / "maps").read_text()
                    self.places |= {path: os.readlink(process / "cwd") for path in new if path in maps}

    def others(self, name: str, root: str) -> bool:
        """Whether it is known to belong to somebody else."""
        return name in self.places and not self.places[name].startswith(f"{root}/")

    def end(self) -> None:
        self._done.set()
        self.join()


class Leftovers:
    """All that a run may leave on the host: processes, control groups, sockets, shared memory, mounts, files.

    Runs of others may be going on meanwhile, killed ones among them; so control groups and sockets count only where a journal of ours
    made them, and nothing alive belongs to them.
    """

    def __init__(self, program: Program) -> None:
        root = str(program.root)
        program.watch.look()
        ours = {os.getpid(), os.getppid()}
        self.found: set[str] = set()
        self.found |= {f"process {pid}: {' '.join(words)}" for pid, words in _commands() if pid not in ours and _belongs(pid, words, root)}
        self.found |= {f"control group {path}" for path in _orphaned_groups(program.watch)}
        self.found |= {f"sockets {path}" for path in _orphaned_sockets(program.watch)}
        segments = parse_segments(Path("/proc/sysvipc/shm").read_text())
        shared = {f"segment {segment.id}" for segment in segments if segment.attached == 0} | {str(path) for path in _unmapped()}
        self.found |= {f"shared memory {name}" for name in shared if not program.watch.others(name, root)}
        self.found |= {f"mount {line}" for line in Path("/proc/self/mounts").read_text().splitlines() if root in line}
        patterns = ("cache/pgherd/work/*", "cache/pgherd/golden/.unfinished-*", "cache/pgherd/*.unfinished-*")
        patterns += ("state/pgherd/journal/*.jsonl", "state/pgherd/reservations/*.json")
        self.found |= {f"file {path}" for pattern in patterns for path in program.root.glob(pattern)}
        unfinished = ("*/trials/*.partial", "*/*.tmp", "*/trials/*/**/*.tmp")
        self.found |= {f"file {path}" for pattern in unfinished for path in program.runs.glob(pattern)}

    def compared_with(self, later: Leftovers) -> list[str]:
        """What there is later and was not before."""
        return sorted(later.found - self.found)


def _commands() -> Iterator[tuple[int, list[str]]]:
    """(pid, command line) of all processes that have not ended."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            if words[0]:  # threads of the kernel and processes that only wait to be reaped have none
                yield int(entry.name), [word for word in words if word]


def _belongs(pid: int, words: list[str], root: str) -> bool:
    """Whether a process works for us: by its words, its working directory, or a file that it has open."""
    if any(f"{root}/" in word for word in words):
        return True
    links = [f"/proc/{pid}/cwd"]
    with contextlib.suppress(OSError):
        links += [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]
    for link in links:
        with contextlib.suppress(OSError):
            if os.readlink(link).startswith(f"{root}/"):
                return True
    return False


def _journals() -> set[str]:
    """Names of the journals that somebody alive has open: RUN-PID-ID.jsonl."""
    held = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            held |= {Path(os.readlink(file)).name for file in (process / "fd").iterdir()}
    return {name for name in held if name.endswith(".jsonl")}


@pytest.fixture
def not_undone() -> Callable[[list[str]], list[str]]:
    """What could not be undone, but for what a pgherd that runs beside the tests, if there is one, keeps: it still needs the
    controllers."""

    def others() -> set[str]:
        return {name for name in _journals() if (found := _JOURNAL.search(name)) and int(found[1]) != os.getpid()}

    before = others()
    return lambda said: [one for one in said if "holds the groups of another run" not in one or not (before or others())]


def _orphaned_groups(watch: Watch) -> Iterator[Path]:
    """Our control groups without a process, whose run or prober does not live."""
    layout = read_layout(LocalNode())
    hierarchies = [*layout.v1.values(), *([layout.v2] if layout.v2 else [])]
    found = [
        group for place in {Path(path) for one in hierarchies for path in (one.mount, one.own_dir)} for group in place.glob("pgherd-*")
    ]
    held = _journals() if found else set()
    for group in found:
        kind, _, suffix = group.name.removeprefix("pgherd-").rpartition("-")
        probe = kind == "probe" and suffix.isdigit()
        ours = int(suffix) in watch.pids if probe else any(f"-{suffix}-" in name for name in watch.journals)
        alive = Path(f"/proc/{suffix}").exists() if probe else any(f"-{suffix}-" in name for name in held)
        with contextlib.suppress(OSError):
            if ours and not alive and not any(file.read_text().strip() for file in group.rglob("cgroup.procs")):
                yield group


def _orphaned_sockets(watch: Watch) -> Iterator[Path]:
    """Our socket directories whose journal nobody has open; one without a mark may be ours."""
    places = [Path("/run"), Path("/tmp"), *map(Path, filter(None, [os.environ.get("XDG_RUNTIME_DIR")]))]
    found = [path for place in places for path in place.glob("pgherd-*") if _SOCKETS.match(path.name)]
    held = _journals() if found else set()
    for path in found:
        with contextlib.suppress(OSError):
            journal = (path / ".pgherd").read_text().strip() if (path / ".pgherd").exists() else "?"
            ending = f"-{journal[:8]}.jsonl"
            ours = journal == "?" or any(name.endswith(ending) for name in watch.journals)
            if ours and not any(name.endswith(ending) for name in held):
                yield path


def _unmapped() -> Iterator[Path]:
    """POSIX shared memory of PostgreSQL that no process uses, but for what no process ever did.

    A server enters a segment into its control segment only once it is there (src/backend/storage/ipc/dsm.c, dsm_create): whoever is
    ended in between leaves one that is in no list, and that nothing tells the owner of. It holds only zeros.
    """
    found = list(Path("/dev/shm").glob("PostgreSQL.*"))
    if not found:
        return
    maps = ""
    for file in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            maps += file.read_text()
    for path in found:
        with contextlib.suppress(OSError):
            if f"{path}\n" not in maps and path.read_bytes().strip(b"\0"):
                yield path


@pytest.fixture(scope="session")
def _place() -> Iterator[Path]:
    """One root for state and cache of all tests, so that the template is made once; the servers' account can enter it."""
    root = Path(tempfile.mkdtemp(prefix="it-pgherd-", dir="/tmp"))
    root.chmod(0o755)
    for name in ("state", "cache"):
        (root / name).mkdir(mode=0o755)
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="session")
def _watch() -> Iterator[Watch]:
    watch = Watch()
    watch.look()
    watch.start()
    yield watch
    watch.end()


def _used(program: Program) -> Iterator[Program]:
    """The program for one test, after which nothing of it may be left."""
    try:
        yield program
    finally:
        program.kill_all()
    try:
        program.nothing_left()
    except AssertionError:
        program("clean")  # now or never: its journals go with its directory
        raise


@pytest.fixture
def pgherd(_place: Path, _watch: Watch) -> Iterator[Program]:
    """The program; after the test nothing of it may be left."""
    yield from _used(Program(_place, _runs(_place), _watch))


@pytest.fixture
def elsewhere(_watch: Watch) -> Iterator[Program]:
    """The program with a cache that holds no template yet."""
    root = Path(tempfile.mkdtemp(prefix="it-pgherd-", dir="/tmp"))
    root.chmod(0o755)
    try:
        yield from _used(Program(root, root / "runs", _watch))
    finally:
        shutil.rmtree(root)


@pytest.fixture
def ordinary(_place: Path, _watch: Watch) -> Iterator[Program]:
    """The program as an ordinary user."""
    if os.geteuid() != 0:
        yield from _used(Program(_place, _runs(_place), _watch))
        return
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("setpriv is missing, which is needed to become an ordinary user")
    prefix = (setpriv, "--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "--bounding-set=-all")
    if subprocess.run([*prefix, sys.executable, "-P", "-c", "import pgherd.cli.main"], capture_output=True, cwd="/").returncode:
        pytest.skip(f"an ordinary user cannot run {sys.executable}")
    root = Path(tempfile.mkdtemp(prefix="it-pgherd-", dir="/tmp"))
    shutil.chown(root, "nobody")
    try:
        yield from _used(Program(root, root / "runs", _watch, prefix))
    finally:
        shutil.rmtree(root)


@pytest.fixture
def guests(tmp_path: Path, pgherd: Program) -> Iterator[None]:
    """Skips where no guest can be; afterwards none of ours runs."""
    node = LocalNode()
    journal = Journal.open(node, tmp_path / "state", "probe")
    able = VmRuntime(node, journal, gather(node), "probe").capabilities()
    journal.close()
    if not able.available:
        pytest.skip(able.note)
    pgherd.patience = 400.0  # an emulated processor boots slowly, on a busy machine very slowly
    yield
    assert not pgherd.guests()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Callable[..., Any]]:
    """Makes hosts of these names out of namespaces (cluster_hosts.py), with an agent on each (``agents``);
    they are gone after the module's tests."""
    spec = importlib.util.spec_from_file_location("cluster_hosts", Path(__file__).with_name("cluster_hosts.py"))
    assert spec is not None and spec.loader is not None
    hosts = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    if not hasattr(hosts, "Bed"):
        spec.loader.exec_module(hosts)
    with contextlib.ExitStack() as stack:

        def make(*names: str, agents: bool = True) -> Any:
            root = Path(tempfile.mkdtemp(prefix="it-cluster-", dir="/tmp"))
            stack.callback(shutil.rmtree, root)
            root.chmod(0o755)
            bed = hosts.Bed(root, names, cores=1.0, memory=2 * 2**30)
            try:
                bed.up()
            except hosts.NotToBeHad as error:
                pytest.skip(str(error))
            stack.callback(bed.down)
            if agents:
                bed.start_agents()
            stack.callback(_stop_agents, bed)
            return bed

        yield make


def _stop_agents(bed: Any) -> None:
    with contextlib.suppress(Exception):
        bed.pgherd("cluster", "stop")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test at a random moment (one that uses ``chance``) is run once in every check and twenty times in the long one."""
    if "nth" in metafunc.fixturenames:
        metafunc.parametrize("nth", [0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 20))])


@pytest.fixture
def chance(request: pytest.FixtureRequest, seed: int, nth: int, record_property: Callable[[str, object], None]) -> random.Random:
    """Random choices of one test; PGHERD_TEST_SEED, which pytest prints, repeats them."""
    record_property("nth", nth)  # benchmarks/long_check.py counts the tries by it
    return random.Random(f"{seed} {request.node.name}")


def _runs(root: Path) -> Path:
    return root / f"runs-{random.SystemRandom().randrange(2**32):08x}"
