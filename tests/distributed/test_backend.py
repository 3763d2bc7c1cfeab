from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.distributed import backend
from pgherd.distributed.place_trial import ClusterStudy
from pgherd.model.errors import UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.run import Cluster, RunEnvironment, RunRecord
from pgherd.node.local import LocalNode
from pgherd.runner.execute.local_backend import LocalBackend
from pgherd.studies.density.options import DensityRequest
from pgherd.studies.scaling.options import ScalingRequest

FACTS = HostFacts(hostname="h", kernel="6", cores=2, logical_cpus=2, memory=2**33)


class Engine:
    """Is closed at the end."""

    closed = False

    def close(self):
        self.closed = True


class FakeBackend:
    """Was opened, and closed."""

    made = None

    def __init__(self, pool, cluster, run, surroundings, postgres, watcher, argument):
        FakeBackend.made, self.said = self, [run, postgres]
        assert argument.endswith(run)

    def open(self):
        self.said.append("open")

    def close(self):
        self.said.append("close")


def test_a_request_is_completed_where_it_is_to_run(monkeypatch):
    engine = Engine()
    monkeypatch.setattr(backend, "prepare", lambda node, study, asked, dry: SimpleNamespace(facts=FACTS, dry=dry))
    monkeypatch.setattr(backend, "prepare_over", lambda result, study, asked, dry: (result, {"a": FACTS}))
    monkeypatch.setattr(backend, "_connect", lambda name, tls: engine)
    prepared, facts = backend.complete(LocalNode(), "density", DensityRequest(), dry=True)
    assert prepared.dry and facts == {"local": FACTS} and not engine.closed
    prepared, facts = backend.complete(LocalNode(), "density", DensityRequest(cluster="mine"))
    assert prepared is engine and facts == {"a": FACTS} and engine.closed


def record(**fields):
    return RunRecord(run="r", study="density", options={}, started=0, pgherd="0", postgres={"/pg": "18.6"}, **fields)


def test_a_run_on_a_cluster_stands_on_its_hosts(monkeypatch):
    engine = Engine()
    monkeypatch.setattr(backend, "_connect", lambda name, tls: engine)
    monkeypatch.setattr(backend, "ClusterBackend", FakeBackend)
    cluster = Cluster.model_validate({"address": "mine", "hosts": [{"name": "a"}]})
    surroundings = RunEnvironment(runtime="cgroup", cores=2, memory=1, cluster=cluster)
    reported = SimpleNamespace(output=None, run=Path("/runs/r"))
    with pytest.raises(ZeroDivisionError), backend.open_backend(LocalNode(), "r", record(), surroundings, reported) as (opened, study):
        assert isinstance(study, ClusterStudy) and opened.said == ["r", {"/pg": "18.6"}, "open"]
        raise ZeroDivisionError
    assert FakeBackend.made.said[-1] == "close" and engine.closed
    assert reported.output(7) == Path("/runs/r/trials/0007.partial/told")


@pytest.mark.usefixtures("own_directories")
def test_a_run_on_this_host_stands_on_a_fleet(tmp_path):
    reported = SimpleNamespace(output=None, setup=lambda what: None, note=lambda text: None)
    surroundings = RunEnvironment(runtime="process", cores=1, memory=2**30)
    with backend.open_backend(LocalNode(), "r-0001", record().model_copy(update={"postgres": {}}), surroundings, reported) as (
        opened,
        study,
    ):
        assert isinstance(opened, LocalBackend) and study.name == "density" and reported.output(7).name == "0007"
        assert reported.output(7).parent.is_dir()
    assert not reported.output(7).parent.exists()


def test_hosts_are_said_of_a_cluster_only():
    with pytest.raises(UsageError, match="--client-host requires a cluster; name one with --cluster"):
        backend.complete(None, "scaling", ScalingRequest(client_host="b"))
    with pytest.raises(UsageError, match="--placement requires a cluster"):
        backend.complete(None, "scaling", ScalingRequest(placement="pack"))
