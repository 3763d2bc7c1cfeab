from dataclasses import replace

import pytest

from pgherd import __version__
from pgherd.model.errors import UsageError
from pgherd.model.facts import HostFacts
from pgherd.model.load import Script
from pgherd.model.run import Surroundings
from pgherd.model.thresholds import Thresholds
from pgherd.postgres.installations import Installation
from pgherd.runner import prepare_cluster
from pgherd.runner.host_agent import Greeting
from pgherd.runner.prepare_cluster import prepare_over
from pgherd.runner.prepared import Prepared
from pgherd.studies.databases import DatabaseOptions
from pgherd.studies.density.request import DensityRequest
from pgherd.studies.execution.request import ExecRequest

GB = 2**30
OPTIONS = DatabaseOptions(cores=6, memory=GB, vcpus=1, pg_bin="/pg", pg_version="18.6")


def greeting(**changes):
    facts = HostFacts(hostname="h", kernel="6.1", cores=4, logical_cpus=4, memory=16 * GB, memory_available=10 * GB)
    return Greeting(facts.model_copy(update=changes), __version__, (("18.6", "/pg"), ("15.18", "/old")), {"disk": "ssd"})


class Agent:
    """Says hello, and remembers what it was asked."""

    def __init__(self, met):
        self.met, self.asked, self.files, self.pages = met, None, {}, None

    def hello(self):
        return self.met

    def put(self, name, data):
        self.files[f"/there/{name}"] = data
        return f"/there/{name}"

    def try_out(self, pages):
        self.pages = pages

    def prepare(self, study, asked, dry):
        self.asked = asked
        scripts = tuple(Script(source=text.split("@")[0]) for text in asked.script)
        return Prepared(
            study=study,
            options=OPTIONS.model_copy(update={"scripts": scripts, "init": asked.init}),
            surroundings=Surroundings(runtime="process", cores=6, memory=GB),
            thresholds=Thresholds(),
            facts=self.met.facts,
            installation=Installation("/pg", "18.6", 18, "system"),
            choices=("a choice",),
            settings=(),
            host_changes=("a directory",),
            disk=1,
            memory=2,
            confirm=("99 pages",),
            huge_pages={2**21: 99} if asked.huge_pages else {},
        )


@pytest.fixture
def engine(engine_of, monkeypatch):
    """Hosts a and b; what they say can be changed before they are asked."""
    found = engine_of(["a", "b"])
    found.met = {"a": greeting(), "b": greeting(cores=2)}
    waiting = []

    def make():
        if not waiting:
            waiting.extend(found.hosts())
        return Agent(found.met[waiting.pop(0)])

    crew = prepare_cluster.Crew
    monkeypatch.setattr(prepare_cluster, "Crew", lambda engine: crew(engine, make))
    return found


def asked(**more):
    return DensityRequest(cluster="mine", **more)


def test_a_request_is_completed_on_the_first_host_for_all(engine):
    prepared, facts = prepare_over(engine, "density", asked(placement="pack", on_lost_host="stop"), dry=True)
    request = engine.actors_of["a"].asked
    assert [(host.name, host.cores, host.memory) for host in request.over] == [("a", 4, 8 * GB), ("b", 2, 8 * GB)]
    cluster = prepared.surroundings.cluster
    assert (cluster.address, cluster.placement, cluster.on_lost_host) == ("mine", "pack", "stop")
    assert cluster.hosts[0].labels == {"host": "a", "disk": "ssd"}
    assert list(facts) == ["a", "b"] and facts["b"].cores == 2
    assert prepared.choices[0].startswith("2 hosts: a (4 cores, 8 GB), b (2 cores, 8 GB); containers are placed by 'pack'")
    assert prepared.choices[-1] == "a choice"
    assert prepared.confirm == ("on each of the 2 hosts (paths as on a): 99 pages",)
    assert prepared.host_changes == ("on each of the 2 hosts (paths as on a): a directory",)
    assert engine.actors_of["b"].asked is None


def test_the_user_s_files_go_there_and_their_names_come_back(engine, tmp_path):
    for name in ("new.sql", "fill.sql"):
        (tmp_path / name).write_text(name)
    prepared, _ = prepare_over(
        engine, "density", asked(script=(f"{tmp_path}/new.sql@3", "builtin:select-only"), init=f"{tmp_path}/fill.sql"), dry=True
    )
    agent = engine.actors_of["a"]
    assert agent.asked.script == ("/there/000-new.sql@3", "builtin:select-only") and agent.asked.init == "/there/001-fill.sql"
    assert agent.files == {"/there/000-new.sql": b"new.sql", "/there/001-fill.sql": b"fill.sql"}
    assert [script.source for script in prepared.options.scripts] == [f"{tmp_path}/new.sql", "builtin:select-only"]
    assert prepared.options.init == f"{tmp_path}/fill.sql"
    with pytest.raises(UsageError, match="/nowhere.sql: No such file"):
        prepare_over(engine, "density", asked(script=("/nowhere.sql",)), dry=True)


def test_hosts_that_differ_are_listed(engine):
    engine.met["b"] = greeting(kernel="5.10", cpu_model="old")
    prepared, _ = prepare_over(engine, "density", asked(), dry=True)
    warnings = [choice for choice in prepared.choices if choice.startswith("Warning")]
    assert warnings == ["Warning: the hosts differ in kernel: a 6.1, b 5.10.", "Warning: the hosts differ in cpu_model: a , b old."]


def test_other_versions_are_refused(engine):
    engine.met["b"] = replace(greeting(), postgres=(("15.18", "/old"),))
    with pytest.raises(UsageError, match=r"PostgreSQL 18\.6, but b has 15\.18"):
        prepare_over(engine, "density", asked(), dry=True)
    engine.met["b"] = replace(greeting(), pgherd="0.0.1")
    with pytest.raises(UsageError, match=r"but there is 0\.0\.1 on b; install the same"):
        prepare_over(engine, "density", asked(), dry=True)


def test_huge_pages_are_tried_on_every_host_but_by_a_dry_run(engine):
    prepare_over(engine, "density", asked(huge_pages="2MB"), dry=True)
    assert engine.actors_of["b"].pages is None
    prepare_over(engine, "density", asked(huge_pages="2MB"), dry=False)
    assert engine.actors_of["a"].pages == engine.actors_of["b"].pages == {2**21: 99}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"cores": 3}, "--cores 3 is more than host b has"),
        ({"placement": "label:disk=nvme"}, "no host has the label disk=nvme"),
        ({"placement": "scatter"}, "'scatter' is not a placement"),
    ],
)
def test_what_the_hosts_do_not_have_is_refused(engine, more, words):
    with pytest.raises(UsageError, match=words):
        prepare_over(engine, "density", asked(**more), dry=True)


def test_a_host_cannot_have_the_name_of_all(engine_of):
    with pytest.raises(UsageError, match="cannot be called 'local'"):
        prepare_cluster._host("local", greeting(), asked())


def test_a_command_is_started_where_the_user_is(engine, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found, back = prepare_cluster._with_files(ExecRequest(command=("true",)), None, "a")
    assert found.cwd == str(tmp_path) and back == {}
    assert prepare_cluster._with_files(ExecRequest(command=("true",), cwd="/x"), None, "a")[0].cwd == "/x"
