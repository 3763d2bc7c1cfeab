from pgherd.host import advice_facts
from pgherd.model.host_facts import HostFacts
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed

FACTS = HostFacts(hostname="h", kernel="6", cores=1, logical_cpus=1, memory=2**30, virtualisation="KVM", clock_source="tsc")


def guest(fake):
    """A node whose links to drivers lead where those of virtio do."""

    class Guest(fake.FakeNode):
        def run(self, command, timeout=60.0):
            driver = "virtio_blk" if "/block/" in command.argv[-1] else "virtio_net"
            return Completed(0, f"/sys/bus/virtio/drivers/{driver}\n", "")

    return Guest


def test_what_a_guest_shows_is_read(fake, tmp_path):
    node = guest(fake)(
        tmp_path,
        {
            "/sys/block/vda/device/driver/x": "",
            "/sys/block/vda/queue/scheduler": "mq-deadline [none] bfq\n",
            "/sys/block/loop0/queue/scheduler": "[none]\n",
            "/sys/class/net/eth0/device/driver/x": "",
            "/sys/class/net/lo/x": "",
            "/sys/bus/virtio/drivers/virtio_balloon/bind": "",
            "/sys/bus/virtio/drivers/virtio_balloon/virtio0/uevent": "",
            "/proc/sys/vm/swappiness": "60\n",
            "/proc/sys/vm/dirty_background_bytes": "0\n",
            "/sys/devices/system/clocksource/clocksource0/available_clocksource": "tsc hpet \n",
        },
    )
    found = advice_facts.read_host_facts(node, FACTS)
    assert [(disk.name, disk.driver, disk.schedulers) for disk in found.disks] == [("vda", "virtio_blk", ("none", "mq-deadline", "bfq"))]
    assert [(card.name, card.driver) for card in found.cards] == [("eth0", "virtio_net")]
    assert found.balloon == "virtio_balloon" and found.knobs == {"swappiness": 60, "dirty_background_bytes": 0}
    assert found.clock_sources == ("tsc", "hpet")


def test_a_driver_without_a_device_is_no_balloon(fake, tmp_path):
    node = fake.FakeNode(tmp_path, {"/sys/bus/virtio/drivers/virtio_balloon/bind": "", "/sys/bus/virtio/drivers/virtio_balloon/uevent": ""})
    assert advice_facts.read_host_facts(node, FACTS).balloon == ""


def test_nothing_to_be_seen_is_no_error(fake, tmp_path):
    found = advice_facts.read_host_facts(fake.FakeNode(tmp_path, {}), FACTS)
    assert found.disks == () and found.balloon is None and found.knobs == {}


def test_this_machine_is_read_without_complaint():
    found = advice_facts.read_host_facts(LocalNode(), FACTS)
    assert "swappiness" in found.knobs
    assert isinstance(advice_facts.disks_below(LocalNode(), "/"), tuple)
    assert advice_facts.disks_below(LocalNode(), "/nonexistent") == ()
