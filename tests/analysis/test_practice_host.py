import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.practice_host import host_advice
from pgherd.model.practice import HostPractice, Part

GB = 2**30
KNOBS = ["swappiness", "overcommit_memory", "dirty_background_ratio", "dirty_background_bytes"]
GOOD = HostPractice(
    hostname="h",
    virtualisation="KVM",
    memory=64 * GB,
    swap=4 * GB,
    disks=(Part(name="vda", driver="virtio_blk", schedulers=("none", "mq-deadline")),),
    cards=(Part(name="eth0", driver="virtio_net"),),
    balloon="virtio_balloon",
    knobs={"swappiness": 1, "overcommit_memory": 2, "overcommit_ratio": 80, "dirty_background_bytes": 256 * 2**20},
    transparent_huge_pages="madvise",
    governor="performance",
    clock_source="kvm-clock",
    clock_sources=("kvm-clock", "tsc", "acpi_pm"),
)


def one(check, **changes):
    found = [advice for advice in host_advice(GOOD.model_copy(update=changes)) if advice.check == check]
    assert len(found) == 1, found
    return found[0]


def test_a_host_in_good_practice_has_nothing_to_change_and_one_thing_unseen():
    found = host_advice(GOOD)
    assert {advice.check for advice in found if advice.outcome != "ok"} == {"thick-disks"}, "which no guest can see"
    assert all(advice.command == "" for advice in found), "no command where nothing is to be changed"


@pytest.mark.parametrize(
    ("check", "changes", "outcome", "words"),
    [
        ("io-scheduler", {"disks": (Part(name="sda", schedulers=("mq-deadline", "none")),)}, "change", "none > /sys/block/sda"),
        ("io-scheduler", {"disks": (Part(name="sda", driver="vmw_pvscsi", schedulers=("cfq", "noop")),)}, "change", "echo noop >"),
        ("io-scheduler", {"disks": (Part(name="vda", driver="virtio_blk"),)}, "unknown", ""),
        ("io-scheduler", {"disks": ()}, "unknown", ""),
        ("paravirtual-driver", {"disks": (Part(name="sda", driver="storvsc_host"),), "cards": ()}, "ok", ""),
        ("paravirtual-driver", {"disks": (Part(name="sda", driver="ata_piix"),), "cards": ()}, "change", "virtio"),
        ("thick-disks", {"virtualisation": None}, "ok", ""),
        ("balloon", {"balloon": ""}, "consider", "balloon device"),
        ("balloon", {"balloon": None}, "unknown", ""),
        ("balloon", {"virtualisation": None, "balloon": ""}, "ok", ""),
        ("swappiness", {"knobs": {"swappiness": 60}}, "consider", "vm.swappiness=1"),
        ("swappiness", {"knobs": {"swappiness": 60}, "swap": 0}, "ok", ""),
        ("swappiness", {"knobs": {}}, "unknown", ""),
        ("overcommit", {"knobs": {"overcommit_memory": 0}}, "consider", "vm.overcommit_memory=2"),
        ("dirty-pages", {"knobs": {"dirty_background_ratio": 10}}, "consider", "vm.dirty_background_bytes"),
        ("dirty-pages", {"knobs": {"dirty_background_ratio": 10}, "memory": 8 * GB}, "ok", ""),
        ("dirty-pages", {"knobs": {"dirty_background_bytes": 0, "dirty_background_ratio": 1}}, "ok", ""),
        ("dirty-pages", {"knobs": {}}, "unknown", ""),
        ("transparent-huge-pages", {"transparent_huge_pages": "always"}, "consider", "madvise"),
        ("transparent-huge-pages", {"transparent_huge_pages": "never"}, "ok", ""),
        ("transparent-huge-pages", {"transparent_huge_pages": None}, "unknown", ""),
        ("governor", {"governor": "powersave"}, "consider", "performance"),
        ("governor", {"governor": None}, "unknown", ""),
        ("clock-source", {"clock_source": "acpi_pm"}, "change", "echo tsc >"),
        ("clock-source", {"clock_source": "hpet", "clock_sources": ("hpet",)}, "consider", ""),
        ("clock-source", {"clock_source": None}, "unknown", ""),
    ],
)  # fmt: skip
def test_what_was_seen_decides(check, changes, outcome, words):
    found = one(check, **changes)
    assert found.outcome == outcome and words in found.command, found
    assert bool(found.command) <= (outcome in ("change", "consider"))


@pytest.mark.parametrize(
    ("disk", "card", "outcomes"),
    [
        ("virtio_blk", "vmxnet3", ["ok", "ok"]),
        ("ata_piix", "e1000", ["change", "change"]),
        ("nvme", "mlx5_core", ["ok", "consider"]),
        ("", "", ["unknown", "unknown"]),
    ],
)
def test_emulated_devices_are_told_from_paravirtual_ones(disk, card, outcomes):
    host = GOOD.model_copy(update={"disks": (Part(name="sda", driver=disk),), "cards": (Part(name="eth0", driver=card),)})
    assert [advice.outcome for advice in host_advice(host) if advice.check == "paravirtual-driver"] == outcomes


def test_bare_metal_is_not_asked_about_virtual_devices():
    checks = {advice.check for advice in host_advice(GOOD.model_copy(update={"virtualisation": None}))}
    assert not checks & {"io-scheduler", "paravirtual-driver"}


@given(
    st.builds(
        HostPractice,
        virtualisation=st.none() | st.text(max_size=5),
        memory=st.integers(0, 2**50),
        knobs=st.dictionaries(st.sampled_from(KNOBS), st.integers(0, 2**40)),
        disks=st.lists(st.builds(Part, name=st.text(max_size=3), driver=st.text(max_size=5)), max_size=3).map(tuple),
        balloon=st.none() | st.text(min_size=1, max_size=3),
        governor=st.none() | st.text(min_size=1, max_size=3),
        clock_source=st.none() | st.text(min_size=1, max_size=3),
        transparent_huge_pages=st.none() | st.text(min_size=1, max_size=3),
    )
)  # fmt: skip
def test_any_host_is_judged(host):
    for advice in host_advice(host):
        assert advice.found and advice.wanted and advice.why and advice.source
