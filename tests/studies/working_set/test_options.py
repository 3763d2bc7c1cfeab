"""Request and options of a working-set run."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pgherd.runtimes.vm.qemu import MIN_MEMORY_BYTES
from pgherd.studies.working_set.options import GUEST_SYSTEM_MB, MB, MIN_SHARED_BUFFERS_MB, SweepCurve, WorkingSetRequest, min_extra_memory


def test_the_deployment_of_a_size(options):
    (host,) = options(settings={"max_connections": "35"}).deployment(200, 64).hosts
    (container,) = host.containers
    assert container.memory == 200 * 2**20
    assert container.servers[0].settings == {"max_connections": "35", "shared_buffers": "64MB"}


def test_curves_are_one_for_each_load(options):
    assert options().curves("shared-buffers") == (SweepCurve("shared-buffers", 30), SweepCurve("shared-buffers", 2))
    assert str(SweepCurve("memory", 2)) == "memory.2"


@pytest.mark.parametrize(
    "wrong", [{"clients": (2, 2)}, {"clients": (0,)}, {"memory_sizes": ()}, {"shared_buffers_sizes": ()}, {"shared_buffers": 0}]
)
def test_what_makes_no_sense(options, wrong):
    with pytest.raises(ValidationError):
        options(**wrong)


def test_a_sweep_that_is_not_made_needs_no_sizes(options):
    assert options(vary=("memory",), shared_buffers_sizes=()).sizes("shared-buffers") == ()


def test_more_clients_need_more_beside_the_buffers():
    assert 0 < min_extra_memory(2, "cgroup") < min_extra_memory(30, "cgroup")


def test_a_guest_needs_its_own_system_beside_them_too():
    assert min_extra_memory(2, "vm") == min_extra_memory(2, "cgroup") + GUEST_SYSTEM_MB
    assert min_extra_memory(1, "vm") + MIN_SHARED_BUFFERS_MB >= MIN_MEMORY_BYTES // MB, "the second sweep's smallest guest comes up"


def test_defaults():
    request = WorkingSetRequest()
    assert request.vary == ("memory", "shared-buffers") and request.workload == "random-block"
    assert request.client_placement == "outside" and request.start_state == "restarted" and request.precision == 0.05


@pytest.mark.parametrize("inputs", [{"memory": "1GB"}, {"rate": 10.0}, {"dsn": "dbname=x"}, {"huge_pages": "2MB"}])
def test_what_the_study_decides_itself(inputs):
    with pytest.raises(ValidationError, match="does not apply to working-set"):
        WorkingSetRequest(**inputs)


@pytest.mark.parametrize("inputs", [{"start_state": "warm"}, {"initial_sizes": 3}, {"precision": "0%"}, {"vary": ()}, {"vary": ("disk",)}])
def test_what_is_wrong(inputs):
    with pytest.raises(ValidationError):
        WorkingSetRequest(**inputs)


def test_precision_in_per_cent():
    assert WorkingSetRequest(precision="3%").precision == 0.03


def test_an_explicit_null_means_the_default():
    nulls = dict.fromkeys(("repeats", "duration", "warmup", "vary", "memory_sizes", "precision", "start_state", "preset"))
    assert WorkingSetRequest.model_validate(nulls) == WorkingSetRequest()
    assert not WorkingSetRequest.model_validate(nulls).model_fields_set
