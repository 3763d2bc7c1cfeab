"""What all tests share: the seed of every random choice, printed so that a failure can be repeated, and the other steps of ./check."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("PGHERD_TEST_SEED", str(random.SystemRandom().randrange(2**24)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With several workers (``-n 2 --dist loadscope``) what starts servers stays with one, test after test; the others run beside it."""
    from xdist.scheduler import LoadScopeScheduling

    class ServersTogether(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "servers" if nodeid.startswith(("tests/it/", "benchmarks/")) else nodeid

    return ServersTogether(config, log)


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


@pytest.fixture
def own_directories(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """State and cache directories of the test's own, which the servers' account can enter."""
    root = tmp_path_factory.mktemp("own")
    for path in (root, *root.parents):
        if str(path).startswith("/tmp/") and path.owner() == "root" and os.geteuid() == 0:
            path.chmod(0o755)
    monkeypatch.setenv("XDG_STATE_HOME", str(root / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(root / "cache"))
    return root
