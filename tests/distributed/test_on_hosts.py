from pgherd.distributed.on_hosts import OnHosts
from pgherd.distributed.placing import placed
from pgherd.model.base import Model
from pgherd.model.deployment import Host
from pgherd.model.finding import Analysis, Proposal
from pgherd.model.result import TrialResult
from pgherd.model.run import Cluster
from pgherd.model.trial import Trial

CLUSTER = Cluster.model_validate({"address": "x", "hosts": [{"name": "a", "cores": 1}, {"name": "b", "cores": 1}]})


class Study:
    """Remembers which targets it saw."""

    name, options = "density", Model

    def __init__(self):
        self.seen = []

    def propose(self, options, results):
        self.seen.append([sorted(result.trial.phases[0].loads) for result in results])
        return Proposal(stop="enough")

    def analyse(self, options, results):
        return Analysis(answer=f"{len(results)} on {results[0].trial.deployment.hosts[0].name}", grade="A")


def test_a_study_knows_nothing_of_the_hosts():
    made = [{"name": f"db{i}", "servers": [{"bin": "/pg", "version": "18.6"}]} for i in (1, 2)]
    trial = Trial.model_validate(
        {"point": {"databases": 2}, "deployment": {"hosts": [{"containers": made}]}, "phases": [{"loads": {"local/db2/pg/bench": {}}}]}
    )
    results = [TrialResult(id="0001", trial=placed(trial, CLUSTER), started=0, ended=1)]
    inner = Study()
    study = OnHosts(inner, CLUSTER)
    assert study.propose(Model(), results).stop == "enough" and inner.seen == [[["local/db2/pg/bench"]]]
    found = study.analyse(Model(), results)
    assert found.answer == "1 on local" and [row["host"] for row in found.tables["hosts"]] == ["a", "b"]
    assert (study.name, study.options) == ("density", Model)
    served = CLUSTER.model_copy(update={"hosts": (*CLUSTER.hosts, Host(name="c")), "client": "c"})
    found = OnHosts(inner, served).analyse(Model(), results)
    assert "host_imbalance" in found.findings and [row["host"] for row in found.tables["hosts"]] == ["a", "b", "c"]
