"""What all tests share: the seed of every random choice, printed so that a failure can be repeated, and the other steps of ./check."""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

from pgherd.node.process import MARK

settings.register_profile("pgherd", deadline=None)  # a busy machine takes as long as it takes for an example
settings.register_profile("fuzz", deadline=None, max_examples=2_000)  # a round of tests/field_reports/fuzz.py
settings.load_profile("pgherd")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("PGHERD_TEST_SEED", str(random.SystemRandom().randrange(2**24)))
    os.environ[MARK] = "1"  # root shares the servers' user with no foreign process, and what the tests start is none

    # A shell starts what it puts into the background deaf to both, and so would be all that tests start and interrupt.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture
def place() -> Iterator[Path]:
    """Temporary directory with a short path that any user can enter (pytest's is private)."""
    path = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


HOST_WIDE = re.compile(
    r"tests/it/(pg_balloon/|test_(balloon|cgroup|consolidation|guest|hugepages|isolation|memory|place_verify|vm|working_set)|test_bad_luck.*too_little_memory)"
    r"|tests/studies/hugepages/test_prepare|benchmarks/"
)
"""What changes or counts on what all share (huge pages, swap, the top of cgroup v2), emulates processors, or fetches a kernel or a
PostgreSQL into the environment's cache: two of these at once would be in each other's way."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers (``-n 3 --dist loadscope``) what starts servers stands in rows, each for one worker, test after test: the
    host-wide ones; those on hosts of a cluster, which are namespaces of their own; the rest of them. The others are run by whoever is
    free."""
    from xdist.scheduler import LoadScopeScheduling

    from pgherd.host.cgroup_parent import read_layout
    from pgherd.node.local import LocalNode

    one_top = read_layout(LocalNode()).manager == "v2"

    class ServersInRows(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return row(nodeid, one_top)

    return ServersInRows(config, log)


def row(nodeid: str, one_top: bool) -> str:
    """In which row a test stands, its own id for none. With ``one_top`` (control groups of version 2) all that starts servers stands in
    one: a run hands controllers to groups at the top, and cannot take them back at its end while another run has its groups there."""
    if HOST_WIDE.match(nodeid):
        return "host-wide"
    if not nodeid.startswith("tests/it/"):
        return nodeid
    if one_top:
        return "host-wide"
    return "cluster" if nodeid.startswith("tests/it/test_cluster") else "servers"


def pytest_report_header(config: pytest.Config) -> str:
    return f"PGHERD_TEST_SEED={os.environ['PGHERD_TEST_SEED']}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    steps = os.environ.get("PGHERD_CHECK_STEPS", "").splitlines()
    if steps:
        terminalreporter.section("before the tests")
        for step in steps:
            terminalreporter.line(step, red="FAILED" in step)
        terminalreporter.line(f"seed: PGHERD_TEST_SEED={os.environ['PGHERD_TEST_SEED']}")


@pytest.fixture
def seed() -> int:
    """The seed for a test's random choices; ``PGHERD_TEST_SEED=N`` in the environment sets it."""
    return int(os.environ["PGHERD_TEST_SEED"])


@pytest.fixture(scope="session")
def _configured(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """``validation.configured`` with copies of clusters that it has made once for all tests: of PostgreSQL's answers about settings
    initdb takes the most time by far. What a stopped cluster needs to be asked is its version, its settings and its control file."""
    from pgherd.postgres import settings_validation

    real, created = settings_validation.configured, dict[tuple[str, str | None], Path]()

    def configured(node: Any, installation: Any, settings: Any, account: str | None, workdir: str) -> str:
        cluster = Path(workdir, f"validate-{installation.version}")
        if not cluster.exists():
            key = installation.bin, account
            if key not in created:
                root = _enterable(tmp_path_factory.mktemp("validate"))
                created[key] = Path(real(node, installation, {}, account, str(root)))
            for part in (cluster, cluster / "global"):
                part.mkdir(mode=0o700)
            for name in ("PG_VERSION", "postgresql.conf", "global/pg_control"):
                shutil.copy2(created[key] / name, cluster / name)
            if account is not None:
                for part in (cluster, *cluster.rglob("*")):
                    shutil.chown(part, account)
        return real(node, installation, settings, account, workdir)

    return configured


def _enterable(root: Path) -> Path:
    """The directory, which the servers' account can enter."""
    for path in (root, *root.parents):
        if str(path).startswith("/tmp/") and path.owner() == "root" and os.geteuid() == 0:
            path.chmod(0o755)
    return root


@pytest.fixture
def own_directories(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, _configured: Callable[..., str]) -> Path:
    """State and cache directories of the test's own, which the servers' account can enter."""
    root = _enterable(tmp_path_factory.mktemp("own"))
    monkeypatch.setattr("pgherd.postgres.settings_validation.configured", _configured)
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    return root


@pytest.fixture
def added_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Directory of the study ``tiny``, outside the source tree and found like the others."""
    import pgherd.studies
    from pgherd.study.study import labels, percent_columns, studies
    from pgherd.ui.study_forms import study_forms

    def forget() -> None:
        for cached in (studies, labels, percent_columns, study_forms):
            cached.cache_clear()
        for name in [name for name in sys.modules if name.startswith("pgherd.studies.tiny")]:
            del sys.modules[name]

    directory = shutil.copytree(Path(__file__).parent / "fixtures" / "added_study" / "tiny", tmp_path / "added" / "tiny")
    monkeypatch.setattr(pgherd.studies, "__path__", [*pgherd.studies.__path__, str(directory.parent)])
    forget()
    yield directory
    monkeypatch.undo()
    forget()


# Runs that are made up, for tests of reports and of studies' figures.
REPORT_FIXTURES = Path(__file__).parent / "fixtures" / "report"


def _report_fixture(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"report_{name}", REPORT_FIXTURES / f"{name}.py")
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def synthetic() -> ModuleType:
    return _report_fixture("synthetic")


@pytest.fixture(scope="session")
def comparison() -> ModuleType:
    return _report_fixture("comparison")


@pytest.fixture(scope="session")
def run8(synthetic):
    return synthetic.density_run(8, vcpus=0.25, alone=17_000.0)


@pytest.fixture(scope="session")
def run40(synthetic):
    return synthetic.density_run(40)


@pytest.fixture(scope="session")
def hostile8(synthetic):
    return synthetic.hostile(*synthetic.density_run(8, repeats=2))


@pytest.fixture
def run_on_disk(tmp_path: Path, synthetic: ModuleType) -> Path:
    """The directory of a finished density run with samples of three seconds per trial, in ``pgherd-runs``."""
    from pgherd.store.samples import write_samples

    record, results = synthetic.density_run(4, repeats=1, seconds=3, name="20260131-120000-density-0001")
    directory: Path = synthetic.write_run(tmp_path / "pgherd-runs" / record.run, record, results)
    for result in results:
        trial = directory / "trials" / result.id
        shutil.rmtree(trial / "samples")
        containers = [name for name in result.phases[0].metrics if name.startswith("container:")] if result.phases else []
        memory = [(1e9 + s, "cgroup_memory", name, {"memory.usage": 2.0**28 + s}) for s in range(3) for name in containers]
        write_samples(trial, [*memory, *((1e9 + s, "cpu", "host", {"cpu.user": 0.5 * s, "cpu.idle": 1.0}) for s in range(3))])
    return directory


@pytest.fixture(scope="session")
def drawn8(run8):
    """(figures by name, reasons of those left out) of the run with 8 databases."""
    from pgherd.report import drawing

    figure, left_out = drawing.draw(drawing.FigureInputs(run8[0], run8[0].analysis, run8[1]))
    return {item.name: item for item in figure}, left_out
