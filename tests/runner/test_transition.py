import pytest

from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.runner.transition import Up, plan


def server(settings=None, scale=10, version="15.1"):
    return Server(bin="/pg/bin", version=version, settings=settings or {}, databases=(Database(scale=scale),))


def container(name="c1", vcpus=None, **of_server):
    return Container(name=name, vcpus=vcpus, servers=(server(**of_server),))


def deployed(*containers):
    return Deployment(hosts=(Host(containers=containers),))


def up(*containers, healthy=True):
    return {(c.name, s.name): Up(c, s, healthy) for c in containers for s in c.servers}


def how(old, new):
    if old.get("shared_buffers") != new.get("shared_buffers"):
        return "restart"
    return "keep" if old == new else "reload"


KEY = ("c1", "pg")


def test_what_is_up_already_is_kept():
    assert plan(up(container()), deployed(container()), "warm", how).steps == {KEY: "keep"}


@pytest.mark.parametrize(
    ("wanted", "state", "step"),
    [
        (container(), "fresh", "restore"),
        (container(), "restarted", "restart"),
        (container(settings={"work_mem": "8MB"}), "warm", "reload"),
        (container(settings={"shared_buffers": "1GB"}), "warm", "restart"),
        (container(settings={"work_mem": "8MB"}), "restarted", "restart"),
        (container(vcpus=2), "warm", "restart"),
        (container(scale=20), "warm", "restore"),
        (container(version="16.1"), "warm", "restore"),
    ],
)
def test_the_least_that_does(wanted, state, step):
    assert plan(up(container()), deployed(wanted), state, how).steps == {KEY: step}


def test_a_dead_server_is_restored():
    assert plan(up(container(), healthy=False), deployed(container()), "warm", how).steps == {KEY: "restore"}


def test_what_is_not_wanted_is_removed_and_what_is_missing_made():
    found = plan(up(container("c1"), container("c2")), deployed(container("c2"), container("c3")), "warm", how)
    assert found.steps == {("c2", "pg"): "keep", ("c3", "pg"): "restore"}
    assert found.remove_servers == (KEY,)
    assert found.remove_containers == ("c1",)
    assert found.make_containers == ("c3",)
    assert found.summary() == "1 kept, 1 restored, 1 removed"


def test_a_container_with_other_limits_is_made_anew():
    found = plan(up(container()), deployed(container(vcpus=2)), "warm", how)
    assert found.remove_containers == ("c1",) and found.make_containers == ("c1",)
