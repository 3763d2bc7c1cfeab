"""Fixtures: PostgreSQL installations, the user of servers, and a directory that it can enter."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgherd.host.server_user import server_account
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


@pytest.fixture(scope="session", params=["system", "embedded"])
def installation(request: pytest.FixtureRequest, node: LocalNode, account: str | None) -> Iterator[Installation]:
    """The newest system installation and the embedded one, executable for the account."""
    available = [item for item in installations.find_all(node) if item.kind == request.param]
    if not available:
        pytest.skip(f"no {request.param} PostgreSQL on this host")
    cache = Path(tempfile.mkdtemp(prefix="pgherd-bin-", dir="/tmp"))
    cache.chmod(0o755)
    try:
        yield installations.reachable_copy(node, available[0], account, str(cache))
    except CapabilityError as error:
        pytest.skip(str(error))
    finally:
        shutil.rmtree(cache, ignore_errors=True)
