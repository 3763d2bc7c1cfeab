"""Sizes of the pools in a container and in a guest."""

from __future__ import annotations

import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.prepare.guests import GUEST_SYSTEM
from pgherd.studies.balloon_limits.options import BalloonLimitsRequest
from pgherd.studies.balloon_limits.prepare import _pool_sizes, prepare

MB = 2**20


def test_pools_leave_a_guest_memory_for_its_system():
    container, guest = (_pool_sizes(1024 * MB, (100, 50, 25, 100), system) for system in (0, GUEST_SYSTEM))
    assert {pool: size // MB for pool, size in container.items()} == {
        "small": 144,
        "middle": 304,
        "large": 608,
        "quarter": 256,
        "balloon": 608,
    }
    assert {pool: size // MB for pool, size in guest.items()} == {
        "small": 32,
        "middle": 192,
        "large": 496,
        "quarter": 256,
        "balloon": 496,
    }


@pytest.mark.usefixtures("own_directories")
def test_pools_in_huge_pages_are_refused():
    def settings(*assignments: str) -> dict[str, str]:
        request = BalloonLimitsRequest(memory="512MB", host_memory="1GB", pools=("small", "large"), set=assignments)
        try:
            return prepare(LocalNode(), request, dry=True).options.settings
        except CapabilityError as error:
            pytest.skip(str(error))

    assert settings()["huge_pages"] == "off"
    with pytest.raises(UsageError, match="huge_pages is try, but .*; add --set huge_pages=off"):
        settings("huge_pages=try")


def test_a_limit_without_room_for_a_server_is_refused():
    with pytest.raises(UsageError, match="--limits 15: a guest with 154 MB has no room for a server"):
        _pool_sizes(1024 * MB, (100, 15), GUEST_SYSTEM)
