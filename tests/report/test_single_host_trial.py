"""The part that one host had in a trial."""

from __future__ import annotations

import pytest

from pgherd.model.deployment import Container, Database, Deployment, Host, Server, Volume
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.load import Load, Phase
from pgherd.model.result import TrialResult
from pgherd.model.run import RunRecord
from pgherd.model.trial import Trial
from pgherd.report.repro_script import script
from pgherd.report.repro_script import of_one_host


def host(name, *containers):
    server = Server(bin="/pg/bin", version="18.6", databases=(Database(name="bench"),))
    return Host(name=name, containers=tuple(Container(name=one, servers=(server,)) for one in containers))


def result(*hosts, loads, volumes=()):
    trial = Trial(point={}, deployment=Deployment(hosts=hosts, volumes=volumes), phases=(Phase(loads=loads),))
    return TrialResult(id="0007", trial=trial, started=0, ended=1)


def test_of_several_hosts_it_is_the_first_with_servers():
    loads = {"b/db01/pg/bench": Load(clients=1), "c/db02/pg/bench": Load(clients=2)}
    volumes = tuple(Volume(name="fast", kind="directory", path="/x", host=name) for name in ("b", "c"))
    part, said = of_one_host(result(host("a"), host("b", "db01"), host("c", "db02"), loads=loads, volumes=volumes))
    assert said == "In the run 2 hosts did this at the same time: b, c. This is what b did."
    assert [one.name for one in part.trial.deployment.hosts] == ["b"] and [one.host for one in part.trial.deployment.volumes] == ["b"]
    assert list(part.trial.phases[0].loads) == ["b/db01/pg/bench"]


def test_one_host_is_the_trial_itself():
    whole = result(host("b", "db01"), loads={"b/db01/pg/bench": Load()})
    assert of_one_host(whole) == (whole, "")
    beside = result(host("a"), host("b", "db01"), loads={"b/db01/pg/bench": Load()})
    assert of_one_host(beside) == (whole, "")


def test_clients_on_another_host_are_refused_with_both_names():
    with pytest.raises(UsageError, match="clients were on host a, its server on b, .* without --client-host"):
        of_one_host(result(host("b", "db01"), loads={"b/db01/pg/bench": Load(host="a")}))


def test_the_script_says_whose_part_it_is():
    loads = {"a/db01/pg/bench": Load(clients=1), "b/db02/pg/bench": Load(clients=2)}
    facts = {name: HostFacts(hostname=name, kernel="k", cores=2, logical_cpus=2, memory=2**33) for name in ("a", "b")}
    record = RunRecord(run="20260101-000000-density-ab12", study="density", options={}, started=0, pgherd="1", hosts=facts)
    text = script(result(host("a", "db01"), host("b", "db02"), loads=loads), record)
    assert "# In the run 2 hosts did this at the same time: a, b. This is what a did." in text
    assert "a/db01/pg/bench" in text and "db02" not in text
