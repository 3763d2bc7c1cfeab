"""What is read of the servers after a trial, and that restarted ones begin without cached files."""

from __future__ import annotations

import psycopg
import pytest

from pgherd.model.deployment import Container, Database, Deployment, Host, Server
from pgherd.model.load import Load, Phase
from pgherd.model.trial import Trial
from pgherd.runner.deploy import looks


class Node:
    def __init__(self):
        self.ran, self.left = [], []

    def run(self, command, timeout=60.0):
        self.ran.append(list(command.argv))

    def disconnect(self, conninfo):
        self.left.append(conninfo)


class Instance:
    data_dir = "/data"

    def __init__(self, rows=((100, 60, 120, 8192),), broken=False):
        self.rows, self.broken, self.said = list(rows), broken, []

    def sql(self, statement, parameters=(), *, database="postgres"):
        self.said.append((database, statement))
        if self.broken:
            raise psycopg.errors.UndefinedFile("no such extension")
        return self.rows

    def conninfo(self, database="postgres"):
        return f"dbname={database}"


@pytest.fixture
def trial():
    server = Server(bin="/b", version="18", databases=(Database(),))
    deployed = Deployment(hosts=(Host(containers=(Container(name="db01", servers=(server,)),)),))
    return Trial(point={"x": 1}, deployment=deployed, phases=(Phase(loads={"local/db01/pg/bench": Load()}),), looks=("buffers",))


def test_buffers_of_each_server(trial):
    node, instance = Node(), Instance()
    found = looks.readings(node, trial, {("db01", "pg"): instance})
    assert found == {"server:db01/pg": {"buffers.used": 819200.0, "buffers.reused": 491520.0, "buffers.filled": 983040.0}}
    assert {database for database, _ in instance.said} == {"postgres"}, "the workload's own database stays as it was"
    assert node.left


def test_nothing_is_asked_unless_the_trial_wants_it(trial):
    instance = Instance()
    assert looks.readings(Node(), trial.model_copy(update={"looks": ()}), {("db01", "pg"): instance}) == {}
    assert looks.readings(Node(), None, {("db01", "pg"): instance}) == {}
    assert instance.said == []


def test_a_server_that_cannot_say_costs_no_trial(trial):
    assert looks.readings(Node(), trial, {("db01", "pg"): Instance(broken=True)}) == {}


def test_only_limited_containers_lose_cached_files():
    node = Node()
    looks.drop_cached_files(node, [(Instance(), Container(name="a")), (Instance(), Container(name="b", memory=2**26))])
    assert sum("dd" in argv for argv in node.ran) == 1
    looks.drop_cached_files(node := Node(), [(Instance(), Container(name="a"))])
    assert node.ran == []


def test_readings_of_several_kinds_go_together():
    assert looks.merged({"a": {"x": 1.0}}, {"a": {"y": 2.0}, "b": {"z": 3.0}}) == {"a": {"x": 1.0, "y": 2.0}, "b": {"z": 3.0}}
