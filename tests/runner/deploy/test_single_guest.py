"""tests/it/test_guest.py has real guests; here is what happens when there can be none."""

from __future__ import annotations

import pytest

from pgherd.host import paths
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.runner.deploy.single_guest import GuestRequest, boot_single_guest
from pgherd.runtimes.vm import boot_images

pytestmark = pytest.mark.usefixtures("own_directories")


def test_what_no_guest_can_be_like_is_refused_before_anything_is_made() -> None:
    with (
        pytest.raises(UsageError, match="has 1 MB of memory; it needs at least 160 MB"),
        boot_single_guest(LocalNode(), Installation("/opt/bin", "15.1", 15, "system"), GuestRequest(memory=2**20)),
    ):
        pytest.fail("there can be no guest")
    assert not paths.cache_dir().exists() and not paths.state_dir().exists()


def test_what_was_made_goes_when_there_can_be_no_guest(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_, **__) -> None:
        raise CapabilityError("no QEMU")

    monkeypatch.setattr(boot_images, "build", refuse)
    monkeypatch.setattr(installations, "reachable_copy", lambda node, chosen, account, cache: chosen)
    with (
        pytest.raises(CapabilityError, match="no QEMU"),
        boot_single_guest(LocalNode(), Installation("/opt/bin", "15.1", 15, "system"), GuestRequest()),
    ):
        pytest.fail("there can be no guest")
    assert list((paths.cache_dir() / "work").iterdir()) == [] and list((paths.state_dir() / "journal").glob("*.jsonl")) == []
