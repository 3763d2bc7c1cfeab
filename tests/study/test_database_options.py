import pytest
from pydantic import ValidationError

from pgherd.model.deployment import Volume
from pgherd.model.load import Script
from pgherd.study.database_options import DatabaseOptions, DatabaseRequest, target


def _options(**changes):
    return DatabaseOptions(**{"host_cores": 4, "host_memory": 2**30, "vcpus": 2, "pg_bin": "/pg/bin", "pg_version": "17.1"} | changes)


def test_a_deployment_has_one_container_of_each_name_within_the_budget():
    options = _options(runtime="cgroup", cpu_mode="quota", container_memory=2**28, settings={"work_mem": "1MB"}, scale=3)
    (host,) = options.deploy(["a", "b"]).hosts
    assert (host.cores, host.memory) == (4, 2**30)
    assert [container.name for container in host.containers] == ["a", "b"]
    for container in host.containers:
        assert (container.runtime, container.vcpus, container.cpu_mode, container.memory) == ("cgroup", 2, "quota", 2**28)
        (server,) = container.servers
        assert (server.bin, server.version, server.settings) == ("/pg/bin", "17.1", {"work_mem": "1MB"})
        assert server.databases[0].scale == 3


def test_the_wal_of_all_servers_lies_on_a_volume_where_one_is_named():
    deployment = _options(volumes=(Volume(name="on-wal", path="/fast"),), roles={"wal": "on-wal"}).deploy(["a", "b"])
    (volume,) = deployment.volumes
    assert (volume.kind, volume.path) == ("directory", "/fast")
    assert all(server.volumes == {"wal": volume.name} for _, _, server in deployment.servers())
    plain = _options().deploy(["a"])
    assert not plain.volumes and not next(plain.servers())[2].volumes


def test_reserved_pages_are_counted_once_a_containers_limit_is_what_is_left():
    (host,) = _options(container_memory=2**30, huge_page_bytes=2**28, transparent_huge_pages=True).deploy(["a"]).hosts
    assert host.containers[0].memory == 2**30 - 2**28 and host.containers[0].servers[0].transparent_huge_pages is True
    assert _options(huge_page_bytes=2**28).container("a").memory is None


@pytest.mark.parametrize(
    ("scheduler", "servers", "clients"),
    [("normal", False, False), ("batch", True, True), ("batch-servers", True, False), ("batch-clients", False, True)],
)
def test_servers_and_clients_run_under_the_scheduling_policy(scheduler, servers, clients):
    options = _options(scheduler=scheduler)
    assert (options.container("a").servers[0].sched_batch, options.load(2).sched_batch) == (servers, clients)
    external = _options(scheduler=scheduler, dsn="host=h").container("a").servers[0]
    assert not external.sched_batch, "pgherd does not start an external server"


def test_targets_name_databases_of_the_deployment():
    places = [str(place) for place, *_ in _options().deploy(["a", "b"]).databases()]
    assert places == [target("a"), target("b")]


@pytest.mark.parametrize(("clients", "threads"), [(1, 1), (2, 2), (9, 3)])
def test_a_load_has_no_more_threads_than_clients(clients, threads):
    load = _options(threads=3, rate=50.0).load(clients)
    assert (load.clients, load.threads, load.rate) == (clients, threads, 50.0)


@pytest.mark.parametrize(
    ("changes", "read_only"),
    [
        ({"dsn": "host=h", "read_only": True}, True),
        ({"dsn": "host=h", "read_only": False}, False),
        ({"read_only": True}, False),  # a server of pgherd's own rejects writes by its settings
        ({"settings": {"default_transaction_read_only": "on"}}, True),
    ],
)
def test_sessions_on_an_external_server_are_read_only_unless_the_load_writes(changes, read_only):
    assert _options(scripts=(Script(source="/own.sql"),), **changes).load(1).read_only is read_only


def test_a_request_says_nothing_by_itself():
    asked = DatabaseRequest()
    assert (asked.vcpus, asked.memory, asked.time_budget, asked.workload) == (None, None, None, "select-only")
    with pytest.raises(ValidationError):
        DatabaseRequest(vcpus=0)
    with pytest.raises(ValidationError):
        DatabaseRequest(vcpu=1)
