"""The launchers' own logic, with a Python that only pretends: when they make an environment, where, and what they say.

A real first use is in tests/it/test_first_use.py.
"""

from __future__ import annotations

import ast
import fcntl
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
# What the launchers may call; whatever is missing here they must do without.
TOOLS = ["cat", "cksum", "cmp", "cp", "date", "dirname", "env", "flock", "id", "mkdir", "mktemp", "mv", "od", "readlink", "rm", "rmdir"]
TOOLS += ["sed", "sh", "sleep", "tail", "tr"]

# Makes an environment of copies of itself, writes down every call, fails in what FAKE_FAILS names.
FAKE_PYTHON = """#!/bin/sh
echo "$*" >>"$FAKE_LOG"
[ "$1" = -I ] || exit 97
case "$2 $3" in
-c*) echo "good $0" ;;
"-m $FAKE_FAILS") echo "$3 went wrong" && exit 1 ;;
'-m pytest') case " $* " in *" -n 3 "*) exit "${FAKE_BESIDE:-0}" ;; esac ;;
'-m venv') mkdir -p "$4/bin" "$4/lib/python3.12/site-packages" && cp "$0" "$4/bin/python" && cp "$0" "$4/bin/pip" ;;
'-m pip') sleep "${FAKE_SECONDS:-0}" ;;
*/bin/pgherd*) shift 2 && printf '<%s>' "$@" ;;
esac
"""


class Checkout:
    """A copy of the launchers with their files, and a PATH of nothing but what they need."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "a checkout"
        self.bin = directory / "bin"
        self.log = directory / "calls"
        self.cache = directory / "cache"
        self.root.mkdir()
        self.bin.mkdir()
        (self.root / "src").mkdir()
        shutil.copytree(ROOT / "environment", self.root / "environment")
        for launcher in ("pgherd", "check"):
            shutil.copy2(ROOT / launcher, self.root)
        for tool in TOOLS:
            if result := shutil.which(tool):
                (self.bin / tool).symlink_to(result)
        self.environment = {"PATH": str(self.bin), "FAKE_LOG": str(self.log), "XDG_CACHE_HOME": str(self.cache)}

    def add_tool(self, name: str, text: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)  # writing to the link would overwrite the machine's own tool
        path.write_text(text)
        path.chmod(0o755)

    def start(self, *arguments: str, program: str | Path = "pgherd", **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self.root / program, *arguments],
            env=self.environment | environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, program: str | Path = "pgherd", **environment: str) -> tuple[int, str, str]:
        process = self.start(*arguments, program=program, **environment)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def calls(self, word: str) -> int:
        """How many calls of the pretended Python had the word in them so far."""
        return sum(word in line for line in self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def bare(tmp_path):
    """A checkout on a machine without Python and uv."""
    return Checkout(tmp_path)


@pytest.fixture
def checkout(bare):
    bare.add_tool("python3", FAKE_PYTHON)
    return bare


def test_neither_python_nor_uv(bare):
    code, out, err = bare.run("--help")
    assert (code, out) == (3, "")
    assert "python3-venv" in err and "uv" in err and len(err.splitlines()) == 1
    assert not (bare.root / ".venv").exists()


def test_python_without_venv_names_its_package(bare):
    bare.add_tool("python3", "#!/bin/sh\necho bare 3.12\n")
    code, _, err = bare.run()
    assert code == 3
    assert "python3-venv" in err and "python3.12-venv" in err


def test_old_or_broken_python_is_passed_over(bare):
    bare.add_tool("python3.13", "#!/bin/sh\necho python3.13: command not found >&2\nexit 127\n")  # as a pyenv shim does
    bare.add_tool("python3", "#!/bin/sh\nexit 0\n")  # what the question says of a Python older than 3.11
    assert bare.run()[0] == 3
    bare.add_tool("python3.11", FAKE_PYTHON)
    assert bare.run()[0] == 0


def test_chosen_python(checkout):
    code, _, err = checkout.run(PGHERD_PYTHON="/bin/false")
    assert code == 3 and "PGHERD_PYTHON=/bin/false" in err
    (checkout.bin / "python3").rename(checkout.bin / "my python")
    assert checkout.run(PGHERD_PYTHON=str(checkout.bin / "my python"))[0] == 0


def test_uv_serves_where_python_has_no_venv(bare):
    bare.add_tool("python3", "#!/bin/sh\necho bare 3.12\n")
    bare.add_tool("fake", FAKE_PYTHON)
    bare.add_tool(
        "uv",
        f"""#!/bin/sh
for last; do :; done
echo "uv $*" >>"$FAKE_LOG"
[ "$1" = pip ] || {{ mkdir -p "$last/bin" "$last/lib/python3.12/site-packages" && cp {bare.bin}/fake "$last/bin/python"; }}
""",
    )
    code, out, _ = bare.run("x")
    assert (code, out) == (0, "<x>")
    assert bare.calls("uv venv") == bare.calls("uv pip install") == 1


def test_first_use_then_silence(checkout):
    code, out, err = checkout.run("density", "--set", "a = 'b c'", "")
    assert (code, out) == (0, "<density><--set><a = 'b c'><>")
    assert err == f"pgherd: first use: making the environment in {checkout.root}/.venv, about half a minute\n"
    assert (checkout.root / ".venv/lib/python3.12/site-packages/pgherd.pth").read_text() == "../../../../src\n"
    code, out, err = checkout.run("again")
    assert (code, out, err) == (0, "<again>", "")
    assert checkout.calls("-m venv") == checkout.calls("-m pip install") == 1


def test_links_lead_to_the_checkout(checkout, tmp_path):
    (tmp_path / "one").symlink_to(checkout.root / "pgherd")
    (tmp_path / "two").symlink_to("one")
    assert checkout.run("x", program=tmp_path / "two")[:2] == (0, "<x>")
    assert (checkout.root / ".venv").is_dir()


def test_settings_for_all_of_pip_do_not_reach_it(checkout):
    checkout.add_tool("python3", FAKE_PYTHON.replace("'-m pip')", "'-m pip') [ -z \"$PIP_USER$PIP_TARGET\" ] || exit 1;"))
    assert checkout.run(PIP_USER="1", PIP_TARGET="/nowhere")[0] == 0


def test_changed_lock_makes_it_anew(checkout):
    checkout.run()
    path = checkout.root / ".venv/of-the-old-one"
    path.touch()
    with (checkout.root / "environment/requirements.lock").open("a") as lock:
        lock.write("another==1\n")
    assert checkout.run()[0] == 0
    assert not path.exists()
    assert checkout.calls("-m venv") == 2


def test_failing_set_up_is_shown_and_not_used(checkout):
    code, out, err = checkout.run(FAKE_FAILS="pip")
    assert (code, out) == (3, "")
    assert "pip went wrong" in err and "set-up.log" in err
    assert checkout.run("x")[:2] == (0, "<x>")
    assert checkout.calls("-m venv") == 2


def test_killed_set_up_is_started_afresh(checkout):
    process = checkout.start(FAKE_SECONDS="1")
    while not checkout.calls("-m pip"):
        assert process.poll() is None
    process.kill()
    process.communicate()
    assert checkout.run("x")[:2] == (0, "<x>")
    assert checkout.calls("-m venv") == 2


def test_two_first_uses_make_one_environment(checkout):
    both = [checkout.start("x", FAKE_SECONDS="0.5") for _ in range(2)]
    text = "".join(process.communicate(timeout=60)[1] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert checkout.calls("-m venv") == 1
    assert text.count("first use") == 1


def test_a_lock_on_what_others_can_open_holds_up_nobody(checkout):
    parent = os.open(checkout.root, os.O_RDONLY)
    try:
        fcntl.flock(parent, fcntl.LOCK_EX)
        process = checkout.start("x")
        assert process.communicate(timeout=60)[0] == "<x>"
    finally:
        os.close(parent)
    assert not (checkout.root / ".venv.lock").exists()


@pytest.mark.parametrize("flock", ["#!/bin/sh\nexit 64\n", None], ids=["refused", "missing"])
def test_two_first_uses_without_flock(checkout, flock):
    (checkout.bin / "flock").unlink()
    if flock is not None:
        checkout.add_tool("flock", flock)
    both = [checkout.start("x", FAKE_SECONDS="0.5") for _ in range(2)]
    text = "".join(process.communicate(timeout=60)[1] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert checkout.calls("-m venv") == 1
    assert "waiting" in text
    assert not (checkout.root / ".venv.making").exists()


def test_environment_of_somebody_else_is_left_alone(checkout):
    (checkout.root / ".venv").mkdir()
    code, out, err = checkout.run("x")
    assert (code, out) == (0, "<x>")
    assert not any((checkout.root / ".venv").iterdir())
    assert str(checkout.cache / "pgherd") in err
    (created,) = (checkout.cache / "pgherd").iterdir()
    assert (created / "lib/python3.12/site-packages/pgherd.pth").read_text() == f"{checkout.root}/src\n"
    assert checkout.run("x") == (0, "<x>", "")


def test_no_place_to_write(checkout):
    (checkout.root / ".venv").mkdir()
    checkout.cache.touch()
    code, _, err = checkout.run()
    assert code == 3 and "XDG_CACHE_HOME" in err


def test_checkout_that_is_not_whole(checkout):
    (checkout.root / "environment/requirements.lock").unlink()
    code, _, err = checkout.run()
    assert code == 3 and "not whole" in err


# ---- check


def test_check_runs_all_steps_and_the_tests_last(checkout):
    code, out, _ = checkout.run(program="check", FAKE_FAILS="mypy")
    assert code == 1
    assert [line for line in out.splitlines() if "FAILED" in line] == ["== mypy FAILED (0 s)"]
    assert "mypy went wrong" in out
    modules = [line.split()[2] for line in checkout.log.read_text().splitlines() if line.startswith("-I -m")]
    assert modules == ["venv", "pip", "compileall", "pip", "compileall", "ruff", "ruff", "mypy", "pytest"]


@pytest.mark.parametrize("fails, expected", [("", 0), ("pytest", 1), ("ruff", 1)])
def test_check_tells_by_its_exit_code(checkout, fails, expected):
    assert checkout.run(program="check", FAKE_FAILS=fails)[0] == expected


@pytest.mark.parametrize(
    "beside, arguments, expected, calls",
    [("0", [], 0, 1), ("1", [], 0, 2), ("2", [], 1, 1), ("1", ["--fast"], 0, 2), ("1", ["--long"], 1, 1)],
    ids=["passed", "failed beside others", "collected nothing", "fast", "long"],
)
def test_what_failed_beside_other_tests_has_a_second_try_alone(checkout, beside, arguments, expected, calls):
    (checkout.root / "benchmarks").mkdir()  # without, nothing is published
    code, out, _ = checkout.run(*arguments, program="check", FAKE_BESIDE=beside)
    assert code == expected and checkout.calls("-m pytest") == calls
    assert ("again: alone" in out) == (calls == 2)
    if calls == 2:
        assert checkout.calls("--last-failed") == 1 and " -n 3 " not in checkout.log.read_text().splitlines()[-1]


def test_a_second_failure_is_one(checkout):
    assert checkout.run(program="check", FAKE_FAILS="pytest")[0] == 1
    assert checkout.calls("-m pytest") == 2


def test_check_selections(checkout):
    last = lambda: [line for line in checkout.log.read_text().splitlines() if "-m pytest" in line][-1]  # noqa: E731
    checkout.run(program="check", PGHERD_TEST_SEED="7")
    assert last().endswith("--hypothesis-seed=7 -n 3 --dist loadscope tests")
    checkout.run("--fast", program="check", PGHERD_TEST_SEED="7")
    assert last().endswith("tests --ignore=tests/it")
    checkout.run("--long", program="check", PGHERD_TEST_SEED="7")
    assert last().endswith("tests -m ")
    (checkout.root / "benchmarks").mkdir()
    checkout.run("--long", program="check", PGHERD_TEST_SEED="7")
    before, _, report = last().partition(" --junitxml=")
    assert before.endswith("tests benchmarks -m ") and report.endswith("long.xml")
    assert checkout.log.read_text().splitlines()[-1].endswith(f"long_check.py {report}")
    (checkout.root / "tests/it").mkdir(parents=True)
    (checkout.root / "tests/it/test_a.py").touch()
    checkout.run("--long", "tests/it/test_a.py", program="check", PGHERD_TEST_SEED="7")
    assert "loadscope tests/it/test_a.py -m  --junitxml=" in last()
    assert checkout.log.read_text().splitlines()[-1].endswith(f"long_check.py --part {report}")
    code, _, err = checkout.run("--long", "tests/it/test_b.py", program="check")
    assert code == 2 and "no test file tests/it/test_b.py" in err


def test_check_refuses_what_it_does_not_know(checkout):
    code, _, err = checkout.run("--lang", program="check")
    assert code == 2 and "--lang" in err and "--long" in err


def test_check_says_what_is_missing(checkout):
    checkout.add_tool("dpkg-query", "#!/bin/sh\necho not-installed\n")
    checkout.add_tool("id", "#!/bin/sh\necho 1000\n")
    code, out, _ = checkout.run(program="check")
    assert code == 0 and "only root can install them: python3-venv postgresql chromium" in out


# ---- the locks


def lock(name: str) -> dict[str, Requirement]:
    """Package name → its line."""
    lines = (ROOT / "environment" / name).read_text().splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


RUN = lock("requirements.lock")
DEV = lock("requirements-dev.lock")


def pinned(requirement: Requirement) -> str:
    (specifier,) = requirement.specifier
    assert specifier.operator == "==" and not requirement.url
    return specifier.version


def test_locks_pin_what_pyproject_allows():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    expected = [(RUN, line) for line in project["dependencies"]]
    expected += [(RUN | DEV, line) for line in project["optional-dependencies"]["dev"]]
    for locked, line in expected:
        requirement = Requirement(line)
        assert requirement.specifier.contains(pinned(locked[canonicalize_name(requirement.name)])), line
    assert not set(RUN) & set(DEV)


@pytest.mark.parametrize("locked", [RUN, RUN | DEV], ids=["run", "dev"])
def test_locks_are_whole(locked):
    """Installed with --no-deps: so whatever a package needs must be pinned too, at a version that it accepts."""
    for name, requirement in locked.items():
        if requirement.marker and not requirement.marker.evaluate():
            continue
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            pytest.skip(f"{name} is not installed here: run by ./check")
        if distribution.version != pinned(requirement):
            pytest.skip(f"{name} {distribution.version} is installed, not {pinned(requirement)}: run by ./check")
        for line in distribution.requires or ():
            needed = Requirement(line)
            extras = requirement.extras or {""}
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                other = canonicalize_name(needed.name)
                assert other in locked, f"{name} needs {needed}"
                assert needed.specifier.contains(pinned(locked[other])), f"{name} needs {needed}"


def test_every_import_of_the_source_is_locked():
    """So that each command works from a fresh checkout: there is nothing to install for one of them."""
    imported = set()
    files = list((ROOT / "src").rglob("*.py"))
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            imported |= {name.partition(".")[0] for name in names}
    own = {path.stem for path in files} | {"pgherd"}  # a guest's agent imports its modules by their bare names
    distributions = importlib.metadata.packages_distributions()
    missing = [
        name
        for name in imported - set(sys.stdlib_module_names) - own
        if not set(RUN) & {canonicalize_name(distribution) for distribution in distributions.get(name, ())}
    ]
    assert missing == []
    assert set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]) == {"dev"}


def test_launchers_are_executable():
    for launcher in ("pgherd", "check", ".ci/run", "environment/relock"):
        assert os.access(ROOT / launcher, os.X_OK), launcher
