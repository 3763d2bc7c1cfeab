import os
import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest

from pgherd.host import paths
from pgherd.model.capabilities import Capabilities
from pgherd.model.deployment import VmMemoryPolicy
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres.external_connections import Pooler
from pgherd.postgres.external_server import ExternalDatabaseInfo, ServerActivity
from pgherd.prepare import databases, guests, servers, volumes
from pgherd.prepare.databases import database_options, prepare_databases, require_shared_connections
from pgherd.prepare.hosts import choose_cpu, choose_memory, complete_limits
from pgherd.prepare.servers import database_size
from pgherd.studies.density.options import DensityRequest
from pgherd.studies.density.prepare import prepare
from pgherd.study.database_options import DatabaseOptions, DatabaseRequest

pytestmark = pytest.mark.usefixtures("own_directories")


def _preparation(**asked):
    return prepare_databases(LocalNode(), DatabaseRequest(**asked), dry=True)


def _settings(preparation, size):
    return servers.choose_settings(preparation.workspace, preparation.servers, size.bytes, 2, None)


def _disk(preparation, databases, size, settings=None, **given):
    writes = not preparation.load.read_only
    return volumes.disk_space(preparation.workspace, preparation.volumes, databases, size, writes=writes, settings=settings or {}, **given)


def _free(monkeypatch, megabytes):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**15, 0, megabytes * 2**20))


def _completed(**asked):
    """Return the options of databases, all messages, and the settings and the size from which the options are made."""
    request = DatabaseRequest(**asked)
    with prepare_databases(LocalNode(), request, dry=True) as preparation:
        cpu, size = choose_cpu(preparation.containers, 1.0), database_size(preparation.workspace, preparation.servers, preparation.load)
        settings = _settings(preparation, size)
        limits = complete_limits(cpu, None, preparation.runtime, settings.settings, settings.huge_pages)
        options = DatabaseOptions(**database_options(preparation, limits, size, settings))
        return options, [*preparation.messages, *size.messages, *settings.messages, *limits.messages], settings, size


def test_what_is_made_to_look_goes_again():
    with _preparation() as preparation:
        work = preparation.workspace.directory
        assert work.is_dir()
    assert not work.exists()
    assert not list((Path(paths.state_dir()) / "journal").glob("[a-z]*"))


@pytest.mark.parametrize(("dry", "overhead"), [(False, 64), (True, 104)])
def test_what_runs_guests_is_found_before_it_is_reckoned_with(monkeypatch, dry, overhead):
    """The first time on a host: until KVM is known to work, more is reckoned with."""
    tried, beneath = [], (object(), object())

    def hypervisor(node, cache, work, *, dry):
        assert work.is_dir()
        tried.extend([] if dry else [beneath])
        return beneath

    able = Capabilities(available=True, memory_limit=True, note="pretended")
    monkeypatch.setattr("pgherd.runtimes.vm.runtime.VmRuntime.capabilities", lambda self: able)
    monkeypatch.setattr(guests, "find_hypervisor", hypervisor)
    monkeypatch.setattr("pgherd.runtimes.vm.hypervisor.overhead", lambda node, cache: 64 if tried else 104)
    with prepare_databases(LocalNode(), DatabaseRequest(runtime="vm"), dry=dry) as preparation:
        assert preparation.guests.policy == VmMemoryPolicy(overhead=overhead)
        assert preparation.guests.beneath is beneath, "it is not looked for a second time"
    assert tried == ([] if dry else [beneath])


def test_without_guests_nobody_shares_their_memory():
    with _preparation(runtime="process") as preparation:
        assert preparation.guests is None


def test_options_of_the_databases_are_complete():
    options, _, _, size = _completed(runtime="process", vcpus=1, set=("work_mem=3MB",), seed=4, scale=2)
    assert (options.vcpus, options.cpu_mode, options.runtime, options.seed, options.scale) == (1, "cpuset", "process", 4, 2)
    assert options.settings["work_mem"] == "3MB" and options.read_only
    assert 2 * 10e6 < size.bytes < 2 * 30e6


def test_the_scheduling_policy_is_an_option_of_the_databases():
    assert _completed(runtime="process", vcpus=1, scheduler="batch-clients")[0].scheduler == "batch-clients"


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"host_cores": 4096}, UsageError, "--host-cores 4096 is more than this host has"),
        ({"host_memory": "900TB"}, UsageError, "--host-memory 900"),
        ({"vcpus": 1.5, "cpu_mode": "cpuset", "runtime": "process"}, UsageError, "whole CPUs"),
        ({"cpu_mode": "quota", "runtime": "process"}, CapabilityError, "needs the cgroup runtime"),
        ({"vcpus": 4096.0, "runtime": "process"}, UsageError, "more than the"),
        ({"memory": "1GB", "runtime": "process"}, CapabilityError, "--memory needs the cgroup runtime"),
        ({"init_script": "x.sql"}, UsageError, "--init-script fills a database"),
        ({"set": ("shared_bufers=1GB",)}, UsageError, "shared_bufers"),
    ],
)
def test_what_cannot_be_is_refused(asked, error, message):
    request = DatabaseRequest(**asked)
    with pytest.raises(error, match=message), prepare_databases(LocalNode(), request, dry=True) as preparation:
        choose_memory(preparation.containers)
        choose_cpu(preparation.containers, 1.0)
        _settings(preparation, database_size(preparation.workspace, preparation.servers, preparation.load))


def test_the_wal_lies_where_it_is_asked_for(tmp_path):
    for directory in (tmp_path, *tmp_path.parents):
        if directory.owner() == "root" and str(directory).startswith("/tmp/"):
            directory.chmod(0o755)
    with _preparation(runtime="process", wal_volume=str(tmp_path), workload="tpcb-like") as preparation:
        apart = _disk(preparation, 2, 2**20).bytes
        assert not list(tmp_path.iterdir()), "it was only looked at"
    options = _completed(runtime="process", wal_volume=str(tmp_path), workload="tpcb-like")[0]
    with _preparation(runtime="process", workload="tpcb-like") as preparation:
        assert _disk(preparation, 2, 2**20).bytes > apart, "what is written is not counted with the data"
    assert options.roles == {"wal": "on-wal"} and [(one.name, one.path) for one in options.volumes] == [("on-wal", str(tmp_path))]
    prepared = prepare(LocalNode(), DensityRequest(runtime="process", wal_volume=str(tmp_path), databases=(1,), scale=1), True)
    assert any(f"WAL in a private directory below {tmp_path}" in change for change in prepared.host_changes)
    (held,) = prepared.holds
    assert held.volume.path == str(tmp_path) and held.bytes > 0, "for other hosts of a run"
    with pytest.raises(UsageError, match="does not exist"), _preparation(runtime="process", wal_volume=str(tmp_path / "no")) as preparation:
        _disk(preparation, 1, 1)


def test_a_disk_too_small_is_refused(monkeypatch):
    with _preparation() as preparation:
        assert _disk(preparation, 3, 10**8).bytes >= 4 * 10**8
        _free(monkeypatch, 100)
        with pytest.raises(UsageError, match=r"3 databases of about .* MB free; lower --scale"):
            _disk(preparation, 3, 10**8)


def test_a_template_that_exists_needs_no_free_space(monkeypatch):
    with _preparation() as preparation:
        assert preparation.loaded({}) == 0
        _free(monkeypatch, 800)
        with pytest.raises(UsageError, match="1 database of about 164 MB and a template may need 328 MB below .* which has 800 MB free"):
            _disk(preparation, 1, 100 * 2**20)
        monkeypatch.setattr(databases.templates, "find", lambda *_: "found")
        loaded = preparation.loaded({})
        disk = _disk(preparation, 1, 100 * 2**20, loaded=loaded)
        assert (loaded, disk.bytes, disk.loaded) == (1, 328 * 2**20, 164 * 2**20), "the run takes both"
        database = preparation.load.database()
        assert preparation.loaded({}, [(database,), (database, database.model_copy(update={"name": "b"}))]) == 3
        _free(monkeypatch, 600)
        with pytest.raises(UsageError, match="^1 database of about 164 MB may need 164 MB below"):
            _disk(preparation, 1, 100 * 2**20, loaded=loaded)


def test_an_existing_template_is_found_by_the_contents_of_the_load(monkeypatch):
    contents = []
    monkeypatch.setattr(databases.templates, "find", lambda *given: contents.append([loader.identity for loader in given[2]]))
    with _preparation(scale=7) as preparation:
        assert preparation.loaded({}) == 0
    assert contents == [["pgbench-7"]]


@pytest.fixture
def one_disk(monkeypatch):
    """All directories are on one disk with 120 GB of free space, and loop volumes are possible."""
    monkeypatch.setattr(volumes.file_systems, "require_loop", lambda *_: None)
    monkeypatch.setattr(volumes, "check_directory", lambda *_: 0)
    monkeypatch.setattr(volumes, "device_of", lambda node, directory: "7:7")
    _free(monkeypatch, 120 * 2**10)


@pytest.mark.usefixtures("one_disk")
def test_what_is_on_one_file_system_is_summed(monkeypatch, tmp_path):
    size = 60 * 2**30
    with _preparation(data_volume="loop:100GB") as preparation:
        words = "a template and servers' data on volume 'on-data' may need 160 GB together on the file system of .*, which has 120 GB free"
        with pytest.raises(UsageError, match=words):
            _disk(preparation, 1, size)
        assert _disk(preparation, 1, size, loaded=1).volumes.volumes, "the cache gets nothing more"
        monkeypatch.setattr(volumes, "device_of", lambda node, directory: directory)
    with _preparation(data_volume=str(tmp_path)) as preparation:
        assert _disk(preparation, 1, size).volumes.volumes, "two file systems"


@pytest.mark.usefixtures("one_disk")
def test_wal_in_a_directory_on_the_disk_of_the_cache_is_counted(monkeypatch, tmp_path):
    with _preparation(wal_volume=str(tmp_path), workload="tpcb-like") as preparation:
        _free(monkeypatch, 1500)
        with pytest.raises(UsageError, match="and servers' WAL on volume 'on-wal' may need 1.38 GB together .*, which has 1.46 GB free"):
            _disk(preparation, 1, 100 * 2**20)


@pytest.mark.usefixtures("one_disk")
@pytest.mark.parametrize("volume", ["wal_volume", "data_volume"])
def test_wal_that_may_fill_a_volume_that_pgherd_makes_is_a_warning(volume):
    def warnings(preparation, size):
        choices = _disk(preparation, 1, 100 * 2**20, {"max_wal_size": size}).volumes.choices
        return [text for text in choices if "WAL may grow" in text]

    with _preparation(workload="tpcb-like", **{volume: "loop:2GB"}) as preparation:
        (warning,) = warnings(preparation, "4GB")
        assert "WAL may grow by 3 GB more (max_wal_size), but volume 'on-" in warning
        assert not warnings(preparation, "1GB")
    with _preparation(workload="tpcb-like", **{volume: "loop:6GB"}) as preparation:
        assert not warnings(preparation, "4GB")
    with _preparation(**{volume: "loop:2GB"}) as preparation:
        assert not warnings(preparation, "4GB"), "a load that only reads"


@pytest.mark.usefixtures("one_disk")
def test_what_trials_write_is_counted_once(monkeypatch, tmp_path):
    """Data and WAL on volumes of one file system need no more than the data with its WAL."""
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    _free(monkeypatch, 10 * 1024)
    with _preparation(workload="tpcb-like", data_volume=str(tmp_path / "a"), wal_volume=str(tmp_path / "b")) as preparation:
        _disk(preparation, 7, 100 * 2**20, {"max_wal_size": "1GB"})


@pytest.mark.usefixtures("one_disk")
@pytest.mark.parametrize("elsewhere", [False, True])
def test_wal_that_may_fill_a_disk_is_a_warning(monkeypatch, tmp_path, elsewhere):
    given = {"wal_volume": str(tmp_path)} if elsewhere else {}
    _free(monkeypatch, 4608)
    with _preparation(workload="tpcb-like", **given) as preparation:
        choices = _disk(preparation, 1, 100 * 2**20, {"max_wal_size": "4GB"}).volumes.choices
        (warning,) = (text for text in choices if "WAL may grow" in text)
        assert warning.startswith("Warning: WAL may grow by 3 GB more (max_wal_size), but the file system of ")
        assert "lower max_wal_size with --set" in warning
        assert not any("WAL may grow" in text for text in _disk(preparation, 1, 100 * 2**20, {"max_wal_size": "1GB"}).volumes.choices)
    with _preparation(**given) as preparation:
        assert not any("WAL may grow" in text for text in _disk(preparation, 1, 2**20, {"max_wal_size": "32GB"}).volumes.choices)


def test_a_users_own_size_is_assumed_until_it_is_loaded(tmp_path):
    script, init = tmp_path / "x.sql", tmp_path / "init.sql"
    script.write_text("select 1;")
    init.write_text("create table t (i int);")
    os.chmod(tmp_path, 0o755)
    options, messages, _, size = _completed(script=(str(script),), init_script=str(init))
    assert size.bytes > 10**8
    assert any("its size is unknown" in message for message in messages)
    assert not options.read_only


def _own(**asked):
    return _completed(runtime="process", vcpus=1, **asked)[:2]


def test_order_entry_begins_fresh_is_logged_whole_and_says_what_it_is_not():
    options, choices = _own(workload="orders", check_consistency=True)
    assert (options.workload, options.scale, options.start_state, options.sampling) == ("orders", 1, "fresh", 1.0)
    assert not options.read_only and options.variables == {"base": "0"}
    assert options.load(3).options == {"define:base": "0"}
    assert [script.name for script in options.scripts][:2] == ["new-order", "new-order-rolled-back"]
    assert options.container("db01").servers[0].databases[0].verify
    assert any("not comparable with published TPC results" in choice for choice in choices)


def test_what_the_user_says_goes_before_the_workloads_own():
    options, _ = _own(workload="orders", start_state="warm", scale=2, think_time=0.5)
    assert (options.start_state, options.scale, options.variables) == ("warm", 2, {"base": "0", "think": "0.5"})
    options, choices = _own(workload="random-block", update_percent=0, zipf=1.2)
    assert (options.workload, options.scale, options.start_state, options.read_only) == ("random-block", 256, "warm", True)
    assert options.variables == {"zipf": "1.2"} and not options.check_consistency
    assert not any("TPC" in choice for choice in choices)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"check_consistency": True}, "--check-consistency is for --workload orders, not for select-only"),
        ({"think_time": 1.0}, "--think-time is for --workload orders only"),
        ({"workload": "orders", "update_percent": 5}, "--update-percent is for --workload random-block only"),
        ({"workload": "orders", "dsn": "host=/nowhere"}, "--workload orders does not go with --dsn"),
    ],
)
def test_options_of_our_own_workloads_that_do_not_fit(asked, message):
    with pytest.raises(UsageError, match=message), _preparation(**asked):
        pass


def test_scripts_that_write_nothing_are_kept_from_it_by_the_server(tmp_path):
    script = tmp_path / "x.sql"
    script.write_text("select 1;")
    options, messages, selected, _ = _completed(script=(str(script),), read_only=True)
    assert options.read_only and options.settings["default_transaction_read_only"] == "on"
    assert {row.name: row.why for row in selected.rows}["default_transaction_read_only"] == "asked for with --read-only"
    assert options.load(2).read_only, "no checkpoint, no warning, no writable session on its account"
    assert any("assumed to write nothing" in message for message in messages)
    options = _completed(script=(str(script),))[0]
    assert not options.read_only and not options.load(2).read_only


@pytest.mark.parametrize("asked", [{"read_only": True}, {"read_only": True, "script": ("x.sql",), "allow_writes": True}])
def test_read_only_is_for_scripts_of_ones_own(asked):
    with pytest.raises(UsageError, match="--read-only is for a --script"), _preparation(**asked):
        pass


def _in_processes(**asked):
    with _preparation(runtime="process", **asked) as preparation:
        return preparation


@pytest.mark.parametrize(
    ("asked", "workload", "own"),
    [({}, "pgbench", False), ({"workload": "tpcb-like"}, "pgbench", False), ({"workload": "random-block"}, "random-block", True)],
)
def test_what_fills_the_database(asked, workload, own):
    load = _in_processes(**asked).load
    assert (load.workload, load.mix is not None) == (workload, own)


def test_sql_of_ones_own_fills_it(tmp_path):
    for name in ("script.sql", "init.sql"):
        (tmp_path / name).write_text("SELECT 1;\n")
    assert _in_processes(script=(str(tmp_path / "script.sql"),), init_script=str(tmp_path / "init.sql")).load.workload == "script"


@pytest.mark.parametrize(("asked", "checksums"), [({}, True), ({"data_checksums": False}, False)])
def test_checksums_are_on_unless_asked_otherwise(asked, checksums):
    assert _in_processes(**asked).servers.checksums is checksums


def _listed(started="1700000000.25", database="app", **limits):
    limits = {"max_connections": 30, **{name.replace("_", " "): free for name, free in limits.items()}}
    activity = ServerActivity(free=min(limits.values()), limits=limits, started=started)
    return ExternalDatabaseInfo(dsn="host=h", version="17.2", major=17, database=database, bytes=1, scale=1, activity=activity)


def test_databases_of_one_server_share_its_connections():
    two = {"server a": _listed(), "server b": _listed(database="other")}
    require_shared_connections(two, 13, 2, None)
    with pytest.raises(UsageError, match="^server a, server b: 50 clients and pgherd need 54 connections to their server, but max_conn"):
        require_shared_connections(two, 25, 2, None)
    require_shared_connections(two, 25, 1, None)
    with pytest.raises(UsageError, match="27 clients and pgherd need 31 connections .*, but max_connections leaves 30; lower --clients"):
        require_shared_connections(two, 27, 1, None)
    with pytest.raises(
        UsageError, match="26 clients and pgherd need 30 connections .* --connection-limit leaves 29; .* --connection-limit$"
    ):
        require_shared_connections(two, 13, 2, 29)
    require_shared_connections(two | {"server b": _listed(started="1700000000.5")}, 25, 2, None)
    require_shared_connections(two | {"server b": replace(_listed(), pooler=Pooler("P"))}, 25, 2, None)


def test_a_limit_of_one_database_is_for_this_database():
    require_shared_connections({"server a": _listed(database_a=15), "server b": _listed(database_b=15)}, 13, 2, None)
    with pytest.raises(
        UsageError, match="server a, server b: 26 clients .* but role loader leaves 15; lower --clients, or raise role loader"
    ):
        require_shared_connections({"server a": _listed(role_loader=15), "server b": _listed(role_loader=15)}, 13, 2, None)
