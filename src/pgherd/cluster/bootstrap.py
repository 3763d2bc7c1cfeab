"""What ``pgherd cluster`` runs on a host over SSH, with nothing but the Python that the host has.

It finds or makes the environment (the one that the driver has, at the same path and of the same version; else a private one below the
user's cache directory, of the driver's own libraries where they run here, else of what pip gets), starts the agent detached from the SSH
session, ends it, and shows its log. ``orders`` is put in by ssh.py; the answer is the last line on standard output. This file is sent as
text: it imports nothing of pgherd.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import shutil
import signal
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
_ENDING = 60.0
"""Seconds that an agent has to stop what it runs before it is killed."""
_SETTLING = 0.3
_MINOR = ".".join(map(str, sys.version_info[:2]))


class Failed(Exception):
    """Told to the driver as one message."""


def act(orders: dict[str, Any]) -> dict[str, Any]:
    """Do what was ordered; the answer. Raises Failed."""
    if sys.version_info[:2] < OLDEST:
        wanted = orders["python"] if orders["action"] == "start" else ".".join(map(str, OLDEST))
        raise Failed(f"its Python is {sys.version.split()[0]}, and pgherd needs {wanted} there; install python{wanted}")
    actions = {"start": _start, "stop": _stop, "log": _log}
    return actions[orders["action"]](orders)


def _start(orders: dict[str, Any]) -> dict[str, Any]:
    directory = _state() / "cluster-agents" / f"{orders['cluster']}-{orders['host'].replace('/', '_')}"
    running = _running(directory)
    if running is not None:  # before anything else: its environment must not change under it
        labels = json.loads(_text(directory / "agent.json") or "{}").get("labels", {})  # those that it has read, whatever is wanted now
        told = {"pid": running[0], "start": running[1], "directory": str(directory), "python": _text(directory / "python")}
        return {**told, "was": True, "labels": labels}
    wanted = orders["python"]
    if wanted != _MINOR:
        raise Failed(f"its Python is {_MINOR} and the driver's {wanted}, between which nothing can be sent; install python{wanted} there")
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
    _write_private(directory / "pid", f"{process.pid} {start}\n")
    time.sleep(_SETTLING)
    if process.poll() is not None:
        said = _tail(directory)
        shutil.rmtree(directory, ignore_errors=True)  # with its key
        raise Failed(f"its agent ended at once: {said}")
    return {"pid": process.pid, "start": start, "directory": str(directory), "python": python}


def _stop(orders: dict[str, Any]) -> dict[str, Any]:
    directory = Path(orders["directory"])
    running = _running(directory)
    how = "gone already"
    if running is not None:
        pid = running[0]
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + _ENDING
        while _start_time(pid) == running[1] and time.monotonic() < deadline:
            time.sleep(0.05)
        how = "ended"
        if _start_time(pid) == running[1]:
            os.kill(pid, signal.SIGKILL)
            time.sleep(_SETTLING)
            how = "killed"
    if how != "ended":  # an agent that did not end by itself took nothing back
        clean = [orders["python"], "-I", "-m", "pgherd", "clean", "--json"]
        subprocess.run(clean, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    shutil.rmtree(directory, ignore_errors=True)
    if directory.parent.is_dir() and not any(directory.parent.iterdir()):
        directory.parent.rmdir()
    return {"how": how}


def _log(orders: dict[str, Any]) -> dict[str, Any]:
    return {"log": _tail(Path(orders["directory"]))}


def _environment(orders: dict[str, Any]) -> str | None:
    """The Python to run the agent with; None when the package must be sent first."""
    same: str = orders["same"]
    if not orders.get("private") and _has(same, orders["version"]):
        return same
    # The libraries are shared; pgherd itself is not, since agents of another cluster may run from other files of the same version.
    libraries = _libraries(orders)
    own = libraries.with_name(f"{libraries.name}-{orders['digest']}")
    python, ready = own / "bin" / "python", own / "ready"
    if ready.exists() and _has(str(python), orders["version"]):
        return str(python)
    data = sys.stdin.buffer.read(orders.get("package", 0))
    if not data:
        return None
    with _readable(), _alone(libraries.parent):
        if not (libraries / "ready").exists():
            _make_libraries(libraries, orders)
            (libraries / "ready").touch()
        if not (ready.exists() and _has(str(python), orders["version"])):  # another one may have made it meanwhile
            _make_own(own, libraries, data)
            if not _has(str(python), orders["version"]):
                (libraries / "ready").unlink(missing_ok=True)  # it may be for want of them: the next start makes them anew
                raise Failed(f"pgherd was installed in {own} but does not start there")
            ready.touch()
    return str(python)


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """What is made meanwhile all can read: another account runs the servers, of the PostgreSQL that may be among the libraries."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@contextlib.contextmanager
def _alone(agents: Path) -> Iterator[None]:
    """Nobody else makes environments there meanwhile."""
    agents.mkdir(parents=True, exist_ok=True)
    with open(agents / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _libraries(orders: dict[str, Any]) -> Path:
    return _cache() / "agents" / f"{orders['key']}-{_MINOR}"


def _make_libraries(place: Path, orders: dict[str, Any]) -> None:
    """Of what the driver has sent, if that runs here; else by pip."""
    lacking = ""
    if orders["libraries"]:
        lacking = _lay_out(place, orders["proof"])
        if not lacking:
            return
    shutil.rmtree(place, ignore_errors=True)
    _logged([sys.executable, "-I", "-m", "venv", str(place)], f"{lacking}its Python makes no environments; install python3-venv")
    python, listed = place / "bin" / "python", place / "requirements.txt"
    listed.write_text("\n".join(orders["requirements"]) + "\n", encoding="utf-8")
    pip = [str(python), "-I", "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--requirement"]
    _logged([*pip, str(listed)], f"{lacking}pip could not install what pgherd needs")


def _lay_out(place: Path, proof: list[str]) -> str:
    """Lay out the libraries that follow on standard input. What is wrong with them here, to stand before another sentence."""
    _bare(place)
    _unpack(sys.stdin.buffer, _site(place), "r|gz")
    tried = [str(place / "bin" / "python"), "-I", "-c", f"import {', '.join(proof)}"]
    done = subprocess.run(tried, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = done.stdout.strip().rpartition("\n")[2]
    return f"the libraries of the driver's machine do not run here ({said}), and " if done.returncode else ""


def _make_own(place: Path, libraries: Path, package: bytes) -> None:
    """An environment with pgherd alone, which takes everything else from that of the libraries."""
    _bare(place)
    site = _site(place)
    (site / "libraries.pth").write_text(f"{_site(libraries)}\n", encoding="utf-8")
    _unpack(io.BytesIO(package), site, "r:gz")


def _bare(place: Path) -> None:
    """A new environment without pip."""
    shutil.rmtree(place, ignore_errors=True)
    _logged([sys.executable, "-I", "-m", "venv", "--without-pip", str(place)], "its Python makes no environments; install python3-venv")


def _unpack(data: IO[bytes], place: Path, mode: Literal["r:gz", "r|gz"]) -> None:
    try:
        with tarfile.open(fileobj=data, mode=mode) as archive:
            if hasattr(tarfile, "data_filter"):  # from Python 3.11.4 on
                archive.extraction_filter = tarfile.data_filter
            archive.extractall(place)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise Failed(f"what was sent came in part only ({error})") from None


def _site(place: Path) -> Path:
    """Where an environment's packages lie."""
    asked = [str(place / "bin" / "python"), "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _has(python: str, version: str) -> bool:
    """Whether this Python is of our own version, and has that version of pgherd, and Dask."""
    looked = (
        "import pgherd, sys, importlib.util as find; "
        f"fit = '%d.%d' % sys.version_info[:2] == '{_MINOR}' and find.find_spec('distributed'); "
        "print(pgherd.__version__ if fit else '')"
    )
    try:
        done = subprocess.run([python, "-I", "-c", looked], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, cwd="/")
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == version


def _logged(argv: list[str], advice: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        lines = [line for line in done.stdout.strip().splitlines() if line.strip()]
        raise Failed(f"{advice}: {lines[-1].strip() if lines else f'exit code {done.returncode}'}")


def _running(directory: Path) -> tuple[int, int] | None:
    """Pid and start time of the agent that was started in a directory, if it lives."""
    try:
        pid, start = map(int, (directory / "pid").read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return None
    return (pid, start) if _start_time(pid) == start else None


def _start_time(pid: int) -> int | None:
    """In clock ticks since boot; None when it is gone or only waits to be reaped (proc(5))."""
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
    """As pgherd.host.paths.state_dir has it."""
    if os.geteuid() == 0 and not os.environ.get("XDG_STATE_HOME"):
        return Path("/var/lib/pgherd")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state") / "pgherd"


def _cache() -> Path:
    """As pgherd.host.paths.cache_dir has it."""
    if os.geteuid() == 0 and not os.environ.get("XDG_CACHE_HOME"):
        return Path("/var/cache/pgherd")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pgherd"


def _main(orders: dict[str, Any]) -> None:
    try:
        answer = act(orders)
    except Failed as error:
        answer = {"failed": str(error)}
    except (OSError, subprocess.SubprocessError) as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)


if "orders" in globals():
    _main(globals()["orders"])
