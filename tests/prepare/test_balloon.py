"""Choosing pg_balloon for servers of a study; tests/it/test_balloon.py builds and loads it."""

from types import SimpleNamespace

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres import pg_balloon
from pgherd.prepare.balloon import choose_balloon

LIBRARY = pg_balloon.BalloonLibrary("/made", "18.6", 18, "abc")
DRY = SimpleNamespace(node=LocalNode(), cache="/nowhere", dry=True, account=None)


def test_a_dry_run_builds_nothing(monkeypatch):
    monkeypatch.setattr(pg_balloon, "find_balloon", lambda *_: None)
    monkeypatch.setattr(pg_balloon, "missing_to_build", lambda *_: "")
    balloon = choose_balloon(DRY, None, {}, "pool balloon")
    assert balloon.settings == {"shared_preload_libraries": "pg_balloon"}
    assert balloon.messages == ("pg_balloon will be built for pool balloon.",)


def test_a_failed_build_is_the_reason(monkeypatch):
    def fails(*_, **__):
        raise CapabilityError("no compiler")

    monkeypatch.setattr(pg_balloon, "ensure_balloon", fails)
    real = SimpleNamespace(node=LocalNode(), cache="/nowhere", dry=False, account=None)
    balloon = choose_balloon(real, None, {}, "pool balloon")
    assert balloon.unavailable == "no compiler" and balloon.messages == ("Warning: pool balloon is not available: no compiler.",)


def test_only_what_differs_is_set(monkeypatch):
    monkeypatch.setattr(pg_balloon, "ensure_balloon", lambda *_, **__: LIBRARY)
    real = SimpleNamespace(node=LocalNode(), cache="/nowhere", dry=False, account=None)
    balloon = choose_balloon(real, None, {"work_mem": "4MB", "huge_pages": "off"}, "pool balloon")
    assert balloon.settings["pg_balloon.enabled"] == "on" and not {"work_mem", "huge_pages"} & balloon.settings.keys()
