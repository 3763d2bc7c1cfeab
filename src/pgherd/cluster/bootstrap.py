"""Program that ``pgherd cluster`` runs on a host over SSH. It requires only the Python of the host.

It finds or creates the environment, starts the agent detached from the SSH session, stops it, and returns its log.
The environment is the driver's, if the host has the same one at the same path and of the same version. Otherwise it
is a private one below the user's cache directory, with the driver's libraries if they run here, otherwise with those from
pip. ssh.py sets ``orders``. The answer is the last line on standard output. This file is sent as text, so it imports
nothing of pgherd.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import tarfile
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

OLDEST = (3, 11)
_STOP_TIMEOUT_S = 60.0
"""Seconds that an agent has to stop what it runs before it is killed."""
_LOCK_TIMEOUT_S = 600.0
_SETTLE_S = 0.3
_MAX_LINKS = 40
_NO_VENV = "its Python cannot create environments; install python3-venv"
_MINOR = ".".join(map(str, sys.version_info[:2]))


class BootstrapError(Exception):
    """Error that the driver prints as one message."""


def act(orders: dict[str, Any]) -> dict[str, Any]:
    """Execute the orders and return the answer. Raises Failed."""
    if sys.version_info[:2] < OLDEST:
        required = orders["python"] if orders["action"] == "start" else ".".join(map(str, OLDEST))
        raise BootstrapError(f"its Python is {sys.version.split()[0]}, but pgherd needs {required}; install python{required}")
    actions = {"start": _start, "stop": _stop, "log": _log}
    return actions[orders["action"]](orders)


def _start(orders: dict[str, Any]) -> dict[str, Any]:
    directory = _state() / "cluster-agents" / f"{orders['cluster']}-{orders['host'].replace('/', '_')}"
    running = _running(directory)
    if running is not None:  # first of all, because its environment must not change while it runs
        labels = json.loads(_text(directory / "agent.json") or "{}").get("labels", {})  # those in effect, not those requested now
        agent = {"pid": running[0], "start": running[1], "directory": str(directory), "python": _text(directory / "python")}
        return {**agent, "was": True, "labels": labels}
    required = orders["python"]
    if required != _MINOR:
        raise BootstrapError(f"its Python is {_MINOR}, but the driver's is {required}; install python{required} there")
    python = _environment(orders)
    if python is None:
        kind = None if (_libraries(orders) / "ready").exists() else sysconfig.get_config_var("SOABI")
        return {"need": "package", "kind": kind}  # of libraries, None for none
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    for name, text in {**orders["files"], "python": python}.items():
        _write_private(directory / name, text)
    with open(directory / "log", "ab") as log:
        process = subprocess.Popen(
            [python, "-I", "-m", "pgherd.cluster.agent_process", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )
    start = _start_time(process.pid)
    _write_private(directory / "pid", f"{process.pid} {start} {_boot()}\n")
    time.sleep(_SETTLE_S)
    if process.poll() is not None:
        log_end = _tail(directory)
        shutil.rmtree(directory, ignore_errors=True)  # with its key
        raise BootstrapError(f"its agent ended immediately: {log_end}")
    return {"pid": process.pid, "start": start, "directory": str(directory), "python": python}


def _stop(orders: dict[str, Any]) -> dict[str, Any]:
    directory = Path(orders["directory"])
    running = _running(directory)
    how, left = "gone already", []
    if running is not None:
        pid = running[0]
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_TIMEOUT_S
        while _start_time(pid) == running[1] and time.monotonic() < deadline:
            time.sleep(0.05)
        how = "ended"
        if _start_time(pid) == running[1]:
            os.kill(pid, signal.SIGKILL)
            time.sleep(_SETTLE_S)
            how = "killed"
    if how != "ended":  # an agent that did not end by itself has not cleaned up
        clean = [orders["python"], "-I", "-m", "pgherd", "clean", "--json"]
        cleaned = subprocess.run(clean, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        if cleaned.returncode != 0:
            try:
                left = [text for text in json.loads(cleaned.stdout)["actions"] if text.startswith("not undone")]
            except (ValueError, KeyError, TypeError):  # clean failed itself
                left = [f"pgherd clean ended with exit code {cleaned.returncode}: {(cleaned.stderr or cleaned.stdout).strip()[-300:]}"]
    shutil.rmtree(directory, ignore_errors=True)
    if directory.parent.is_dir() and not any(directory.parent.iterdir()):
        directory.parent.rmdir()
    return {"how": how, "left": left}


def _log(orders: dict[str, Any]) -> dict[str, Any]:
    return {"log": _tail(Path(orders["directory"]))}


def _environment(orders: dict[str, Any]) -> str | None:
    """Return the Python for the agent, or None if the package must be sent first."""
    same: str = orders["same"]
    if not orders.get("private") and _trusted(same) and _has(same, orders["version"]):
        return same
    # Clusters share the libraries but not pgherd, because another cluster may use different files of the same version.
    libraries = _libraries(orders)
    environment = libraries.with_name(f"{libraries.name}-{orders['digest']}")
    python, ready = environment / "bin" / "python", environment / "ready"
    if ready.exists() and _has(str(python), orders["version"]):
        return str(python)
    data = sys.stdin.buffer.read(orders.get("package", 0))
    if not data:
        return None
    with _readable(), _locked(libraries.parent):
        if not (libraries / "ready").exists():
            _make_libraries(libraries, orders)
            (libraries / "ready").touch()
        if not (ready.exists() and _has(str(python), orders["version"])):  # a different process may have created it meanwhile
            _make_environment(environment, libraries, data)
            if not _has(str(python), orders["version"]):
                (libraries / "ready").unlink(missing_ok=True)  # libraries may be the cause: the next start creates them again
                raise BootstrapError(f"pgherd was installed in {environment} but does not start there")
            ready.touch()
    return str(python)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Make new files readable by all, because a different user runs the servers, perhaps with a PostgreSQL among the
    libraries.
    """
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def _locked(agents: Path) -> Iterator[None]:
    """Hold the lock for creating environments there. Only this user can open its file, so that no other can hold it.

    Raises BootstrapError if it is not free for _LOCK_TIMEOUT_S.
    """
    agents.mkdir(parents=True, exist_ok=True)
    number = os.open(agents / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(number, 0o600)
        deadline = time.monotonic() + _LOCK_TIMEOUT_S
        while True:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise BootstrapError(f"another pgherd has held {agents / 'lock'} for {_LOCK_TIMEOUT_S:g} s; see 'lslocks'") from None
                time.sleep(0.1)
        yield
    finally:
        os.close(number)


def _libraries(orders: dict[str, Any]) -> Path:
    return _cache() / "agents" / f"{orders['key']}-{_MINOR}"


def _make_libraries(directory: Path, orders: dict[str, Any]) -> None:
    """Install the libraries that the driver has sent if they run here; otherwise use pip."""
    problem = ""
    if orders["libraries"]:
        problem = _install_libraries(directory, orders["proof"])
        if not problem:
            return
    shutil.rmtree(directory, ignore_errors=True)
    _run_checked([sys.executable, "-I", "-m", "venv", str(directory)], f"{problem}{_NO_VENV}")
    python, requirements = directory / "bin" / "python", directory / "requirements.txt"
    requirements.write_text("\n".join(orders["requirements"]) + "\n", encoding="utf-8")
    pip = [str(python), "-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--requirement"]
    _run_checked([*pip, str(requirements)], f"{problem}pip could not install what pgherd needs")


def _install_libraries(directory: Path, proof: list[str]) -> str:
    """Unpack libraries from standard input. Return why they do not run here, as the start of a sentence, or ''."""
    _make_venv(directory)
    _unpack(sys.stdin.buffer, _site(directory), "r|gz")
    command = [str(directory / "bin" / "python"), "-I", "-c", f"import {', '.join(proof)}"]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    message = result.stdout.strip().rpartition("\n")[2]
    return f"the libraries of the driver's machine do not run here ({message}), and " if result.returncode else ""


def _make_environment(directory: Path, libraries: Path, package: bytes) -> None:
    """Create an environment with only pgherd, which takes its libraries from that of the libraries."""
    _make_venv(directory)
    site = _site(directory)
    (site / "libraries.pth").write_text(f"{_site(libraries)}\n", encoding="utf-8")
    _unpack(io.BytesIO(package), site, "r:gz")


def _make_venv(directory: Path) -> None:
    """Create an environment without pip."""
    shutil.rmtree(directory, ignore_errors=True)
    _run_checked([sys.executable, "-I", "-m", "venv", "--without-pip", str(directory)], _NO_VENV)


def _unpack(data: IO[bytes], directory: Path, mode: Literal["r:gz", "r|gz"]) -> None:
    try:
        with tarfile.open(fileobj=data, mode=mode) as archive:
            if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(directory)  # noqa: S202 (from the driver's machine, which this host trusts)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise BootstrapError(f"the package was received incompletely ({error})") from None


def _site(directory: Path) -> Path:
    """Return the directory of an environment's packages."""
    command = [str(directory / "bin" / "python"), "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _trusted(path: str | Path) -> bool:
    """Return the same as pgherd.node.files.trusted for this user, except that each group counts as others."""
    place, remaining, links = "/", [*reversed(os.path.abspath(path).split("/"))], 0
    while remaining:
        place = os.path.normpath(f"{place}/{remaining.pop()}")
        try:
            status = os.lstat(place)
            target = os.readlink(place) if stat.S_ISLNK(status.st_mode) else None
        except OSError:
            return False
        if status.st_uid not in (0, os.geteuid()) or links > _MAX_LINKS:
            return False
        if target is not None:
            links, place = links + 1, "/" if target.startswith("/") else os.path.dirname(place)
            remaining += reversed(target.split("/"))
        elif status.st_mode & 0o022 and not (remaining and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX):
            return False
    return True


def _has(python: str, version: str) -> bool:
    """Return whether this Python has this minor version, this version of pgherd, and Dask."""
    program = (
        "import pgherd, sys, importlib.util as find; "
        f"fit = '%d.%d' % sys.version_info[:2] == '{_MINOR}' and find.find_spec('distributed'); "
        "print(pgherd.__version__ if fit else '')"
    )
    try:
        result = subprocess.run(
            [python, "-I", "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd="/"
        )
    except OSError:
        return False
    return result.returncode == 0 and result.stdout.strip() == version


def _run_checked(argv: list[str], advice: str) -> None:
    result = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if result.returncode:
        lines = [line for line in result.stdout.strip().splitlines() if line.strip()]
        raise BootstrapError(f"{advice}: {lines[-1].strip() if lines else f'exit code {result.returncode}'}")


def _running(directory: Path) -> tuple[int, int] | None:
    """Return pid and start time of the agent in a directory, if it runs."""
    try:
        pid, start, boot = (directory / "pid").read_text(encoding="utf-8").split()
    except (OSError, ValueError):
        return None
    return (int(pid), int(start)) if boot == _boot() and _start_time(int(pid)) == int(start) else None


def _boot() -> str:
    """Return the kernel's identifier of this boot: start times are comparable only within one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _start_time(pid: int) -> int | None:
    """Return a process's start in clock ticks since boot, or None if it is gone or a zombie (proc(5))."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _tail(directory: Path) -> str:
    try:
        return "\n".join((directory / "log").read_text(encoding="utf-8", errors="replace").splitlines()[-12:])
    except OSError as error:
        return f"no log: {error}"


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)


def _state() -> Path:
    """Return the same as pgherd.host.paths.state_dir. Raises BootstrapError."""
    return _home("XDG_STATE_HOME", "/var/lib/pgherd", ".local/state")


def _cache() -> Path:
    """Return the same as pgherd.host.paths.cache_dir. Raises BootstrapError."""
    return _home("XDG_CACHE_HOME", "/var/cache/pgherd", ".cache")


def _home(variable: str, system: str, personal: str) -> Path:
    chosen = os.environ.get(variable)
    if os.geteuid() == 0 and not chosen:
        return Path(system)
    path = Path(chosen or Path.home() / personal) / "pgherd"
    existing = next(place for place in (path, *path.parents) if os.path.lexists(place) or place == place.parent)
    if os.geteuid() == 0 and not _trusted(existing):
        raise BootstrapError(f"{variable} selects {path}, where users other than root can exchange files; unset {variable} there")
    return path


def _main(orders: dict[str, Any]) -> None:
    try:
        answer = act(orders)
    except BootstrapError as error:
        answer = {"failed": str(error)}
    except (OSError, subprocess.SubprocessError) as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    try:
        print(json.dumps(answer), flush=True)
    except OSError:
        if "pid" in answer and not answer.get("was"):  # no driver has recorded the agent, so none would stop it
            _stop({"directory": answer["directory"], "python": answer["python"]})
        raise


if "orders" in globals():
    _main(globals()["orders"])
