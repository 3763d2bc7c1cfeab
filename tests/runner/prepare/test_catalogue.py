from types import SimpleNamespace

import pytest

from pgherd.model.errors import UsageError
from pgherd.runner.prepare import catalogue
from pgherd.runner.prepare.catalogue import STUDIES, completed_by_each, over, request_of, study_of, use_of
from pgherd.studies.network import NetworkOptions


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_has_its_parts(name):
    assert study_of(name).name == name
    assert request_of(name)()  # everything that a user may say has a default
    assert study_of(name).options.model_fields


def test_an_unknown_study_is_said_with_those_that_exist():
    with pytest.raises(UsageError, match="no study 'densty'; there are compare, compression"):
        study_of("densty")


def test_how_studies_use_a_cluster():
    found = {name: use_of(name) for name in STUDIES}
    assert {name for name, use in found.items() if use == "one"} == {"scaling", "storage", "hugepages", "working-set", "consolidation"}
    assert {name for name, use in found.items() if use == "in turn"} == {"compare"}
    assert found["density"] == found["exec"] == "together"


def test_studies_of_hosts_are_completed_by_each_of_them():
    assert {name for name in STUDIES if completed_by_each(name)} == {"disk", "exec", "network"}
    with pytest.raises(UsageError, match="no study 'x'"):
        completed_by_each("x")


def test_what_each_has_completed_becomes_one(monkeypatch):
    links = [{"name": "b", "kind": "hosts", "near": "a", "host": "b"}]
    one = NetworkOptions(links=links, cores=2, iperf3_version="3.12")
    each = {"a": SimpleNamespace(options=one), "b": SimpleNamespace(options=one.model_copy(update={"iperf3_version": "3.16"}))}
    monkeypatch.setattr(catalogue, "joined", lambda prepared, options: (list(prepared), options))
    hosts, options = over("network", each)
    assert hosts == ["a", "b"] and options.iperf3_version == "3.12 on a, 3.16 on b"
