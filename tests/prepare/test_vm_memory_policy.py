"""How guests share memory, as it was asked for."""

import pytest

from pgherd.model.deployment import Container, VmMemoryPolicy
from pgherd.model.errors import UsageError
from pgherd.model.units import Size
from pgherd.node.local import LocalNode
from pgherd.prepare import guests as module
from pgherd.prepare.guests import RequestedGuests, policy, promises, require_known
from pgherd.runtimes.vm import hypervisor
from pgherd.study.database_options import DatabaseOptions

MB = 2**20
NODE = LocalNode()


@pytest.fixture(autouse=True)
def by_kvm(monkeypatch):
    monkeypatch.setattr(module.hypervisor, "overhead", lambda node, cache: hypervisor.OVERHEAD["kvm"])


def test_the_policy_is_what_was_asked_for_with_what_hypervisors_need_here(monkeypatch):
    assert policy(NODE, RequestedGuests(), "vm") == VmMemoryPolicy(policy="static", overhead=64 * MB)
    taxed = policy(NODE, RequestedGuests(policy="virtio-balloon", idle_tax=0.0), "vm")
    assert taxed == VmMemoryPolicy(policy="virtio-balloon", tax=0.0, overhead=64 * MB)
    monkeypatch.setattr(module.hypervisor, "overhead", lambda node, cache: 7)
    assert policy(NODE, RequestedGuests(), "vm").overhead == 7
    assert policy(NODE, RequestedGuests(), "cgroup") is None


def test_what_guests_are_promised_reaches_their_containers():
    asked = RequestedGuests(policy="virtio-balloon", minimum=Size("200MB"), shares=("db01=2", "db03=0.5"))
    minimum, shares = promises(asked, "vm")
    assert (minimum, shares) == (200 * MB, {"db01": 2.0, "db03": 0.5})
    fields = {"vm_memory_min": minimum, "vm_memory_shares": shares}
    options = DatabaseOptions(
        host_cores=1, host_memory=2**30, vcpus=1, container_memory=512 * MB, runtime="vm", pg_bin="/b", pg_version="18", **fields
    )
    made = [container for _, container in options.deploy(["db01", "db02"]).containers()]
    assert [(one.vm_memory_min, one.vm_memory_shares) for one in made] == [(200 * MB, 2.0), (200 * MB, 1.0)]
    assert promises(RequestedGuests(), "cgroup") == (None, {})


@pytest.mark.parametrize(
    ("asked", "runtime", "message"),
    [
        ({"policy": "static"}, "cgroup", "--vm-memory-policy static: this is for virtual machines; add --runtime vm"),
        ({"idle_tax": 0.5, "minimum": Size("1GB")}, "process", "--vm-memory-min, --vm-idle-tax: this is for virtual machines"),
        ({"idle_tax": 0.5}, "vm", "--vm-idle-tax: the memory policy does not move balloons; add --vm-memory-policy virtio-balloon"),
        ({"shares": ("a=2",), "policy": "free-page-reporting"}, "vm", "the memory policy does not move balloons"),
        ({"minimum": Size("0"), "policy": "virtio-balloon"}, "vm", "--vm-memory-min 0: the minimum must be above zero"),
        *(
            ({"shares": (wrong,), "policy": "virtio-balloon"}, "vm", "write NAME=WEIGHT with a weight above zero")
            for wrong in ("a", "=2", "a=", "a=0", "a=-1", "a=nan", "a=inf", "a=1,5", "a=much")
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(asked, runtime, message):
    with pytest.raises(UsageError, match=message):
        promises(RequestedGuests(**asked), runtime)


def test_a_weight_of_nobody_is_refused():
    guests = [Container(name=name) for name in ("db1", "all", "db1")]
    require_known([], guests)
    require_known(["db1"], guests)
    with pytest.raises(UsageError, match="--vm-memory-shares db9: no guest of this run has that name; use one of all, db1"):
        require_known(["db1", "db9"], guests)
