from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.prepare import registry
from pgherd.prepare.registry import over_hosts, prepare
from pgherd.studies.network.options import NetworkOptions
from pgherd.study.registry import studies, study_of


@pytest.mark.parametrize("name", sorted(studies()))
def test_everything_that_a_user_may_give_has_a_default(name):
    assert study_of(name).request_model()


@pytest.mark.usefixtures("own_directories")
@pytest.mark.parametrize(
    ("study", "requested", "message"),
    [
        ("density", {"duration": "0s"}, "--duration 0s: input should be greater than 0"),
        ("density", {"time_budget": "0"}, "--time-budget 0: input should be greater than 0"),
        ("scaling", {"duration": "0ms"}, "--duration 0ms: input should be greater than 0"),
    ],
)
def test_a_time_of_nothing_is_the_users_fault(study, requested, message):
    with pytest.raises(UsageError, match=message):
        prepare(LocalNode(), study, study_of(study).request_model(**requested), dry=True)


def test_options_that_nobody_asked_for_are_not(monkeypatch):
    monkeypatch.setattr("pgherd.studies.database_size.prepare.prepare", lambda *_: study_of("database-size").options(scales=()))
    with pytest.raises(ValidationError):
        prepare(LocalNode(), "database-size", study_of("database-size").request_model(), dry=True)


def test_how_studies_use_a_cluster():
    uses = {name: study.hosts for name, study in studies().items()}
    assert {name for name, use in uses.items() if use == "one"} == {"scaling", "io-profile", "hugepages", "working-set", "consolidation"}
    assert {name for name, use in uses.items() if use == "in turn"} == {"compare"}
    assert uses["density"] == uses["exec"] == "together"


def test_studies_of_hosts_are_completed_by_each_of_them():
    assert {name for name, study in studies().items() if study.each_host} == {"disk", "exec", "network"}


def test_what_each_has_completed_becomes_one(monkeypatch):
    links = [{"name": "b", "kind": "hosts", "near": "a", "host": "b"}]
    item = NetworkOptions(links=links, host_cores=2, iperf3_version="3.12")
    each = {"a": SimpleNamespace(options=item), "b": SimpleNamespace(options=item.model_copy(update={"iperf3_version": "3.16"}))}
    monkeypatch.setattr(registry, "join_hosts", lambda prepared, options: (list(prepared), options))
    hosts, options = over_hosts("network", each)
    assert hosts == ["a", "b"] and options.iperf3_version == "3.12 on a, 3.16 on b"
