"""Targets that are no databases: which trial's targets are reached how, and what is made for them."""

from types import SimpleNamespace

import pytest

from pgherd.model.deployment import Deployment, Host, Volume
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial
from pgherd.node.local import LocalNode
from pgherd.runner.deploy import load_files
from pgherd.runner.deploy.stage import NO_ROOM
from pgherd.runner.deploy.targets import HostTargets, Targets, VolumeTargets
from pgherd.runner.watcher import Watcher


class Volumes:
    """Directories by volume; ``checked`` counts the looks at whether they are there."""

    def __init__(self):
        self.asked, self.checked = [], 0

    def directory(self, volume):
        self.asked.append(volume.name)
        return f"/made/{volume.name}"

    def check(self):
        self.checked += 1


def trial(*loads):
    volumes = tuple(Volume(name=name, path=f"/mnt/{name}") for name in ("a", "b"))
    phases = tuple(Phase(loads=one) for one in loads)
    return Trial(point={}, deployment=Deployment(hosts=(Host(),), volumes=volumes), phases=phases)


FIO = Load(driver="fio", options={"rw": "read", "size": "100"})


@pytest.fixture
def volumes(monkeypatch):
    monkeypatch.setattr(load_files, "ensure", lambda node, directory, loads, account, watcher: directory.endswith("a"))
    return Volumes()


def session():
    return SimpleNamespace(node=LocalNode(), account=None)


def test_a_loaded_volume_is_reached_by_its_directory(volumes):
    targets = VolumeTargets(session(), volumes, Watcher())
    assert targets.apply(trial({"a": FIO}, {"a": FIO, "b": FIO})) == "files on a written"
    assert targets.reach("b").directory == "/made/b" and targets.reach("b").room is NO_ROOM
    assert targets.reach("c") is None and targets.said("c") is None and "/made/a" in targets.said("a")
    assert targets.directories == {"a": "/made/a", "b": "/made/b"}
    targets.check()
    assert volumes.checked == 1


def test_an_idle_volume_is_not_made(volumes):
    targets = VolumeTargets(session(), volumes, Watcher())
    targets.apply(trial({"b": FIO}))
    assert volumes.asked == ["b"] and targets.reach("a") is None


def test_a_host_is_there(volumes):
    targets = HostTargets()
    assert targets.reach("local") is None
    targets.apply(trial({"local": Load(driver="command")}))
    assert targets.reach("local").room is NO_ROOM and targets.reach("elsewhere") is None
    assert not targets.reach("local").privileged
    targets.apply(trial({"local": Load(driver="command", options={"privileged": "1"})}))
    assert targets.reach("local").privileged


def test_all_kinds_are_asked(volumes):
    targets = Targets(session(), volumes, Watcher())
    assert targets.apply(trial({"a": FIO, "local": Load(driver="command")})) == ["files on a written"]
    assert targets.reach("a").directory and targets.reach("local") is not None and targets.reach("nothing") is None
    assert targets.readings() == {} and targets.said("nothing") is None
    targets.close()
    assert targets.reach("a") is None


def test_a_volume_of_one_of_several_hosts_is_reached_by_both_names(volumes):
    deployment = Deployment(hosts=(Host(name="h"),), volumes=(Volume(name="a", path="/mnt/a", host="h"),))
    targets = VolumeTargets(session(), volumes, Watcher())
    targets.apply(Trial(point={}, deployment=deployment, phases=(Phase(loads={"h/a": FIO}),)))
    assert targets.reach("h/a").directory == "/made/a" and targets.reach("a") is None


def test_what_is_up_for_a_trial_alone_is_ended_with_it(volumes, monkeypatch):
    targets = Targets(session(), volumes, Watcher())
    stopped = []
    monkeypatch.setattr(targets._links.servers, "stop", lambda: stopped.append(True))
    assert targets.views() == []
    targets.rest()
    assert stopped == [True]
