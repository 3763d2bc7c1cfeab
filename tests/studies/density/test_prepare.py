import re
import shutil

import pytest
from pydantic import ValidationError

from pgherd.model.capabilities import Capabilities
from pgherd.model.deployment import Host
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres import templates
from pgherd.prepare.volumes import DISK_RESERVE
from pgherd.studies.density.options import DensityRequest
from pgherd.studies.density.prepare import prepare
from pgherd.studies.density.propose import planned, worst_case

pytestmark = pytest.mark.usefixtures("own_directories")


def prepared(**asked):
    return prepare(LocalNode(), DensityRequest(**asked), dry=True)


def test_a_plain_request_is_completed_for_this_host():
    found = prepared()
    options = found.options
    assert options.databases[0] == 1 and options.fraction(options.databases[-1]) > 1
    assert options.settings["shared_buffers"]
    assert options.container_memory is None or options.container_memory * options.databases[-1] <= options.host_memory
    assert any("PostgreSQL" in line for line in found.defaults_chosen) and any("core" in line.lower() for line in found.defaults_chosen)
    assert options.time_budget is not None


@pytest.mark.parametrize(
    ("asked", "expected"),
    [({}, (3, False)), ({"min_repeats": 2}, (2, False)), ({"repeats": 1}, (1, True)), ({"repeats": 4}, (4, True))],
)
def test_repeats_are_exact_and_min_repeats_are_not(asked, expected):
    options = prepared(**asked).options
    assert (options.repeats, options.fixed_repeats) == expected


def test_one_repeat_of_one_point_is_one_trial():
    options = prepared(repeats=1, databases=(1,), host_memory="2GB").options
    assert options.time_budget is not None and len(planned(options)) == 1
    assert worst_case(options) == 1 + options.max_reruns


def test_over_small_hosts_no_default_is_larger_than_one_of_them():
    hosts = tuple(Host(name=f"h{number}", cores=2.0, memory=2**31) for number in range(40))
    options = prepared(over=hosts, cluster="c").options
    assert options.vcpus <= 2 and options.host_cores == 80 and options.databases[-1] >= 40


def test_the_same_seed_gives_the_same_options():
    assert prepared(seed=7, host_memory="2GB").options == prepared(seed=7, host_memory="2GB").options


def test_without_control_groups_whole_cpus_are_given_by_affinity():
    options = prepared(runtime="process").options
    assert options.runtime == "process" and options.cpu_mode == "cpuset" and options.vcpus == int(options.vcpus)
    assert options.container_memory is None


def test_the_most_that_memory_holds_is_kept():
    asked = {"runtime": "process", "scale": 1, "host_memory": "1GB"}
    holds = prepared(**asked, databases=(1, 2)).options.max_databases_in_memory
    assert prepared(**asked, databases=(1, holds)).options.max_databases_in_memory == holds > 2
    with pytest.raises(UsageError, match=f"which holds {holds};"):
        prepared(**asked, databases=(1, holds + 1))


def test_guests_leave_room_for_their_hypervisors(monkeypatch):
    able = Capabilities(available=True, memory_limit=True, note="pretended")
    monkeypatch.setattr("pgherd.runtimes.vm.runtime.VmRuntime.capabilities", lambda self: able)
    monkeypatch.setattr("pgherd.runtimes.vm.hypervisor.overhead", lambda node, cache: 104 * 2**20)
    monkeypatch.setattr("pgherd.prepare.guests.find_hypervisor", lambda *given, dry: (None, None))
    monkeypatch.setattr("pgherd.prepare.guests.describe_guests", lambda *given: "Guests run.")
    asked = {"runtime": "vm", "vcpus": 1, "scale": 1, "databases": (1, 2), "host_memory": "2GB"}
    options = prepared(**asked).options
    assert 512 * 2**20 < options.container_memory <= 2**30 - 104 * 2**20 and options.container_memory % 2**26 == 0
    with pytest.raises(UsageError, match="2 databases of 1 GB and 104 MB for its QEMU exceed .* of 2 GB, which holds 1;"):
        prepared(**asked, memory="1GB")
    assert prepared(**asked, memory="900MB").options.container_memory == 900 * 2**20
    assert prepared(**asked, memory="1GB", vm_memory_policy="virtio-balloon").options.container_memory == 2**30, (
        "balloons leave room for them"
    )


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"host_cores": 4096}, UsageError, "--host-cores 4096 is more than this host has"),
        ({"host_memory": "900TB"}, UsageError, "--host-memory 900 TB is more than this host has"),
        ({"vcpus": 4096}, UsageError, "--vcpus 4096 is more than the"),
        ({"databases": (0, 1)}, UsageError, "--databases 0: the minimum is 1"),
        ({"databases": (1, 100000)}, UsageError, "100000 databases of .* exceed the host's memory budget"),
        ({"scale": 100000}, CapabilityError, "one database needs .* but the host's memory budget is"),
        ({"databases": (1,), "scale": 100000}, UsageError, "^one database needs .*; lower --scale or --memory, or raise --host-memory$"),
        ({"threads": 8, "clients": 2}, UsageError, "--threads 8 is more than --clients 2"),
        ({"runtime": "process", "cpu_mode": "quota"}, CapabilityError, "--cpu-mode quota needs the cgroup runtime"),
        ({"runtime": "process", "memory": "1GB"}, CapabilityError, "--memory needs the cgroup runtime"),
        ({"vcpus": 0.5, "cpu_mode": "cpuset"}, UsageError, "cpuset gives whole CPUs, but --vcpus is 0.5"),
        ({"set": ("nonsense=1",)}, UsageError, 'unrecognized configuration parameter "nonsense"'),
        ({"set": ("work_mem",)}, UsageError, "write it as name=value"),
        ({"set": ("port=99",)}, UsageError, "pgherd sets it itself"),
        ({"settings_from": "/nonexistent.conf"}, UsageError, "--settings-from /nonexistent.conf cannot be read"),
        ({"pg_bin": "/nonexistent"}, UsageError, "/nonexistent"),
        ({"pg_version": "9"}, UsageError, "not supported"),
        ({"init_script": "x.sql"}, UsageError, "--init-script fills a database for --script"),
        ({"memory": "much"}, ValidationError, "'much' is not a memory size"),
        ({"duration": "long"}, ValidationError, "'long' is not a duration"),
        ({"soak": "30s"}, UsageError, "--soak 30s is too short: .* at least 5 windows of 1 min; give at least 5 min"),
        ({"soak": "299s"}, UsageError, "--soak 299s is too short"),
        ({"threshold": ("x=1",)}, UsageError, "no threshold 'x'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(asked, error, message):
    with pytest.raises(error, match=message):
        prepared(**asked)


def test_databases_that_fit_into_memory_are_no_io_bound_ones(monkeypatch):
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**15, 0, 10**15))
    words = "fits into .* memory of .*, and the trials are not I/O-bound; give --scale"
    small, large = (prepared(bound_by="io", runtime="process", scale=scale, databases=(1,)).defaults_chosen for scale in (1, 10**6))
    assert any(re.search(words, line) for line in small) and not any(re.search(words, line) for line in large)
    assert not any(re.search(words, line) for line in prepared(runtime="process", scale=1, databases=(1,)).defaults_chosen)


def test_more_databases_than_the_disk_holds_are_refused(monkeypatch):
    usage = type(shutil.disk_usage("/"))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 9 * 10**8, 10**8))
    with pytest.raises(UsageError, match="need .* below .*, which has 95.4 MB free; lower --databases or --scale"):
        prepared(databases=(1, 2))


def test_databases_whose_template_exists_need_no_space_for_it(monkeypatch):
    usage = type(shutil.disk_usage("/"))
    need = prepared(databases=(2,), scale=10).disk
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**15, 0, need + DISK_RESERVE - 1))
    with pytest.raises(UsageError, match="2 databases of about .* and a template may need"):
        prepared(databases=(2,), scale=10)
    monkeypatch.setattr(templates, "find", lambda *_: "found")
    assert prepared(databases=(2,), scale=10).disk == need


def test_processes_run_on_less_than_one_core():
    options = prepared(runtime="process", host_cores=0.5, databases=(1,)).options
    assert 0 < options.vcpus <= 0.5 and options.cpu_mode == "none"


def test_settings_of_the_users_own_are_taken_over(tmp_path):
    conf = tmp_path / "postgresql.conf"
    conf.write_text("work_mem = 12MB\nport = 5433\n")
    found = prepared(settings_from=str(conf), set=("random_page_cost=1.1",))
    assert found.options.settings["work_mem"] == "12MB" and found.options.settings["random_page_cost"] == "1.1"
    assert any("Left out of --settings-from: port" in line for line in found.defaults_chosen)
    assert {row.name: row.why for row in found.settings}["work_mem"] == "from --settings-from"
