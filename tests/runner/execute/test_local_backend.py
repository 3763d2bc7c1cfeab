import pytest

from pgherd.model.analysis import Thresholds
from pgherd.model.errors import TrialError
from pgherd.model.result import OomKill, PhaseResult
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.runner.execute import local_backend as backends
from pgherd.runner.execute.local_backend import LocalBackend, completed
from pgherd.runner.progress import RunObserver

TRIAL = Trial.model_validate({"point": {"n": 1}, "deployment": {"hosts": []}, "phases": [{"loads": {}}]})
KILL = OomKill(container="a", processes=1, time=5.0)


class FakeDeployer:
    """As much of a fleet as a bench needs."""

    def __init__(self, scratch):
        self.node, self.facts, self.scratch, self.watched = LocalNode(), None, scratch, ["watched"]
        self.distrusted = False

    def apply(self, trial):
        return self, "1 kept"

    def guests(self):
        return {}

    def readings(self):
        return {"server:a/pg": {"pages.size": 4096.0}, "host": {"more": 1.0}}

    def oom_kills(self):
        return (KILL,)

    def stop_phase_targets(self):
        self.rested = True

    def mark_unhealthy(self):
        self.distrusted = True

    def probe(self, trial):
        return {"database_bytes": 1.0}

    def settings(self, target=None):
        return {"work_mem": str(target)}


def played(monkeypatch, error=None):
    seen = {}

    def play(node, trial, resolver, directory, scratch, watcher, watched, elsewhere):
        assert elsewhere is None, "no server is observed by Prometheus"
        assert scratch.is_dir()
        seen.update(scratch=scratch, resolver=resolver, watched=watched)
        if error is not None:
            raise error
        return [PhaseResult(phase="p", start=1, end=2, overlap=1, targets=[], metrics={"host": {"cpu.user": 1.0}})], 0.25

    monkeypatch.setattr(backends.phases, "run", play)
    monkeypatch.setattr(backends.trial_checks, "judge", lambda trial, found, facts, limits, jump: [jump])
    monkeypatch.setattr(backends.memory_checks, "judge_memory", lambda trial, found, kills, limits: [kills])
    return seen


def test_a_trial_of_one_host_is_played_where_the_fleet_is(tmp_path, monkeypatch):
    seen, deployer = played(monkeypatch), FakeDeployer(tmp_path / "out")
    backend = LocalBackend(deployer)
    assert backend.placed(TRIAL) is TRIAL and backend.apply(TRIAL) == "1 kept"
    found = backend.run(TRIAL, "0001", tmp_path, Thresholds(), RunObserver())
    assert seen["resolver"] is deployer and seen["watched"] == ["watched"] and seen["scratch"] == tmp_path / "out" / "0001"
    assert not seen["scratch"].exists(), "what drivers wrote there has been moved or is not wanted"
    assert found.phases[0].metrics == {"server:a/pg": {"pages.size": 4096.0}, "host": {"cpu.user": 1.0, "more": 1.0}}
    assert list(found.checks) == [0.25, (KILL,)] and found.oom_kills == (KILL,)
    assert backend.probe(TRIAL) == {"database_bytes": 1.0} and backend.settings("x") == {"work_mem": "x"}


def test_a_trial_that_failed_leaves_nothing_and_no_trust(tmp_path, monkeypatch):
    seen, deployer = played(monkeypatch, TrialError("no")), FakeDeployer(tmp_path / "out")
    backend = LocalBackend(deployer)
    backend.apply(TRIAL)
    with pytest.raises(TrialError, match="no"):
        backend.run(TRIAL, "0001", tmp_path, Thresholds(), RunObserver())
    assert not seen["scratch"].exists()
    found = backend.failed(TRIAL, Thresholds())
    assert deployer.distrusted and found.oom_kills == (KILL,) and list(found.checks) == [(KILL,)] and not found.phases


def test_consistency_is_checked_where_it_was_asked_for(tmp_path):
    deployer, asked = FakeDeployer(tmp_path), []
    deployer.verify = asked.append
    database = {"workload": "orders", "verify": True}
    made = {"name": "a", "servers": [{"bin": "/b", "version": "18.6", "databases": [database]}]}
    checked = Trial.model_validate({"point": {"n": 1}, "deployment": {"hosts": [{"containers": [made]}]}, "phases": []})
    completed(deployer, TRIAL, [])
    assert asked == []
    completed(deployer, checked, [])
    assert asked == [checked]


def test_after_an_oom_kill_no_server_is_trusted_though_no_driver_has_noticed(tmp_path):
    deployer = FakeDeployer(tmp_path)
    deployer.oom_kills = tuple
    completed(deployer, TRIAL, [])
    assert not deployer.distrusted
    del deployer.oom_kills
    completed(deployer, TRIAL, [])
    assert deployer.distrusted


def test_what_was_up_for_the_phases_alone_is_ended_before_anything_is_read(tmp_path):
    deployer, order = FakeDeployer(tmp_path), []
    deployer.stop_phase_targets = lambda: order.append("stopped")
    deployer.oom_kills = lambda: order.append("kills") or ()
    completed(deployer, TRIAL, [])
    assert order == ["stopped", "kills"]
