import contextlib
from types import SimpleNamespace

import pytest

from pgherd.model.errors import UsageError
from pgherd.model.load import transaction_timeout
from pgherd.model.units import parse_seconds
from pgherd.node.local import LocalNode
from pgherd.prepare import servers as module
from pgherd.prepare.databases import prepare_databases
from pgherd.study.database_options import DatabaseRequest

pytestmark = pytest.mark.usefixtures("own_directories")
COPY = SimpleNamespace(databases={"bench": 3_000_000, "other": 500_000})


@pytest.fixture
def world(monkeypatch, tmp_path):
    """What is done to templates and servers is noted, not done."""
    done: list[str] = []

    @contextlib.contextmanager
    def rehearsal(*given, **named):
        done.append("server up")
        found.settings = named["settings"]
        yield "the server"
        done.append("server down")

    def tried(server, name, scripts, **named):
        done.append(f"{len(scripts)} script tried on {name}")
        found.timeouts.append(named["timeout"])

    def paced(*given, **named):
        found.timeouts.append(named["timeout"])
        return found.pace

    found = SimpleNamespace(copy=None, done=done, pace=0.004, told=None, timeouts=[])
    monkeypatch.setattr(module.templates, "find", lambda *given: found.copy)
    monkeypatch.setattr(module.templates, "ensure", lambda *given, **named: done.append("loaded") or COPY)
    monkeypatch.setattr(module.clones, "rehearsal", rehearsal)
    monkeypatch.setattr(module.user_scripts, "dry_run", tried)
    monkeypatch.setattr(module.user_scripts, "pace", paced)
    script = tmp_path / "script.sql"
    script.write_text("SELECT 1;\n")

    def load(dry, *assignments, **options):
        asked = DatabaseRequest(runtime="process", script=(str(script),), set=assignments, **options)
        with prepare_databases(LocalNode(), asked, dry=dry) as preparation:
            size = module.tried_size(preparation.workspace, preparation.servers, preparation.load)
            found.told = None if size is None else size.pace
            return None if size is None else size.bytes

    found.load = load
    return found


def test_it_is_loaded_and_each_script_tried_on_a_copy(world):
    assert world.load(dry=False) == 3_500_000
    assert world.done == ["loaded", "server up", "1 script tried on bench", "server down"]
    assert world.told == 0.004
    world.pace = None
    world.load(dry=False)
    assert world.told is None, "what cannot be repeated has no pace"


def test_a_trial_waits_for_each_transaction_that_its_rehearsal_accepts(world):
    for duration, timeout in (("8s", 60.0), ("90s", 90.0)):
        world.load(False, duration=duration)
        assert world.timeouts[-2:] == [timeout] * 2 == [transaction_timeout(parse_seconds(duration))] * 2
    world.pace = 9.0
    with pytest.raises(UsageError, match=r"takes 9 s with one client, longer than the measured time of a trial \(8 s\).*--duration 90s"):
        world.load(False, duration="8s")


def test_what_was_loaded_before_is_not_loaded_again(world):
    world.copy = COPY
    assert world.load(dry=False) == 3_500_000
    assert "loaded" not in world.done and "1 script tried on bench" in world.done


def test_a_dry_run_loads_and_starts_nothing(world):
    assert world.load(dry=True) is None
    world.copy = COPY
    assert world.load(dry=True) == 3_500_000
    assert world.done == []


def test_scripts_are_tried_with_the_settings_that_they_may_need(world):
    world.load(False, "search_path=app", "app.tenant=7", "shared_buffers=900TB", "port=1")
    assert world.settings == {"search_path": "app", "app.tenant": "7", "max_wal_senders": "0"}


def test_a_setting_that_postgresql_refuses_is_said_before_a_server_is_started(world):
    with pytest.raises(UsageError, match='invalid value for parameter "work_mem"'):
        world.load(False, "work_mem=much")
    assert "server up" not in world.done


def test_a_script_that_is_not_there_is_said_on_a_dry_run_too(world, tmp_path):
    (tmp_path / "script.sql").unlink()
    with pytest.raises(UsageError, match="--script .*script.sql cannot be read"):
        world.load(dry=True)
