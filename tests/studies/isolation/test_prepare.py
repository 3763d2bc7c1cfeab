"""Completing an isolation request for this host."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import Size
from pgherd.node.local import LocalNode
from pgherd.prepare import databases, servers
from pgherd.prepare.hosts import ContainerCpu, Containers, HostShare
from pgherd.studies.isolation import prepare as module
from pgherd.studies.isolation.options import AGGRESSORS, FIO, FIO_BYTES, IsolationRequest
from pgherd.studies.isolation.prepare import plan_lines, prepare
from pgherd.studies.isolation.propose import planned
from pgherd.study.option import declared

pytestmark = pytest.mark.usefixtures("own_directories")
GB = 2**30


def schemes(vcpus=1.0, runtime="cgroup", **requested):
    request = IsolationRequest(**requested)
    containers = Containers(
        runtime, HostShare(4, 8 * GB), 4, cpu_weight=request.cpu_weight, iops=request.iops, io_bandwidth=request.io_bandwidth
    )
    return module._schemes(request, containers, vcpus)


@pytest.fixture
def prepared(monkeypatch):
    monkeypatch.setattr(servers.settings_validation, "validate", lambda *_: None)  # tested elsewhere, and slow

    def run(**requested):
        defaults = {"runtime": "process", "vcpus": 0.5, "host_cores": 1.0, "host_memory": Size("2GB"), "schemes": ("shared-server",)}
        return prepare(LocalNode(), IsolationRequest(**{**defaults, **requested}), dry=True)

    return run


def test_default_schemes_are_those_that_the_host_has():
    assert schemes() == (("shared-server", "quota", "cpuset"), [])
    assert schemes(iops=500)[0] == ("shared-server", "quota", "cpuset", "io")
    chosen, left_out = schemes(runtime="process", vcpus=0.5)
    assert chosen == ("shared-server",)
    assert [text.split()[3] for text in left_out] == ["quota", "cpuset"] and all(text.startswith("Left out: ") for text in left_out)


@pytest.mark.parametrize(
    ("error", "given", "words"),
    [
        (UsageError, {"schemes": ("cpuset",), "vcpus": 0.5}, "gives whole CPUs, but --vcpus is 0.5"),
        (UsageError, {"schemes": ("io",)}, "scheme io has no limit; give --iops or --io-bandwidth"),
        (CapabilityError, {"schemes": ("weights",), "runtime": "process"}, "scheme weights needs the cgroup runtime"),
        (UsageError, {"schemes": ("vm",)}, "scheme vm has virtual machines; add --runtime vm"),
        (UsageError, {"schemes": ("cpuset",), "runtime": "vm"}, "with --runtime vm use shared-server, shared-container, vm"),
        (UsageError, {"schemes": ("quota",), "iops": 5}, "applies to scheme io, which is not in --schemes quota"),
        (UsageError, {"cpu_weight": 200}, "--cpu-weight applies to scheme weights"),
    ],
)
def test_schemes_that_do_not_go(error, given, words):
    with pytest.raises(error, match=words):
        schemes(**given)


def test_a_request_is_completed(prepared):
    study = prepared(aggressors=tuple(name for name in AGGRESSORS if name != FIO))
    options = study.options
    assert (options.rate, options.clients, options.duration, options.repeats, options.fixed_repeats) == (100, 8, 15, 3, True)
    assert study.study == "isolation" and not options.read_only
    assert study.tools == {} and set(options.scripts_of) == set(AGGRESSORS) - {FIO}
    assert all(Path(file).read_text().startswith("-- ") for file in options.scripts_of.values())
    lines = "\n".join(plan_lines(options, planned(options)))
    assert "shared-server: one server with both databases." in lines and "tpcb-like of scale 10 at 100 tps" in lines


def test_servers_of_several_sizes_have_no_huge_pages(prepared):
    with pytest.raises(UsageError, match="huge_pages is try, but .*; add --set huge_pages=off"):
        prepared(set=("huge_pages=try",))


def test_autovacuum_works_within_a_trial_next_to_its_aggressor(prepared):
    study = prepared(aggressors=("cpu", "vacuum"))
    assert study.options.settings["autovacuum_naptime"] == "1s" and "autovacuum_naptime" in {row.name for row in study.settings}
    assert "autovacuum_naptime" not in prepared(aggressors=("cpu",)).options.settings
    assert prepared(aggressors=("vacuum",), set=("autovacuum_naptime=9s",)).options.settings["autovacuum_naptime"] == "9s"


def test_fio_needs_fio_direct_io_and_room(prepared, monkeypatch):
    monkeypatch.setattr(module, "fio_version", lambda node: "3.33")
    monkeypatch.setattr(module, "direct_io_works", lambda directory: True)
    study, without = prepared(aggressors=(FIO,)), prepared(aggressors=("cpu",))
    assert study.tools == {"fio": "3.33"} and study.disk == without.disk + FIO_BYTES and study.options.scripts_of == {}
    assert any("4 clients of pgbench, or jobs of fio:" in line for line in plan_lines(study.options, ()))
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=study.disk))
    with pytest.raises(UsageError, match="aggressor fio has a file of 1 GB"):
        prepared(aggressors=(FIO,))
    monkeypatch.setattr(module, "direct_io_works", lambda directory: False)
    with pytest.raises(CapabilityError, match="aggressor fio needs direct I/O"):
        prepared(aggressors=(FIO,))


def test_templates_that_exist_need_no_space(prepared, monkeypatch):
    monkeypatch.setattr(module, "fio_version", lambda node: "3.33")
    monkeypatch.setattr(module, "direct_io_works", lambda directory: True)
    asked = {"aggressors": (FIO,), "schemes": ("shared-server", "shared-container")}
    study = prepared(**asked)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=study.disk))
    with pytest.raises(UsageError, match="aggressor fio has a file of 1 GB"):
        prepared(**asked)
    monkeypatch.setattr(databases.templates, "find", lambda node, installation, contents, *_: "found" if len(contents) == 2 else None)
    assert prepared(**asked).disk == study.disk, "the template of the server with both databases exists"


def test_all_aggressors_that_the_host_can_run_are_the_default(prepared, monkeypatch):
    monkeypatch.setattr(module, "fio_version", lambda node: "3.33")
    monkeypatch.setattr(module, "direct_io_works", lambda directory: True)
    assert prepared().options.aggressors == tuple(AGGRESSORS)
    monkeypatch.setattr(module, "direct_io_works", lambda directory: False)
    study = prepared()
    assert study.options.aggressors == tuple(name for name in AGGRESSORS if name != FIO) and study.tools == {}
    assert any(text.startswith("Aggressor fio is left out: aggressor fio needs direct I/O") for text in study.defaults_chosen)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rate": 10}, "--rate 10 gives 150 transactions in 15 s, but a p99 requires at least 1300"),
        ({"vcpus": 1.0}, "--vcpus 1: the victim and the aggressor together need 2 of the 1 cores"),
        ({"host_cores": 2.0}, "shared-server has no CPU limit: both databases would get the 2 cores .* add --host-cores 1"),
        ({"host_memory": Size("200MB")}, "exceed the host's memory budget of 200 MB"),
    ],
)
def test_what_cannot_be_measured_is_refused(prepared, given, words):
    with pytest.raises(UsageError, match=words):
        prepared(**given)


@pytest.mark.parametrize(
    ("runtime", "mode", "names", "vcpus", "unlimited"),
    [
        ("cgroup", "quota", ("quota", "weights"), 1.0, "weights"),
        ("cgroup", "quota", ("quota", "weights"), 2.0, ""),
        ("cgroup", "quota", ("shared-server", "quota", "cpuset"), 1.0, ""),
        ("process", "none", ("shared-server", "shared-container"), 1.0, "shared-server, shared-container"),
        ("process", "cpuset", ("shared-server", "cpuset"), 1.0, ""),
        ("vm", "none", ("shared-server", "vm"), 1.0, ""),
    ],
)
def test_all_schemes_have_equal_cpu(runtime, mode, names, vcpus, unlimited):
    containers, cpu = Containers(runtime, HostShare(4, 8 * GB), 4), ContainerCpu(vcpus, mode)
    if not unlimited:
        module._require_equal_cpu(names, containers, cpu)
        return
    with pytest.raises(UsageError, match=f"scheme {unlimited} has no CPU limit: .* get the 4 cores .*; add --host-cores 2"):
        module._require_equal_cpu(names, containers, cpu)


def test_processes_have_whole_cpus_in_every_scheme(prepared):
    options = prepared(vcpus=1.0, host_cores=2.0, schemes=("shared-server", "cpuset"), aggressors=("cpu",)).options
    containers = [container for trial in planned(options) for _, container in trial.deployment.containers()]
    assert {(container.name, container.vcpus, container.cpu_mode) for container in containers} == {
        ("all", 2, "cpuset"),
        ("victim", 1, "cpuset"),
        ("aggressor", 1, "cpuset"),
    }


def test_the_values_that_fill_the_form_give_a_p99(prepared):
    filled = {one.name: one.option.filled for one in declared(IsolationRequest)}
    assert prepared(rate=filled["rate"], duration=filled["duration"], aggressors=("cpu",)).options.rate == 120


def test_virtual_machines_have_schemes_of_their_own(prepared):
    assert schemes(runtime="vm") == (("shared-server", "vm"), [])
    try:
        options = prepared(runtime="vm", vcpus=None, host_cores=2.0, schemes=None).options
    except CapabilityError as error:
        pytest.skip(str(error))
    assert (options.vcpus, options.cpu_mode, options.schemes) == (1, "none", ("shared-server", "vm"))
    assert 2 * options.container_memory < 2 * GB, "QEMU needs memory too"
    assert {container.runtime for trial in planned(options) for _, container in trial.deployment.containers()} == {"vm"}


def test_fio_is_not_in_virtual_machines():
    with pytest.raises(CapabilityError, match="aggressor fio does not run in virtual machines"):
        prepare(LocalNode(), IsolationRequest(runtime="vm", aggressors=(FIO,)), dry=True)
