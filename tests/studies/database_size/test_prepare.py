import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.model.errors import CapabilityError, TrialError, UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres import templates
from pgherd.postgres.installations import Installation
from pgherd.runner.deploy.deployer import Deployer
from pgherd.runner.progress import RunObserver
from pgherd.studies.database_size.options import DatabaseSizeOptions, DatabaseSizeRequest
from pgherd.studies.database_size.prepare import prepare
from pgherd.studies.database_size.study import STUDY
from pgherd.workloads.pgbench import PgbenchLoader

pytestmark = pytest.mark.usefixtures("own_directories")

PG = Installation(bin="/pg/bin", version="18.6", major=18, kind="system", build="18.6")
SIZES = {"database_bytes": 55, "tables_bytes": 40, "indexes_bytes": 10, "other_bytes": 5}


def prepared(**requested):
    return prepare(LocalNode(), DatabaseSizeRequest(**requested), dry=True)


def test_a_plain_request_is_completed(own_directories):
    prepared_study = prepared()
    assert (
        prepared_study.options.scales == (1, 2, 5, 10, 20, 50) and prepared_study.options.pg_version == prepared_study.installation.version
    )
    assert prepared_study.environment.runtime == "process", "no control group is needed where nothing runs"
    assert 800e6 < prepared_study.disk < 1e9, "the largest one decides, since they come one at a time"
    assert not own_directories.joinpath("cache").exists()


def test_a_time_budget_is_in_seconds():
    assert prepared(time_budget="10m").options.time_budget == 600 and prepared().options.time_budget is None


@pytest.mark.parametrize(
    ("requested", "error", "message"),
    [
        ({"scales": (10_000_000,)}, CapabilityError, "a database of scale 10000000 needs .* are free"),
        ({"pg_bin": "/nonexistent"}, UsageError, "/nonexistent"),
        ({"run_as": "no-such-account"}, UsageError, "no user 'no-such-account'"),
    ],
)
def test_what_cannot_be_done_is_said(requested, error, message):
    with pytest.raises(error, match=message):
        prepared(**requested)


@pytest.fixture
def session(tmp_path):
    return SimpleNamespace(node=LocalNode(), account=None, sockets=tmp_path / "s", cache=tmp_path / "cache")


@pytest.fixture
def trial():
    return STUDY.propose(DatabaseSizeOptions(pg_bin="/pg/bin", pg_version="18.6", scales=(3,)), []).trials[0]


def copy_of(session) -> Path:
    """A template of scale 3 as far as anybody can see."""
    key = templates.key_of(PG, [PgbenchLoader("bench", 3)], True)
    home = session.cache / "golden" / key
    (home / "data").mkdir(parents=True)
    marker = {"schema": templates.SCHEMA, "key": key, "path": str(home), "version": "18.6", "contents": ["pgbench-3"], "checksums": True}
    marker |= {"bytes": 9, "databases": {"bench": 55}, "made": 0, "seconds": 1, "parts": {"bench": {"tables": 40, "indexes": 10}}}
    (home / "golden.json").write_text(json.dumps(marker))
    return home


def measure(session, trial):
    deployer = SimpleNamespace(_session=session, _installations={"/pg/bin": PG}, _watcher=RunObserver())
    return Deployer.probe(deployer, trial)


def test_a_template_that_is_there_tells_its_sizes_and_stays(session, trial):
    home = copy_of(session)
    assert measure(session, trial) == SIZES
    assert home.exists()


def test_one_that_is_made_for_this_is_removed_again(session, trial, monkeypatch):
    created = []

    def ensure(node, installation, contents, **_):
        created.append(copy_of(session))
        return templates.find(node, installation, contents, str(session.cache))

    monkeypatch.setattr(templates, "ensure", ensure)
    assert measure(session, trial) == SIZES
    assert len(created) == 1 and not created[0].exists()


def test_an_unknown_probe_is_said(session, trial):
    with pytest.raises(TrialError, match="no probe 'smell'"):
        measure(session, trial.model_copy(update={"probe": "smell"}))
