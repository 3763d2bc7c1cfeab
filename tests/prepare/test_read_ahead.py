import pytest

from pgherd.host.storage import Device
from pgherd.model.host_facts import BlockDevice, HostFacts
from pgherd.prepare import hosts


def said(monkeypatch, ahead, number="254:0", place="/data"):
    known = BlockDevice(name="vda", number="254:0", size=1, read_ahead=ahead)
    facts = HostFacts(hostname="h", kernel="6", cores=1, logical_cpus=1, memory=1, devices=(known,))
    found = {} if number is None else {"/data": Device(number, "vda")}
    monkeypatch.setattr(hosts.storage, "devices_of", lambda node, paths: found)
    return hosts.warn_of_read_ahead(None, facts, place)


def test_a_disk_that_reads_far_ahead_is_warned_of(monkeypatch):
    (warning,) = said(monkeypatch, 8 << 20)
    assert "the databases' device vda reads up to 8 MB ahead (Linux's default is 128 kB)" in warning
    assert "/sys/block/vda/queue/read_ahead_kb" in warning


@pytest.mark.parametrize(
    ("ahead", "number"), [(128 << 10, "254:0"), (1 << 20, "254:0"), (None, "254:0"), (8 << 20, "8:0"), (8 << 20, None)]
)
def test_nothing_is_said_of_the_usual_and_of_what_is_not_seen(monkeypatch, ahead, number):
    assert said(monkeypatch, ahead, number) == []
