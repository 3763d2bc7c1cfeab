"""Choosing pg_balloon for servers of a study; tests/it/test_balloon.py builds and loads it."""

from types import SimpleNamespace

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres import pg_balloon
from pgherd.prepare.balloon import choose_balloon

LIBRARY = pg_balloon.BalloonLibrary("/made", "18.6", 18, "abc")
DRY = SimpleNamespace(node=LocalNode(), cache="/nowhere", dry=True, account=None)


def test_a_pool_that_is_to_lie_in_huge_pages_has_no_balloon(monkeypatch):
    monkeypatch.setattr(pg_balloon, "find_balloon", lambda *_: LIBRARY)
    balloon = choose_balloon(DRY, None, "cgroup", True, {"huge_pages": "on"}, "pool balloon")
    assert balloon.unavailable == "pg_balloon does not support huge pages, and huge_pages = on is set" and balloon.settings == {}


def test_a_dry_run_builds_nothing(monkeypatch):
    monkeypatch.setattr(pg_balloon, "find_balloon", lambda *_: None)
    monkeypatch.setattr(pg_balloon, "missing_to_build", lambda *_: "")
    balloon = choose_balloon(DRY, None, "cgroup", True, {}, "pool balloon")
    assert balloon.settings == {"shared_preload_libraries": "pg_balloon", "huge_pages": "off"}
    assert "Pool balloon does not use them" in balloon.messages[0] and "use --set huge_pages=off" in balloon.messages[0]
    assert balloon.messages[1] == "pg_balloon will be built for pool balloon."
    assert choose_balloon(DRY, None, "vm", True, {}, "pool balloon").messages == balloon.messages[1:], "a guest has pages of its own"


def test_a_failed_build_is_the_reason(monkeypatch):
    def fails(*_, **__):
        raise CapabilityError("no compiler")

    monkeypatch.setattr(pg_balloon, "ensure_balloon", fails)
    real = SimpleNamespace(node=LocalNode(), cache="/nowhere", dry=False, account=None)
    balloon = choose_balloon(real, None, "cgroup", False, {}, "pool balloon")
    assert balloon.unavailable == "no compiler" and balloon.messages == ("Warning: pool balloon is not available: no compiler.",)


@pytest.mark.parametrize(("pages", "kept"), [({}, {"huge_pages": "off"}), ({"huge_pages": "off"}, {})])
def test_only_what_differs_is_set(monkeypatch, pages, kept):
    monkeypatch.setattr(pg_balloon, "ensure_balloon", lambda *_, **__: LIBRARY)
    real = SimpleNamespace(node=LocalNode(), cache="/nowhere", dry=False, account=None)
    balloon = choose_balloon(real, None, "cgroup", False, {"work_mem": "4MB", **pages}, "pool balloon")
    assert balloon.settings["pg_balloon.enabled"] == "on" and "work_mem" not in balloon.settings
    assert {name: value for name, value in balloon.settings.items() if name == "huge_pages"} == kept
