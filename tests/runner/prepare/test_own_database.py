import contextlib
from types import SimpleNamespace

import pytest

from pgherd.model.deployment import Database
from pgherd.node.local import LocalNode
from pgherd.runner.prepare import own_database
from pgherd.runner.prepare.preparation import preparation
from pgherd.studies.databases import DatabaseRequest

pytestmark = pytest.mark.usefixtures("own_directories")
COPY = SimpleNamespace(databases={"bench": 3_000_000, "other": 500_000})


@pytest.fixture
def world(monkeypatch, tmp_path):
    """What is done to golden copies and servers is noted, not done."""
    done: list[str] = []

    @contextlib.contextmanager
    def rehearsal(*given, **named):
        done.append("server up")
        yield "the server"
        done.append("server down")

    found = SimpleNamespace(copy=None, done=done)
    monkeypatch.setattr(own_database.golden, "find", lambda *given: found.copy)
    monkeypatch.setattr(own_database.golden, "ensure", lambda *given, **named: done.append("loaded") or COPY)
    monkeypatch.setattr(own_database.clones, "rehearsal", rehearsal)
    monkeypatch.setattr(
        own_database.user_scripts, "dry_run", lambda server, name, scripts, **named: done.append(f"{len(scripts)} script tried on {name}")
    )
    script = tmp_path / "script.sql"
    script.write_text("SELECT 1;\n")

    def load(dry):
        with preparation(LocalNode(), DatabaseRequest(runtime="process", script=(str(script),)), dry=dry) as ground:
            return own_database.loaded(ground, Database())

    found.load = load
    return found


def test_it_is_loaded_and_each_script_tried_on_a_copy(world):
    assert world.load(dry=False) == 3_500_000
    assert world.done == ["loaded", "server up", "1 script tried on bench", "server down"]


def test_what_was_loaded_before_is_not_loaded_again(world):
    world.copy = COPY
    assert world.load(dry=False) == 3_500_000
    assert "loaded" not in world.done and "1 script tried on bench" in world.done


def test_a_dry_run_loads_and_starts_nothing(world):
    assert world.load(dry=True) is None
    world.copy = COPY
    assert world.load(dry=True) == 3_500_000
    assert world.done == []
