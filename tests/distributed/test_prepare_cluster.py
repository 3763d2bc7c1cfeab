from dataclasses import replace
from pathlib import Path

import pytest

from pgherd import __version__
from pgherd.distributed import prepare_cluster
from pgherd.distributed.agent import HostInfo
from pgherd.distributed.agent_pool import AgentPool
from pgherd.distributed.prepare_cluster import UploadedFiles, prepare_over
from pgherd.model.analysis import Thresholds
from pgherd.model.deployment import Volume
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.host_facts import HostFacts
from pgherd.model.load import Script
from pgherd.model.run import RunEnvironment
from pgherd.postgres.installations import Installation
from pgherd.prepare.prepared_study import PreparedStudy, VolumeContents
from pgherd.studies.compare.options import CompareRequest
from pgherd.studies.density.options import DensityOptions, DensityRequest
from pgherd.studies.exec.options import ExecRequest
from pgherd.studies.scaling.options import ScalingOptions, ScalingRequest
from pgherd.study.comparison.options import CompareOptions
from pgherd.study.study import study_of

GB = 2**30
OPTIONS = DensityOptions(host_cores=6, host_memory=GB, vcpus=1, pg_bin="/pg", pg_version="18.6", databases=(1,))


def greeting(**changes):
    facts = HostFacts(hostname="h", kernel="6.1", cores=4, logical_cpus=4, memory=16 * GB, memory_available=10 * GB)
    return HostInfo(facts.model_copy(update=changes), __version__, (("18.6", "/pg"), ("15.18", "/old")), {"disk": "ssd"}, 9 * GB)


def _data_on(directory):
    return VolumeContents(Volume(name="on-data", path=directory), "servers' data", 4 * GB)


class Agent:
    """Says hello, and remembers what it was asked."""

    def __init__(self, met, options=OPTIONS, disk=1):
        self.met, self.asked, self.files, self.pages, self.version = met, None, {}, None, "18.6"
        self.options, self.disk, self.holds, self.looked, self.lacks = options, disk, (), None, None
        self.versions = {}

    def hello(self):
        return self.met

    def put(self, name, data):
        self.files[f"/there/{name}"] = data
        return f"/there/{name}"

    def check_volumes(self, holds, run_as):
        self.looked = [(hold.volume.path, hold.bytes) for hold in holds], run_as
        if self.lacks is not None:
            raise self.lacks

    def version_in(self, directory):
        return self.versions.get(directory)

    def probe_huge_pages(self, pages):
        self.pages = pages

    def prepare(self, study, asked, dry):
        self.asked = asked
        scripts = tuple(Script(source=text.split("@")[0]) for text in asked.script) or self.options.scripts
        options = self.options.model_copy(update={"scripts": scripts, "init": asked.init_script})
        own = options.model_dump(mode="json")
        if study == "scaling":
            shared = options.model_dump(include=set(ScalingOptions.model_fields))
            options = ScalingOptions.model_validate({**shared, "pg_version": self.version, "clients": [1], "max_clients": 1})
        elif study == "compare":
            scenarios = [{"name": name, "study": "density", "options": {**own, "protocol": name}} for name in ("simple", "prepared")]
            options = CompareOptions.model_validate({"variants": scenarios, "baseline": "simple"})
        return PreparedStudy(
            study=study,
            options=options,
            environment=RunEnvironment(runtime="process", cores=6, memory=GB, run_as="postgres"),
            thresholds=Thresholds(),
            facts=self.met.facts,
            installation=Installation("/pg", "18.6", 18, "system"),
            defaults_chosen=("a choice",),
            settings=(),
            host_changes=("a directory",),
            disk=self.disk,
            memory=2,
            confirm=("99 pages",),
            huge_pages={2**21: 99} if asked.huge_pages else {},
            holds=() if asked.data_volume is None else (_data_on(asked.data_volume),),
            typed=("/dev/sdb",) if asked.allow_format else (),
        )


@pytest.fixture
def engine(engine_of, monkeypatch):
    """Hosts a and b; what they say can be changed before they are asked."""
    result = engine_of(["a", "b"])
    result.met = {"a": greeting(), "b": greeting(cores=2)}
    result.options, result.disk, result.lacks, result.versions = OPTIONS, 1, {}, {}
    waiting = []

    def make():
        if not waiting:
            waiting.extend(result.hosts())
        name = waiting.pop(0)
        agent = Agent(result.met[name], result.options, result.disk)
        agent.lacks, agent.versions = result.lacks.get(name), result.versions.get(name, {})
        return agent

    pool = prepare_cluster.AgentPool
    monkeypatch.setattr(prepare_cluster, "AgentPool", lambda engine: pool(engine, make))
    return result


def asked(**extra):
    return DensityRequest(cluster="mine", **extra)


def test_a_request_is_completed_on_the_first_host_for_all(engine):
    prepared, facts = prepare_over(engine, "density", asked(placement="pack", on_lost_host="stop"), dry=True)
    request = engine.actors_of["a"].asked
    assert [(host.name, host.cores, host.memory) for host in request.over] == [("a", 4, 8 * GB), ("b", 2, 8 * GB)]
    cluster = prepared.environment.cluster
    assert (cluster.address, cluster.placement, cluster.on_lost_host) == ("mine", "pack", "stop")
    assert cluster.hosts[0].labels == {"host": "a", "disk": "ssd"}
    assert list(facts) == ["a", "b"] and facts["b"].cores == 2
    assert prepared.defaults_chosen[0].startswith("2 hosts: a (4 cores, 8 GB), b (2 cores, 8 GB); containers are placed by 'pack'")
    assert prepared.defaults_chosen[-1] == "a choice"
    assert prepared.confirm == ("on each of the 2 hosts (paths as on a): 99 pages",)
    assert prepared.host_changes == ("on each of the 2 hosts (paths as on a): a directory",)
    assert engine.actors_of["b"].asked is None


def test_the_user_s_files_go_there_and_their_names_come_back(engine, tmp_path):
    for name in ("new.sql", "fill.sql"):
        (tmp_path / name).write_text(name)
    prepared, _ = prepare_over(
        engine, "density", asked(script=(f"{tmp_path}/new.sql@3", "builtin:select-only"), init_script=f"{tmp_path}/fill.sql"), dry=True
    )
    agent = engine.actors_of["a"]
    assert agent.asked.script == ("/there/000-new.sql@3", "builtin:select-only") and agent.asked.init_script == "/there/001-fill.sql"
    assert agent.files == {"/there/000-new.sql": b"new.sql", "/there/001-fill.sql": b"fill.sql"}
    assert [script.source for script in prepared.options.scripts] == [f"{tmp_path}/new.sql", "builtin:select-only"]
    assert prepared.options.init == f"{tmp_path}/fill.sql"
    with pytest.raises(UsageError, match="/nowhere.sql: No such file"):
        prepare_over(engine, "density", asked(script=("/nowhere.sql",)), dry=True)


def test_hosts_that_differ_are_listed(engine):
    engine.met["b"] = greeting(kernel="5.10", cpu_model="old")
    prepared, _ = prepare_over(engine, "density", asked(), dry=True)
    warnings = [choice for choice in prepared.defaults_chosen if choice.startswith("Warning")]
    assert warnings == ["Warning: the hosts differ in kernel: a 6.1, b 5.10.", "Warning: the hosts differ in cpu_model: a , b old."]


def test_other_versions_are_refused(engine):
    engine.met["b"] = replace(greeting(), postgres=(("15.18", "/old"),))
    with pytest.raises(UsageError, match=r"PostgreSQL 18\.6, but b has 15\.18"):
        prepare_over(engine, "density", asked(), dry=True)
    engine.met["b"] = replace(greeting(), pgherd="0.0.1")
    with pytest.raises(UsageError, match=r"but found 0\.0\.1 on b; install the same"):
        prepare_over(engine, "density", asked(), dry=True)


def test_a_version_may_lie_in_a_directory_where_nobody_looks_for_one(engine):
    """--pg-bin names it, and hosts have it there. A host that has that version elsewhere is not asked."""
    engine.met["b"] = replace(greeting(), postgres=())
    engine.versions["b"] = {"/pg": "18.6"}
    prepare_over(engine, "density", asked(), dry=True)
    assert [host for host, method in engine.calls if method == "version_in"] == ["b"]
    engine.versions["b"] = {"/pg": "18.5"}
    with pytest.raises(UsageError, match=r"PostgreSQL 18\.6, but b has none"):
        prepare_over(engine, "density", asked(), dry=True)


def test_a_request_may_take_as_long_to_complete_as_on_one_host(engine, monkeypatch):
    """The user's SQL file is loaded for that, which may take a day."""
    timeouts, call = {}, AgentPool.call

    def noted(pool, host, method, *arguments, timeout=60.0):
        timeouts[method] = timeout
        return call(pool, host, method, *arguments, timeout=timeout)

    monkeypatch.setattr(AgentPool, "call", noted)
    prepare_over(engine, "density", asked(), dry=True)
    assert timeouts["prepare"] > 24 * 3600


def test_room_for_the_servers_data_is_looked_at_on_every_host(engine):
    """Hosts a and b have 4 and 2 cores: of six containers a gets four. The first has looked at its own disk."""
    engine.options = OPTIONS.model_copy(update={"databases": (6,)})
    engine.disk = 10 * GB
    for name, free, refused in (("b", 6 * GB, True), ("b", 7 * GB, False), ("a", 1, False)):
        engine.met[name] = replace(engine.met[name], free_bytes=free)
        if refused:
            with pytest.raises(UsageError, match=rf"host {name} has 6 GB free below its cache .* may need 6 GB there; free some"):
                prepare_over(engine, "density", asked(), dry=True)
        else:
            prepare_over(engine, "density", asked(), dry=True)
    with pytest.raises(UsageError, match="has no host for container db03; add"):
        prepare_over(engine, "density", asked(placement="listed:db01=a,db02=b"), dry=True)
    engine.met["b"] = replace(engine.met["b"], free_bytes=10 * GB)
    with pytest.raises(UsageError, match="host b has 10 GB free"):  # all of a comparison's servers stand on each host in turn
        prepare_over(engine, "compare", CompareRequest(cluster="mine", variant=("x:work_mem=8MB",)), dry=True)


def test_a_host_that_holds_nothing_at_first_may_be_filled_later(engine):
    """Two containers are packed onto a; b is next, unless the placement leaves it out."""
    engine.options, engine.disk = OPTIONS.model_copy(update={"databases": (2,)}), 10 * GB
    with pytest.raises(UsageError, match="host b has 9 GB free .* may need 10 GB there"):
        prepare_over(engine, "density", asked(placement="pack"), dry=True)
    prepare_over(engine, "density", asked(placement="listed:*=a"), dry=True)


def test_volumes_are_looked_at_on_every_host_with_room_for_its_share(engine):
    """Of six containers a, which completes the request, gets four, for whose data 4 GB are needed; b gets two."""
    engine.options = OPTIONS.model_copy(update={"databases": (6,)})
    prepare_over(engine, "density", asked(data_volume="/fast"), dry=True)
    assert engine.actors_of["b"].looked == ([("/fast", 2 * GB)], "postgres")
    assert engine.actors_of["a"].looked is None, "it has looked when it completed the request"
    for error in (UsageError("volume /fast does not exist"), CapabilityError("volume /fast cannot be written to")):
        engine.lacks = {"b": error}
        with pytest.raises(type(error), match="^on host b: volume /fast "):
            prepare_over(engine, "density", asked(data_volume="/fast"), dry=True)
    prepare_over(engine, "density", asked(data_volume="/fast", placement="listed:*=a"), dry=True)
    assert engine.actors_of["b"].looked is None, "it gets no container"
    prepare_over(engine, "density", asked(), dry=True)
    assert engine.actors_of["b"].looked is None, "nothing is to lie on a volume"


def test_a_comparison_puts_as_much_on_the_volumes_of_each_host(engine):
    engine.met["b"] = replace(engine.met["b"], free_bytes=99 * GB)
    request = CompareRequest(cluster="mine", variant=("x:work_mem=8MB",), data_volume="/fast")
    prepare_over(engine, "compare", request, dry=True)
    assert engine.actors_of["b"].looked == ([("/fast", 4 * GB)], "postgres")
    engine.lacks = {"b": UsageError("volume /fast does not exist")}
    with pytest.raises(UsageError, match="^on host b: volume /fast does not exist"):
        prepare_over(engine, "compare", request, dry=True)


def test_a_device_is_typed_for_every_host_on_which_it_is_formatted(engine):
    prepared, _ = prepare_over(engine, "density", asked(allow_format=("/dev/sdb",)), dry=True)
    assert prepared.typed == ("a:/dev/sdb", "b:/dev/sdb")


def test_a_label_cannot_hide_a_host_s_name():
    assert prepare_cluster._host("a", replace(greeting(), labels={"host": "b", "disk": "ssd"}), None).labels == {"host": "a", "disk": "ssd"}


def test_huge_pages_are_tried_on_every_host_but_by_a_dry_run(engine):
    prepare_over(engine, "density", asked(huge_pages="2MB"), dry=True)
    assert engine.actors_of["b"].pages is None
    prepare_over(engine, "density", asked(huge_pages="2MB"), dry=False)
    assert engine.actors_of["a"].pages == engine.actors_of["b"].pages == {2**21: 99}


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"host_cores": 3}, "--host-cores 3 is more than host b has"),
        ({"placement": "label:disk=nvme"}, "no host has the label disk=nvme"),
        ({"placement": "scatter"}, "unknown placement 'scatter'"),
    ],
)
def test_what_the_hosts_do_not_have_is_refused(engine, extra, text):
    with pytest.raises(UsageError, match=text):
        prepare_over(engine, "density", asked(**extra), dry=True)


def test_a_host_cannot_have_the_name_of_all(engine_of):
    with pytest.raises(UsageError, match="cannot be called 'local'"):
        prepare_cluster._host("local", greeting(), "10.0.0.1")


@pytest.mark.parametrize("name", ["user@b", "fe80::1%eth0", "_b"])
def test_a_host_cannot_have_a_name_that_names_no_target(name):
    with pytest.raises(UsageError, match=f"has joined the cluster as '{name}'; give it a name of letters"):
        prepare_cluster._host(name, greeting(), "10.0.0.1")


def test_a_command_is_started_where_the_user_is(engine, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert prepare_cluster._from_here(ExecRequest(command=("true",))).cwd == str(tmp_path)
    assert prepare_cluster._from_here(ExecRequest(command=("true",), cwd="/x")).cwd == "/x"


def test_a_study_of_one_server_is_completed_by_the_host_that_carries_it(engine):
    prepared, facts = prepare_over(
        engine, "scaling", ScalingRequest(cluster="mine", placement="label:host=b", host_cores=2, clients=(1,)), dry=True
    )
    request, cluster = engine.actors_of["b"].asked, prepared.environment.cluster
    assert (request.cluster, request.over, request.placement) == (None, (), "spread"), "it knows of no cluster"
    assert (request.host_cores, request.clients, request.client_placement) == (2, (1,), "outside")
    assert [(host.name, host.cores, host.memory) for host in cluster.hosts] == [("b", 6, GB)], "as that host completed it"
    assert (cluster.placement, cluster.on_lost_host, cluster.client, cluster.in_turn) == ("label:host=b", "stop", None, False)
    assert list(facts) == ["b"] and engine.actors_of["a"].asked is None
    assert prepared.defaults_chosen[:2] == (
        "1 host: b (6 cores, 1 GB).",
        "Host b runs the servers; a is not used. If it is lost, the run stops, and 'pgherd resume' continues it.",
    )
    assert prepared.host_changes == ("on host b: a directory",)


def test_its_clients_may_have_a_host_of_their_own(engine):
    prepared, facts = prepare_over(engine, "scaling", ScalingRequest(cluster="mine", client_host="a"), dry=True)
    cluster = prepared.environment.cluster
    assert [(host.name, host.cores) for host in cluster.hosts] == [("b", 6), ("a", 4)] and cluster.client == "a"
    assert engine.actors_of["b"].asked.client_placement == "outside" and engine.actors_of["b"].asked.client_host is None
    assert list(facts) == ["b", "a"]
    assert prepared.defaults_chosen[2].startswith("Clients run on host a, which runs no server")
    engine.met["a"] = replace(greeting(), postgres=(("15.18", "/old"),))
    with pytest.raises(UsageError, match=r"PostgreSQL 18\.6, but a has 15\.18"):
        prepare_over(engine, "scaling", ScalingRequest(cluster="mine", client_host="a"), dry=True)


def test_a_comparison_takes_turns_on_hosts_that_are_all_given_what_the_smallest_has(engine):
    prepared, _ = prepare_over(engine, "compare", CompareRequest(cluster="mine", variant=("x:work_mem=8MB",)), dry=True)
    request, cluster = engine.actors_of["a"].asked, prepared.environment.cluster
    assert (request.host_cores, request.host_memory, request.cluster) == (2, 8 * GB, None)
    assert prepared.options.hosts == ("a", "b") and cluster.in_turn
    assert [(host.name, host.cores, host.memory) for host in cluster.hosts] == [("a", 6, GB), ("b", 6, GB)]
    alone, _ = prepare_over(engine, "compare", CompareRequest(cluster="mine", placement="listed:*=b"), dry=True)
    assert alone.options.hosts == ("b",) and not alone.environment.cluster.in_turn


def test_what_agents_cannot_deploy_is_refused(engine):
    with pytest.raises(UsageError, match="--dsn names an external server"):
        prepare_over(engine, "scaling", ScalingRequest(cluster="mine", dsn="postgresql://db/app"), dry=True)
    scenarios = [{"name": name, "study": "disk"} for name in ("x", "y")]
    with pytest.raises(UsageError, match="a comparison of disk runs only on the local host"):
        prepare_over(engine, "compare", CompareRequest(cluster="mine", scenarios=scenarios), dry=True)
    scenarios = [{"name": name, "study": "density"} for name in ("x", "y")]
    with pytest.raises(UsageError, match="--client-host works with --variant only"):
        prepare_over(engine, "compare", CompareRequest(cluster="mine", scenarios=scenarios, client_host="a"), dry=True)


def test_a_study_that_says_what_each_host_does_is_completed_by_each(engine, monkeypatch):
    monkeypatch.setattr(prepare_cluster, "study_of", lambda name: replace(study_of(name), each_host=True))
    monkeypatch.setattr(
        prepare_cluster.merge, "over_hosts", lambda study, result: replace(result["b"], host_changes=(f"on {', '.join(result)}: x",))
    )
    prepared, _ = prepare_over(engine, "density", asked(), dry=True)
    requests = [agent.asked for agent in engine.actors_of.values()]
    assert [[host.address for host in request.over] for request in requests] == [["127.0.0.1", "127.0.0.1"]] * 2
    assert prepared.host_changes == ("on a, b: x",) and prepared.confirm == ("99 pages",), "each has said what it will change"


@pytest.fixture
def sent():
    """What was put on the other host is in ``sent.there``."""
    remote = {}

    def put(name, data):
        remote[f"/there/{name}"] = data
        return f"/there/{name}"

    files = UploadedFiles(put)
    files.there = remote
    return files


@pytest.fixture
def file(tmp_path):
    def make(name):
        (tmp_path / name).write_text(name)
        return f"{tmp_path}/{name}"

    return make


def test_a_request_s_files_are_sent_and_named_as_they_lie_there(sent, file, tmp_path):
    script, init, like = file("new.sql"), file("fill.sql"), f"{tmp_path}/postgresql.conf"
    Path(like).write_text("work_mem = 1MB\n")
    result = sent.send(DensityRequest(script=(f"{script}@3", "builtin:select-only"), init_script=init, settings_from=like))
    assert result.script == ("/there/000-new.sql@3", "builtin:select-only")
    assert (result.init_script, result.settings_from) == ("/there/001-fill.sql", "/there/002-postgresql.conf")
    settings = sent.there.pop("/there/002-postgresql.conf")
    assert sent.there == {"/there/000-new.sql": b"new.sql", "/there/001-fill.sql": b"fill.sql"}
    assert settings.endswith(b"work_mem = '1MB'\n")
    assert sent.back == {"/there/000-new.sql": script, "/there/001-fill.sql": init, "/there/002-postgresql.conf": like}


def test_a_server_to_be_like_is_no_file(sent):
    request = DensityRequest(settings_from="postgresql://db/app")
    assert sent.send(request) == request and sent.there == {}


def test_files_of_variants_and_of_arms_are_sent_too(sent, file):
    item, other = file("one.sql"), file("other.sql")
    request = CompareRequest(variant=("plain", f"mine:script={item}@2,work_mem=8MB"))
    assert sent.send(request).variant == ("plain", 'mine:script="/there/000-one.sql@2",work_mem="8MB"')
    scenarios = [{"name": "x", "study": "density", "options": {"script": [other], "scale": 2}}, {"name": "y", "study": "density"}]
    result = sent.send(CompareRequest(scenarios=scenarios))
    assert result.scenarios[0].options == {"script": ("/there/001-other.sql@1",), "scale": 2} and result.scenarios[1].options == {}


def test_what_cannot_be_read_is_said(sent):
    with pytest.raises(UsageError, match="/nowhere.sql: No such file"):
        sent.send(DensityRequest(script=("/nowhere.sql",)))


def test_complete_options_name_the_user_s_own_files_again(sent, file):
    script = file("new.sql")
    remote = sent.send(DensityRequest(script=(script,))).script[0].partition("@")[0]
    own = {
        "host_cores": 2,
        "host_memory": 2**30,
        "vcpus": 1,
        "pg_bin": "/pg",
        "pg_version": "18.6",
        "scripts": [{"source": remote, "weight": 2}],
    }
    options = ScalingOptions.model_validate(
        {
            **own,
            "clients": [1],
            "max_clients": 1,
            "variants": [{"name": "a", "options": own}, {"name": "b", "options": {**own, "init": remote}}],
        }
    )
    result = sent.returned(options)
    assert [variant.options.scripts[0].source for variant in result.variants] == [script, script]
    assert result.scripts[0].source == result.variants[1].options.init == script and result.scripts[0].weight == 2
    assert UploadedFiles(None).returned(options) is options
