"""PostgreSQL installations, the account that servers run under, and a place that it can reach."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host.account import server_account
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation


@pytest.fixture(scope="session")
def node() -> LocalNode:
    return LocalNode()


@pytest.fixture(scope="session")
def account() -> str | None:
    return server_account()


@pytest.fixture
def place() -> Iterator[Path]:
    """A scratch directory with a short path that any account may enter (pytest's own is private)."""
    path = Path(tempfile.mkdtemp(prefix="pgherd-test-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session", params=["system", "embedded"])
def installation(request: pytest.FixtureRequest, node: LocalNode, account: str | None) -> Iterator[Installation]:
    """The newest system installation and the embedded one, where the account can execute them."""
    found = [one for one in installations.find_all(node) if one.kind == request.param]
    if not found:
        pytest.skip(f"there is no {request.param} PostgreSQL here")
    cache = Path(tempfile.mkdtemp(prefix="pgherd-bin-", dir="/tmp"))
    cache.chmod(0o755)
    try:
        yield installations.reachable_copy(node, found[0], account, str(cache))
    except CapabilityError as error:
        pytest.skip(str(error))
    finally:
        shutil.rmtree(cache, ignore_errors=True)
