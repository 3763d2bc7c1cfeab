"""What runs on a host before pgherd is there."""

from __future__ import annotations

import ast
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pgherd.cluster import bootstrap, host_software
from pgherd.cluster.bootstrap import BootstrapError, act
from pgherd.host import paths
from pgherd.node import files


def test_it_imports_nothing_but_the_standard_library():
    tree = ast.parse(Path(bootstrap.__file__).read_text())
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


def test_its_places_are_those_of_pgherd(monkeypatch, tmp_path):
    for variable in (None, str(tmp_path)):
        for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
            monkeypatch.delenv(name, raising=False)
            if variable is not None:
                monkeypatch.setenv(name, variable)
        assert bootstrap._state() == paths.state_dir() and bootstrap._cache() == paths.cache_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user need root")
def test_only_the_environment_that_others_cannot_change_is_the_same(environment, tmp_path):
    """The driver's path may be in a directory of another user of this host."""
    place = tmp_path / "home/.venv/bin"
    place.mkdir(parents=True)
    (place / "python").write_text(FAKE)
    (place / "python").chmod(0o755)
    (place / "python.site/pgherd").mkdir(parents=True)
    (place / "python.site/pgherd/__init__.py").write_text("__version__ = 7")
    same = str(place / "python")
    assert environment(b"", same=same) == same
    for changed, restore in (
        (lambda: os.chown(tmp_path / "home", 54321, 54321), lambda: os.chown(tmp_path / "home", 0, 0)),
        (lambda: place.chmod(0o777), lambda: place.chmod(0o755)),
    ):
        changed()
        assert not bootstrap._trusted(same) and not files.trusted(same, 0)
        assert environment(b"", same=same) is None
        restore()
        assert bootstrap._trusted(same) and files.trusted(same, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="files of another user need root")
def test_root_uses_no_directory_that_another_user_can_change(monkeypatch, tmp_path):
    os.chown(tmp_path, 54321, 54321)
    for name, place in (("XDG_STATE_HOME", bootstrap._state), ("XDG_CACHE_HOME", bootstrap._cache)):
        monkeypatch.setenv(name, str(tmp_path))
        with pytest.raises(BootstrapError, match=f"unset {name}"):
            place()


def test_the_lock_for_environments_is_one_that_others_cannot_hold(tmp_path, monkeypatch):
    (tmp_path / "lock").touch(0o644)
    monkeypatch.setattr(bootstrap, "_LOCK_TIMEOUT_S", 0.1)
    with bootstrap._readable(), bootstrap._locked(tmp_path):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
        with pytest.raises(BootstrapError, match="another pgherd has held .*lock for 0.1 s"), bootstrap._locked(tmp_path):
            raise AssertionError("it is held")
    (tmp_path / "lock").unlink()
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), bootstrap._locked(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_an_old_python_is_told(monkeypatch):
    monkeypatch.setattr(bootstrap, "OLDEST", (9, 9))
    with pytest.raises(BootstrapError, match=r"its Python is 3.*needs 9\.9; install"):
        act({"action": "log", "directory": "/x"})
    with pytest.raises(BootstrapError, match=r"its Python is 3.*install python9\.12$"):  # the driver's, for which another would not do
        act({"action": "start", "python": "9.12"})


def test_without_the_same_environment_the_package_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    orders = {"action": "start", "cluster": "id", "host": "a", "same": "/nonexistent/python", "version": "0", "key": "k", "digest": "d"}
    orders["python"] = bootstrap._MINOR
    need = {"need": "package", "kind": host_software.kind()}
    assert act(orders) == need
    assert act({**orders, "same": sys.executable}) == need, "another version is not the same"
    with pytest.raises(BootstrapError, match=r"its Python is 3\.\d+, but the driver's is 3\.99; install python3\.99 there"):
        act({**orders, "python": "3.99"})


@pytest.fixture
def directory(tmp_path):
    """An agent's directory with a process that ends when it is asked to."""
    process = subprocess.Popen(["sleep", "600"])
    (tmp_path / "agents/one").mkdir(parents=True)
    (tmp_path / "agents/one/pid").write_text(f"{process.pid} {bootstrap._start_time(process.pid)} {bootstrap._boot()}\n")
    yield tmp_path / "agents/one", process
    process.kill()
    process.wait()


def test_stop_ends_the_agent_and_removes_its_directory(directory):
    path, process = directory
    assert act({"action": "stop", "directory": str(path), "python": "/bin/false"}) == {"how": "ended", "left": []}
    assert process.wait(5) == -signal.SIGTERM and not path.exists() and not path.parent.exists()
    assert act({"action": "stop", "directory": str(path), "python": "/bin/true"}) == {"how": "gone already", "left": []}


@pytest.mark.parametrize(
    ("prints", "left"),
    [
        ('{"actions": ["removed x", "not undone: a mount"], "clean": false}', ["not undone: a mount"]),
        ("Killed", ["pgherd clean ended with exit code 1: Killed"]),
        ('{"error": "no state"}', ['pgherd clean ended with exit code 1: {"error": "no state"}']),
    ],
)
def test_what_a_killed_agent_left_is_said(tmp_path, prints, left):
    """clean ends with exit code 1 if something remains."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho '{prints}'\nexit 1\n")
    python.chmod(0o755)
    assert act({"action": "stop", "directory": str(tmp_path / "agents/none"), "python": str(python)}) == {
        "how": "gone already",
        "left": left,
    }


@pytest.mark.parametrize("changed", ["start", "boot"])
def test_another_process_of_the_same_pid_is_left_alone(directory, changed):
    path, process = directory
    pid, start, boot = (path / "pid").read_text().split()
    (path / "pid").write_text(f"{pid} 1 {boot}\n" if changed == "start" else f"{pid} {start} of-another-boot\n")
    assert act({"action": "stop", "directory": str(path), "python": "/bin/true"}) == {"how": "gone already", "left": []}
    assert process.poll() is None


@pytest.mark.parametrize(("was", "stopped"), [(False, [{"directory": "/d", "python": "/p"}]), (True, [])])
def test_an_agent_that_nobody_hears_of_is_stopped(monkeypatch, was, stopped):
    """The driver was ended, or its connection broke, after the agent had started."""

    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    orders = []
    monkeypatch.setattr(bootstrap, "act", lambda given: {"pid": 1, "start": 2, "directory": "/d", "python": "/p", "was": was})
    monkeypatch.setattr(bootstrap, "_stop", orders.append)
    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(BrokenPipeError):
        bootstrap._main({"action": "start"})
    assert orders == stopped


def test_an_agent_that_runs_is_not_started_twice(directory, monkeypatch):
    path, process = directory
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    where = bootstrap._state() / "cluster-agents" / "id-a"
    where.mkdir(parents=True)
    (where / "pid").write_text((path / "pid").read_text())
    from pgherd import __version__

    orders = {"action": "start", "same": sys.executable, "version": __version__, "cluster": "id", "host": "a"}
    answer = act(orders)
    assert answer["was"] and answer["pid"] == process.pid and answer["directory"] == str(where) and answer["labels"] == {}
    (where / "agent.json").write_text(json.dumps({"scheduler": "tls://192.0.2.1:4", "host": "a", "labels": {"disk": "nvme"}}))
    wanted = {"agent.json": json.dumps({"labels": {"disk": "hdd"}})}
    assert act({**orders, "files": wanted})["labels"] == {"disk": "nvme"}, "those with which it runs"


FAKE = """#!/bin/sh
case "$*" in
*sysconfig*) echo "$0.site" ;;
*pgherd.__version__*) sed -n 's/^__version__ = //p' "$0.site/pgherd/__init__.py" 2>/dev/null ;;
esac
"""
"""A Python that only pretends, with its packages beside it."""
LIBRARIES = f"k-{bootstrap._MINOR}"


@pytest.fixture
def environment(monkeypatch, tmp_path):
    """``_environment`` where making environments is pretended: what was made, and the call with some data sent."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[list[str]] = []

    def logged(argv: list[str], advice: str) -> None:
        made.append(argv[2:])
        if "venv" in argv:
            python = Path(argv[-1]) / "bin/python"
            Path(f"{python}.site").mkdir(parents=True)
            python.write_text(FAKE)
            python.chmod(0o755)

    monkeypatch.setattr(bootstrap, "_run_checked", logged)
    orders = {"same": "/nonexistent/python", "version": "7", "key": "k", "digest": "one", "requirements": ["a==1"]}

    def given(data: bytes, **changes: object) -> str | None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return bootstrap._environment({**orders, "package": len(data), "libraries": 0, **changes})

    given.made, given.agents = made, tmp_path / "pgherd/agents"
    return given


def test_other_files_of_pgherd_are_another_environment_with_the_same_libraries(environment):
    """An agent of another cluster may run from the first one."""
    first, second = (str(environment.agents / f"{LIBRARIES}-{digest}/bin/python") for digest in ("one", "two"))
    assert environment(b"") is None and environment.made == []
    assert environment(_archive({"pgherd/__init__.py": "__version__ = 7"})) == first
    assert environment(b"") == first, "it is there now"
    assert environment(b"", digest="two") is None
    assert environment(_archive({"pgherd/__init__.py": "__version__ = 7", "pgherd/new.py": ""}), digest="two") == second
    assert environment(b"") == first and not Path(f"{first}.site/pgherd/new.py").exists() and Path(f"{second}.site/pgherd/new.py").exists()
    assert sum("pip" in argv for argv in environment.made) == 1, "the libraries are installed once"
    libraries = environment.agents / LIBRARIES / "bin/python.site"
    assert {Path(f"{python}.site/libraries.pth").read_text() for python in (first, second)} == {f"{libraries}\n"}


def test_the_agent_s_files_stay_as_private_as_its_account_wants_them(environment):
    before = os.umask(0o077)
    try:
        python = environment(_archive({"pgherd/__init__.py": "__version__ = 7"}))
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert (Path(python).parents[1] / "ready").stat().st_mode & 0o044 == 0o044, "the servers' account can read what was made"


def test_an_environment_that_does_not_start_is_not_used(environment):
    with pytest.raises(BootstrapError, match="does not start there"):
        environment(_archive({"pgherd/__init__.py": "__version__ = 8"}))
    assert environment(b"") is None
    assert environment(_archive({"pgherd/__init__.py": "__version__ = 7"})) is not None
    assert sum("pip" in argv for argv in environment.made) == 2, "it could have been for want of the libraries"


def test_another_python_is_another_environment(environment, monkeypatch):
    first = environment(_archive({"pgherd/__init__.py": "__version__ = 7"}))
    monkeypatch.setattr(bootstrap, "_MINOR", "3.99")
    assert environment(b"") is None
    second = environment(_archive({"pgherd/__init__.py": "__version__ = 7"}))
    assert (first, second) == tuple(str(environment.agents / f"{name}-one/bin/python") for name in (LIBRARIES, "k-3.99"))
    assert sum("pip" in argv for argv in environment.made) == 2


def test_packages_beside_an_environment_are_found_in_it(tmp_path, monkeypatch):
    """A real one, made without pip: what lies with the libraries can be imported, and pgherd's own files come first."""
    libraries = tmp_path / "k"
    subprocess.run([sys.executable, "-I", "-m", "venv", "--without-pip", str(libraries)], check=True)
    site = bootstrap._site(libraries)
    (site / "distributed.py").write_text("")
    (site / "pgherd").mkdir()
    (site / "pgherd/__init__.py").write_text("__version__ = '1'")
    bootstrap._make_environment(tmp_path / "k-one", libraries, _archive({"pgherd/__init__.py": "__version__ = '7'"}))
    assert bootstrap._has(str(tmp_path / "k-one/bin/python"), "7")
    monkeypatch.setattr(bootstrap, "_MINOR", "3.99")
    assert not bootstrap._has(str(tmp_path / "k-one/bin/python"), "7"), "what lies at the driver's own path may be of another Python"


def test_libraries_of_the_driver_are_laid_out_and_tried(monkeypatch, tmp_path):
    """Real environments: the libraries that came are used, and where they do not run here pip is asked."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    package = _archive({"pgherd/__init__.py": "__version__ = '7'"})
    orders = {"same": "/nonexistent/python", "version": "7", "key": "k", "digest": "one", "requirements": [], "proof": ["distributed"]}

    def given(libraries, **changes):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(package + libraries)))
        return bootstrap._environment({**orders, "package": len(package), "libraries": len(libraries), **changes})

    with pytest.raises(BootstrapError, match="the package was received incompletely"):
        given(_archive({"distributed.py": "x" * 99_999})[:-20], key="cut")
    python = given(_archive({"distributed.py": ""}))
    assert python == str(tmp_path / "pgherd/agents" / f"{LIBRARIES}-one" / "bin/python")
    assert given(b"") == python and given(b"", digest="two") is not None, "the libraries are there"
    tried, really = [], bootstrap._run_checked

    def logged(argv, advice):
        tried.append(advice)
        if "install" not in argv:
            really([*argv[:-1], "--without-pip", argv[-1]], advice)

    monkeypatch.setattr(bootstrap, "_run_checked", logged)
    with pytest.raises(BootstrapError, match="does not start there"):
        given(_archive({"distributed.py": "import nothing_like_it"}), key="broken")
    told = "the libraries of the driver's machine do not run here (ModuleNotFoundError: No module named 'nothing_like_it'), and "
    assert f"{told}pip could not install what pgherd needs" in tried


def _archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()
