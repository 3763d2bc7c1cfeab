from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.runner.prepare import catalogue
from pgherd.runner.prepare.catalogue import STUDIES, completed_by_each, over, prepare, request_of, study_of, use_of
from pgherd.studies.network import NetworkOptions


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_has_its_parts(name):
    assert study_of(name).name == name
    assert request_of(name)()  # everything that a user may say has a default
    assert study_of(name).options.model_fields


def test_an_unknown_study_is_said_with_those_that_exist():
    with pytest.raises(UsageError, match="no study 'densty'; there are compare, compression"):
        study_of("densty")


@pytest.mark.usefixtures("own_directories")
@pytest.mark.parametrize(
    ("study", "asked", "message"),
    [
        ("density", {"seconds": "0s"}, "--seconds 0s: input should be greater than 0"),
        ("density", {"budget": "0"}, "--budget 0: input should be greater than 0"),
        ("scaling", {"seconds": "0ms"}, "--seconds 0ms: input should be greater than 0"),
    ],
)
def test_a_time_of_nothing_is_the_users_fault(study, asked, message):
    with pytest.raises(UsageError, match=message):
        prepare(LocalNode(), study, request_of(study)(**asked), dry=True)


def test_options_that_nobody_asked_for_are_not(monkeypatch):
    monkeypatch.setattr("pgherd.runner.prepare.sizes.prepare_sizes", lambda *_: study_of("sizes").options(scales=()))
    with pytest.raises(ValidationError):
        prepare(LocalNode(), "sizes", request_of("sizes")(), dry=True)


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
