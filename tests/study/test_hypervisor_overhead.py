import pytest

from pgherd.study import observation


def guest(used: float = 2.5, vcpus: float = 2.0, emulated: float = 0.0) -> dict[str, float]:
    return {"qemu.cpu": used, "qemu.cpu_guest": vcpus, "emulated": emulated}


def test_what_qemu_uses_beside_its_vcpus_is_its_own() -> None:
    assert observation.hypervisor_cpu({"guest:a": guest(), "guest:b": guest(1.0, 0.75), "host": {}}) == pytest.approx(0.75)
    assert observation.hypervisor_cpu({"guest:a": guest(1.0, 1.01)}) == 0, "two counters that disagree by a tick"


def test_nothing_is_said_of_emulated_or_unseen_ones() -> None:
    assert observation.hypervisor_cpu({"container:a": {}}) is None
    assert observation.hypervisor_cpu({"guest:a": guest(), "guest:b": guest(emulated=1.0)}) is None
    assert observation.hypervisor_cpu({"guest:a": {"qemu.cpu": 1.0, "emulated": 0.0}}) is None
    assert observation.hypervisor_cpu({"guest:a": {"qemu.cpu": 1.0, "qemu.cpu_guest": 1.0}}) is None
