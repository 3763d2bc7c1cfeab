"""What runs on a host before pgherd is there."""

from __future__ import annotations

import ast
import io
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from pgherd.cluster import bootstrap
from pgherd.cluster.bootstrap import Failed, act
from pgherd.host import paths


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


def test_an_old_python_is_told(monkeypatch):
    monkeypatch.setattr(bootstrap, "OLDEST", (9, 9))
    with pytest.raises(Failed, match=r"its Python is 3.*needs 9.9 or newer"):
        act({"action": "log", "directory": "/x"})


def test_without_the_same_environment_the_package_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    orders = {"action": "start", "cluster": "id", "host": "a", "same": "/nonexistent/python", "version": "0", "key": "k", "digest": "d"}
    orders["requirements"] = []
    assert act(orders) == {"need": "package"}
    assert act({**orders, "same": sys.executable}) == {"need": "package"}, "another version is not the same"


@pytest.fixture
def directory(tmp_path):
    """An agent's directory with a process that ends when it is asked to."""
    process = subprocess.Popen(["sleep", "600"])
    (tmp_path / "agents/one").mkdir(parents=True)
    (tmp_path / "agents/one/pid").write_text(f"{process.pid} {bootstrap._start_time(process.pid)}\n")
    yield tmp_path / "agents/one", process
    process.kill()
    process.wait()


def test_stop_ends_the_agent_and_removes_its_directory(directory):
    path, process = directory
    assert act({"action": "stop", "directory": str(path), "python": "/bin/false"}) == {"how": "ended"}
    assert process.wait(5) == -signal.SIGTERM and not path.exists() and not path.parent.exists()
    assert act({"action": "stop", "directory": str(path), "python": "/bin/true"}) == {"how": "gone already"}


def test_another_process_of_the_same_pid_is_left_alone(directory):
    path, process = directory
    (path / "pid").write_text(f"{process.pid} 1\n")
    assert act({"action": "stop", "directory": str(path), "python": "/bin/true"}) == {"how": "gone already"}
    assert process.poll() is None


def test_an_agent_that_runs_is_not_started_twice(directory, monkeypatch):
    path, process = directory
    monkeypatch.setenv("XDG_STATE_HOME", str(path))
    where = bootstrap._state() / "cluster-agents" / "id-a"
    where.mkdir(parents=True)
    (where / "pid").write_text((path / "pid").read_text())
    from pgherd import __version__

    orders = {"action": "start", "same": sys.executable, "version": __version__, "cluster": "id", "host": "a"}
    pytest.importorskip("distributed")
    answer = act(orders)
    assert answer["was"] and answer["pid"] == process.pid and answer["directory"] == str(where)


FAKE = """#!/bin/sh
case "$*" in
*sysconfig*) echo "$0.site" ;;
*pgherd.__version__*) sed -n 's/^__version__ = //p' "$0.site/pgherd/__init__.py" 2>/dev/null ;;
esac
echo "$*" >>"$0.calls"
"""
"""A Python that only pretends: pip and venv do nothing, and its packages lie beside it."""


def test_the_package_is_replaced_without_a_new_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = tmp_path / "pgherd/agents/k"
    python = place / "bin/python"

    def make(place: Path, python: Path, requirements: list[str]) -> None:
        python.parent.mkdir(parents=True)
        python.write_text(FAKE)
        python.chmod(0o755)
        made.append(requirements)

    made: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "_make_environment", make)
    orders = {"same": "/nonexistent/python", "version": "7", "key": "k", "digest": "one", "requirements": ["a==1"]}

    def given(data: bytes) -> str | None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return bootstrap._environment(orders)

    assert given(b"") is None and made == []
    assert given(_archive({"pgherd/__init__.py": "__version__ = 7", "pgherd/old.py": ""})) == str(python) and made == [["a==1"]]
    assert given(b"") == str(python), "it is there now"
    orders["digest"] = "two"
    assert given(b"") is None
    assert given(_archive({"pgherd/__init__.py": "__version__ = 7"})) == str(python) and len(made) == 1
    assert not (place / "bin/python.site/pgherd/old.py").exists() and (place / "ready").read_text() == "two"
    orders["digest"] = "three"
    with pytest.raises(Failed, match="does not start there"):
        given(_archive({"pgherd/__init__.py": "__version__ = 8"}))
    assert given(b"") is None, "what does not start is not used"


def _archive(files: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            made.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()
