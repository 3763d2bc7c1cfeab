"""Completing an isolation request for this host."""

from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.units import Size
from pgherd.node.local import LocalNode
from pgherd.prepare import servers
from pgherd.prepare.hosts import Containers, HostShare
from pgherd.studies.isolation import prepare as module
from pgherd.studies.isolation.options import AGGRESSORS, IsolationRequest
from pgherd.studies.isolation.prepare import plan_lines, prepare
from pgherd.studies.isolation.propose import planned

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
        (UsageError, {"schemes": ("quota",), "iops": 5}, "applies to scheme io, which is not in --schemes quota"),
        (UsageError, {"cpu_weight": 200}, "--cpu-weight applies to scheme weights"),
    ],
)
def test_schemes_that_do_not_go(error, given, words):
    with pytest.raises(error, match=words):
        schemes(**given)


def test_a_request_is_completed(prepared):
    study = prepared(aggressors=tuple(AGGRESSORS))
    options = study.options
    assert (options.rate, options.clients, options.duration, options.repeats, options.fixed_repeats) == (100, 8, 15, 3, True)
    assert study.study == "isolation" and not options.read_only
    assert all(Path(options.scripts_of[name]).read_text().startswith("-- ") for name in AGGRESSORS)
    lines = "\n".join(plan_lines(options, planned(options)))
    assert "shared-server: one server with both databases." in lines and "tpcb-like of scale 10 at 100 tps" in lines


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rate": 10}, "--rate 10 gives 150 transactions in 15 s, but a p99 requires at least 1300"),
        ({"vcpus": 1.0}, "--vcpus 1: the victim and the aggressor together need 2 of the 1 cores"),
        ({"host_memory": Size("200MB")}, "exceed the host's memory budget of 200 MB"),
    ],
)
def test_what_cannot_be_measured_is_refused(prepared, given, words):
    with pytest.raises(UsageError, match=words):
        prepared(**given)


def test_guests_are_refused():
    with pytest.raises(CapabilityError, match="--runtime vm has its own"):
        prepare(LocalNode(), IsolationRequest(runtime="vm"), dry=True)
