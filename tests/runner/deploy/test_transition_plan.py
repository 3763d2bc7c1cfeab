from dataclasses import replace

import pytest

from pgherd.model.deployment import Container, Database, Deployment, Host, Server, Volume
from pgherd.runner.deploy.transition_plan import RunningServer, plan, volumes_of


def server(settings=None, scale=10, version="15.1", init=None, **more):
    return Server(bin="/pg/bin", version=version, settings=settings or {}, databases=(Database(scale=scale, init=init),), **more)


def container(name="c1", vcpus=None, **of_server):
    return Container(name=name, vcpus=vcpus, servers=(server(**of_server),))


def deployed(*containers):
    return Deployment(hosts=(Host(containers=containers),))


def up(*containers, healthy=True):
    return {(c.name, s.name): RunningServer(c, s, healthy) for c in containers for s in c.servers}


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
        (container(transparent_huge_pages=True), "warm", "restart"),
        (container(sched_batch=True), "warm", "restart"),
    ],
)
def test_the_least_that_does(wanted, state, step):
    assert plan(up(container()), deployed(wanted), state, how).steps == {KEY: step}


@pytest.mark.parametrize(
    ("init", "settings", "step"),
    [
        ("i.sql", {"default_toast_compression": "lz4"}, "restore"),
        ("i.sql", {"shared_preload_libraries": "pg_stat_statements"}, "restore"),
        ("i.sql", {"work_mem": "8MB"}, "reload"),
        (None, {"default_toast_compression": "lz4"}, "reload"),
    ],
)
def test_data_that_another_setting_would_have_loaded_differently_are_restored(init, settings, step):
    assert plan(up(container(init=init)), deployed(container(init=init, settings=settings)), "warm", how).steps == {KEY: step}


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


def on_volumes(**path_of):
    volumes = tuple(Volume(name=name, path=path) for name, path in path_of.items())
    one = server().model_copy(update={"volumes": {"wal": "wal"}})
    return Deployment(hosts=(Host(containers=(Container(name="c1", servers=(one,)),)),), volumes=volumes)


def test_a_server_whose_volume_is_another_one_now_is_restored():
    there = on_volumes(wal="/fast", other="/a")
    ((_, c, s),) = there.servers()
    state = {KEY: RunningServer(c, s, volumes=volumes_of(s, there))}
    assert plan(state, on_volumes(wal="/fast", other="/b"), "warm", how).steps == {KEY: "keep"}, "it does not lie on the other one"
    assert plan(state, on_volumes(wal="/slow"), "warm", how).steps == {KEY: "restore"}, "the volume's name says nothing of where it is"
    assert plan(state, deployed(container()), "warm", how).steps == {KEY: "restore"}


def theirs(dsn="host=h", name="c1"):
    one = Server(bin="/pg/bin", version="17.1", dsn=dsn)
    return Container(name=name, runtime="external", servers=(one,))


def test_a_server_of_pgherd_is_removed_where_an_external_one_takes_its_name():
    found = plan(up(container()), deployed(theirs()), "warm", how)
    assert found.steps == {KEY: "attach"} and found.remove_servers == (KEY,)
    assert plan(up(theirs()), deployed(theirs("host=i")), "warm", how).remove_servers == ()


@pytest.mark.parametrize("state", ["fresh", "restarted", "warm"])
def test_no_state_is_brought_about_on_somebody_elses_server(state):
    assert plan({}, deployed(theirs()), state, how).steps == {KEY: "attach"}
    assert plan(up(theirs()), deployed(theirs()), state, how).steps == {KEY: "keep"}
    assert plan(up(theirs(), healthy=False), deployed(theirs()), state, how).steps == {KEY: "attach"}
    assert plan(up(theirs()), deployed(theirs("host=other")), state, how).steps == {KEY: "attach"}
    changed = plan(up(container()), deployed(theirs()), state, how)
    assert changed.steps == {KEY: "attach"} and changed.remove_containers == ("c1",) == changed.make_containers
    assert plan(up(theirs()), deployed(container()), state, how).steps == {KEY: "restore"}
    assert changed.summary() == "1 attached, 1 removed"


def test_a_guest_that_is_made_anew_is_restored_with_all_that_is_in_it():
    """Its memory and its disk go with it; a container of processes keeps its files."""
    for runtime, step in (("cgroup", "restart"), ("vm", "restore")):
        before = Container(name="c1", runtime=runtime, vcpus=1, servers=(server(), server().model_copy(update={"name": "b"})))
        after = before.model_copy(update={"vcpus": 2})
        assert set(plan(up(before), deployed(after), "warm", how).steps.values()) == {step}
    dead = {key: replace(one, healthy=key[1] != "b") for key, one in up(before).items()}
    assert set(plan(dead, deployed(before), "warm", how).steps.values()) == {"restore"}, "what shares the guest goes down with it"
