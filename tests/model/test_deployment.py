import pytest
from pydantic import ValidationError

from pgherd.model.deployment import Container, Database, Deployment, Host, Server, Volume
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial


def server(name="pg", databases=("bench",)):
    return Server(name=name, bin="/opt/pg/bin", version="18.6", databases=tuple(Database(name=n) for n in databases))


def deployment(*containers):
    return Deployment(hosts=(Host(containers=containers),))


def test_every_scheme_is_one_nested_structure():
    one_one_many = deployment(Container(name="c1", servers=(server(databases=("a", "b")),)))
    one_many_many = deployment(Container(name="c1", servers=(server("s1"), server("s2"))))
    many = deployment(Container(name="c1", servers=(server(),)), Container(name="c2", servers=(server(),)))
    assert [str(place) for place, *_ in one_one_many.databases()] == ["local/c1/pg/a", "local/c1/pg/b"]
    assert [str(place) for place, *_ in one_many_many.databases()] == ["local/c1/s1/bench", "local/c1/s2/bench"]
    assert [str(place) for place, *_ in many.databases()] == ["local/c1/pg/bench", "local/c2/pg/bench"]


def test_two_databases_with_one_address_are_refused():
    with pytest.raises(ValidationError, match="local/c1/pg/bench stand more than once"):
        deployment(Container(name="c1", servers=(server(), server())))


@pytest.mark.parametrize("name", ["", "a/b", "../x", "A", "x" * 41])
def test_names_are_plain_since_they_become_paths(name):
    with pytest.raises(ValidationError):
        Container(name=name)


def test_an_unknown_field_is_an_error():
    with pytest.raises(ValidationError, match="vcpu"):
        Container.model_validate({"name": "c1", "vcpu": 4})


def test_a_load_without_a_target_is_refused():
    with pytest.raises(ValidationError, match="loads local/c9/pg/bench, which the deployment does not have"):
        Trial(
            point={}, deployment=deployment(Container(name="c1", servers=(server(),))), phases=(Phase(loads={"local/c9/pg/bench": Load()}),)
        )


def test_volumes_and_hosts_are_targets_too():
    wanted = Deployment(hosts=(Host(),), volumes=(Volume(name="data", path="/x"),))
    assert Trial(point={}, deployment=wanted, phases=(Phase(loads={"data": Load(driver="fio"), "local": Load(driver="command")}),))


def test_idle_is_the_absence_of_a_load():
    assert Phase(loads={"local/c1/pg/bench": Load(driver="idle")}).loads == {}


def test_a_trial_is_known_by_point_and_repeat_and_survives_json():
    trial = Trial(
        point={"databases": 4},
        repeat=2,
        deployment=deployment(Container(name="c1", servers=(server(),))),
        phases=(Phase(seconds=5, ramp=1), Phase(seconds=2, ramp=0)),
    )
    assert trial.key() == "databases=4#2"
    assert trial.seconds() == 8
    assert Trial.model_validate_json(trial.model_dump_json()) == trial
