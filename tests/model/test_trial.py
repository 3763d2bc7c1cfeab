import pytest
from pydantic import ValidationError

from pgherd.model.deployment import Container, Database, Deployment, Host, Server, Volume
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial


def server(name="pg", databases=("bench",)):
    return Server(name=name, bin="/opt/pg/bin", version="18.6", databases=tuple(Database(name=n) for n in databases))


def deployment(*containers):
    return Deployment(hosts=(Host(containers=containers),))


def test_a_load_without_a_target_is_refused():
    with pytest.raises(ValidationError, match="loads unknown targets: local/c9/pg/bench"):
        Trial(
            point={}, deployment=deployment(Container(name="c1", servers=(server(),))), phases=(Phase(loads={"local/c9/pg/bench": Load()}),)
        )


def test_volumes_and_hosts_are_targets_too():
    expected = Deployment(hosts=(Host(),), volumes=(Volume(name="data", path="/x"),))
    assert Trial(point={}, deployment=expected, phases=(Phase(loads={"data": Load(driver="fio"), "local": Load(driver="command")}),))


def test_a_trial_is_known_by_point_and_repeat_and_survives_json():
    trial = Trial(
        point={"databases": 4},
        repeat=2,
        deployment=deployment(Container(name="c1", servers=(server(),))),
        phases=(Phase(seconds=5, warmup=1), Phase(seconds=2, warmup=0)),
    )
    assert trial.key() == "databases=4#2"
    assert trial.seconds() == 8
    assert Trial.model_validate_json(trial.model_dump_json()) == trial
