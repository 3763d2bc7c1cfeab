import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.analysis.advice import host_advice, server_advice
from pgherd.model.host_facts import HardwareDevice, HostAdviceFacts, ServerFacts

GB = 2**30
KNOBS = ["swappiness", "overcommit_memory", "dirty_background_ratio", "dirty_background_bytes"]
GOOD_HOST = HostAdviceFacts(
    hostname="h",
    virtualisation="KVM",
    memory=64 * GB,
    swap=4 * GB,
    disks=(HardwareDevice(name="vda", driver="virtio_blk", schedulers=("none", "mq-deadline")),),
    cards=(HardwareDevice(name="eth0", driver="virtio_net"),),
    balloon="virtio_balloon",
    knobs={"swappiness": 1, "overcommit_memory": 2, "overcommit_ratio": 80, "dirty_background_bytes": 256 * 2**20},
    transparent_huge_pages="madvise",
    governor="performance",
    clock_source="kvm-clock",
    clock_sources=("kvm-clock", "tsc", "acpi_pm"),
)


def one_host(check, **changes):
    result = [advice for advice in host_advice(GOOD_HOST.model_copy(update=changes)) if advice.check == check]
    assert len(result) == 1, result
    return result[0]


def test_a_host_in_good_practice_has_nothing_to_change_and_one_thing_unseen():
    result = host_advice(GOOD_HOST)
    assert {advice.check for advice in result if advice.outcome != "ok"} == {"thick-provisioned-disks"}, "which no guest can see"
    assert all(advice.fix == "" for advice in result), "no command without a change"


@pytest.mark.parametrize(
    ("check", "changes", "outcome", "text"),
    [
        ("io-scheduler", {"disks": (HardwareDevice(name="sda", schedulers=("mq-deadline", "none")),)}, "change", "none > /sys/block/sda"),
        (
            "io-scheduler",
            {"disks": (HardwareDevice(name="sda", driver="vmw_pvscsi", schedulers=("cfq", "noop")),)},
            "change",
            "echo noop >",
        ),
        ("io-scheduler", {"disks": (HardwareDevice(name="vda", driver="virtio_blk"),)}, "unknown", ""),
        ("io-scheduler", {"disks": ()}, "unknown", ""),
        ("paravirtual-drivers", {"disks": (HardwareDevice(name="sda", driver="storvsc_host"),), "cards": ()}, "ok", ""),
        ("paravirtual-drivers", {"disks": (HardwareDevice(name="sda", driver="ata_piix"),), "cards": ()}, "change", "virtio"),
        ("thick-provisioned-disks", {"virtualisation": None}, "ok", ""),
        ("balloon", {"balloon": ""}, "consider", "balloon device"),
        ("balloon", {"balloon": None}, "unknown", ""),
        ("balloon", {"virtualisation": None, "balloon": ""}, "ok", ""),
        ("swappiness", {"knobs": {"swappiness": 60}}, "consider", "vm.swappiness=1"),
        ("swappiness", {"knobs": {"swappiness": 60}, "swap": 0}, "ok", ""),
        ("swappiness", {"knobs": {}}, "unknown", ""),
        ("vm-overcommit-memory", {"knobs": {"overcommit_memory": 0}}, "consider", "vm.overcommit_memory=2"),
        ("dirty-background-bytes", {"knobs": {"dirty_background_ratio": 10}}, "consider", "vm.dirty_background_bytes"),
        ("dirty-background-bytes", {"knobs": {"dirty_background_ratio": 10}, "memory": 8 * GB}, "ok", ""),
        ("dirty-background-bytes", {"knobs": {"dirty_background_bytes": 0, "dirty_background_ratio": 1}}, "ok", ""),
        ("dirty-background-bytes", {"knobs": {}}, "unknown", ""),
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
def test_host_outcome(check, changes, outcome, text):
    result = one_host(check, **changes)
    assert result.outcome == outcome and text in result.fix, result
    assert bool(result.fix) <= (outcome in ("change", "consider"))


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
    host = GOOD_HOST.model_copy(
        update={"disks": (HardwareDevice(name="sda", driver=disk),), "cards": (HardwareDevice(name="eth0", driver=card),)}
    )
    assert [advice.outcome for advice in host_advice(host) if advice.check == "paravirtual-drivers"] == outcomes


def test_bare_metal_is_not_asked_about_virtual_devices():
    checks = {advice.check for advice in host_advice(GOOD_HOST.model_copy(update={"virtualisation": None}))}
    assert not checks & {"io-scheduler", "paravirtual-drivers"}


@given(
    st.builds(
        HostAdviceFacts,
        virtualisation=st.none() | st.text(max_size=5),
        memory=st.integers(0, 2**50),
        knobs=st.dictionaries(st.sampled_from(KNOBS), st.integers(0, 2**40)),
        disks=st.lists(st.builds(HardwareDevice, name=st.text(max_size=3), driver=st.text(max_size=5)), max_size=3).map(tuple),
        balloon=st.none() | st.text(min_size=1, max_size=3),
        governor=st.none() | st.text(min_size=1, max_size=3),
        clock_source=st.none() | st.text(min_size=1, max_size=3),
        transparent_huge_pages=st.none() | st.text(min_size=1, max_size=3),
    )
)  # fmt: skip
def test_any_host_is_judged(host):
    for advice in host_advice(host):
        assert advice.observed and advice.recommended and advice.rationale and advice.source


GB = 2**30
HOST = HostAdviceFacts(hostname="h", memory=64 * GB)
GOOD_SERVER = ServerFacts(
    dsn="host=h",
    version="18.6",
    major=18,
    settings={
        "checkpoint_completion_target": "0.9",
        "wal_compression": "lz4",
        "data_checksums": "on",
        "huge_pages": "on",
        "fsync": "on",
        "full_page_writes": "on",
        "autovacuum": "on",
        "synchronous_commit": "on",
    },
    bytes_={"shared_buffers": 16 * GB, "max_wal_size": 16 * GB},
    local=True,
    data=("vdb",),
    wal=("vdc",),
    system=("vda",),
    databases={"app": 100 * GB},
    timed=100,
    requested=5,
    wal_records=1000,
    full_pages=500,
    wal_compressions=("pglz", "lz4", "zstd", "on", "off"),
    huge_pages_status="on",
)


def one_server(check, host=HOST, settings=None, **changes):
    if settings is not None:
        changes["settings"] = {name: text for name, text in (GOOD_SERVER.settings | settings).items() if text is not None}
    return {advice.check: advice for advice in server_advice(GOOD_SERVER.model_copy(update=changes), host)}[check]


def test_a_server_in_good_practice_has_nothing_to_change():
    assert {advice.outcome for advice in server_advice(GOOD_SERVER, HOST)} == {"ok"}


def buffers(share):
    return {"bytes_": {"shared_buffers": int(64 * GB * share), "max_wal_size": 16 * GB}}


@pytest.mark.parametrize(
    ("check", "changes", "outcome", "text"),
    [
        ("shared-buffers", buffers(0.25), "ok", ""),
        ("shared-buffers", buffers(0.44), "ok", ""),
        ("shared-buffers", buffers(0.5), "change", "shared_buffers = '16384MB'"),
        ("shared-buffers", buffers(0.56), "ok", ""),
        ("shared-buffers", buffers(0.75), "ok", ""),
        ("shared-buffers", buffers(0.9), "consider", "'49152MB'"),
        ("shared-buffers", buffers(0.002), "consider", "'16384MB'"),
        ("shared-buffers", buffers(0.002) | {"databases": {"app": 2**20}}, "ok", ""),
        ("shared-buffers", buffers(0.5) | {"local": False}, "unknown", ""),
        ("shared-buffers", {"bytes_": {}}, "unknown", ""),
        ("separate-wal-device", {"wal": ("vdb",)}, "consider", "pg_wal"),
        ("separate-wal-device", {"data": ("vda",), "wal": ("vdb",)}, "consider", "move the data directory"),
        ("separate-wal-device", {"wal": ("vda",)}, "consider", "mv pg_wal"),
        ("separate-wal-device", {"local": False}, "unknown", ""),
        ("separate-wal-device", {"data": ()}, "unknown", ""),
        ("dedicated-server", {"databases": {"a": 1, "b": 2}}, "consider", "pg_dump"),
        ("dedicated-server", {"databases": {}}, "ok", ""),
        ("dedicated-server", {"servers_here": 1}, "ok", ""),
        ("dedicated-server", {"servers_here": 3}, "consider", "give each important server a separate container"),
        (
            "dedicated-server",
            {"servers_here": 2, "databases": {"a": 1, "b": 2}},
            "consider",
            "separate server, and give each",
        ),
        ("huge-pages", {"huge_pages_status": "off", "huge_pages_needed": 8400}, "consider", "vm.nr_hugepages=8400"),
        ("huge-pages", {"huge_pages_status": "off"} | buffers(0.01), "ok", ""),
        ("huge-pages", {"huge_pages_status": None}, "ok", ""),
        ("huge-pages", {"huge_pages_status": None, "settings": {"huge_pages": "try"}}, "unknown", ""),
        ("checkpoint-completion-target", {"settings": {"checkpoint_completion_target": "0.5"}}, "change", "'0.9'"),
        ("checkpoint-completion-target", {"settings": {"checkpoint_completion_target": None}}, "unknown", ""),
        ("max-wal-size", {"requested": 80}, "consider", "max_wal_size = '65536MB'"),
        ("max-wal-size", {"timed": 1, "requested": 3}, "unknown", ""),
        ("max-wal-size", {"timed": None}, "unknown", ""),
        ("wal-compression", {"settings": {"wal_compression": "off"}}, "consider", "'lz4'"),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "wal_compressions": ("pglz", "zstd")}, "consider", "'zstd'"),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "wal_compressions": ("pglz", "on", "off")}, "consider", "'on'"),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "wal_compressions": ()}, "consider", "'on'"),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "full_pages": 10}, "ok", ""),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "full_pages": None}, "unknown", ""),
        ("data-checksums", {"settings": {"data_checksums": "off"}}, "consider", "pg_checksums"),
        ("fsync", {"settings": {"fsync": "off"}}, "change", "fsync = 'on'"),
        ("full-page-writes", {"settings": {"full_page_writes": "off"}}, "change", "full_page_writes"),
        ("autovacuum", {"settings": {"autovacuum": "off"}}, "change", "autovacuum"),
        ("synchronous-commit", {"settings": {"synchronous_commit": "off"}}, "consider", "synchronous_commit"),
        ("synchronous-commit", {"settings": {"synchronous_commit": "remote_apply"}}, "ok", ""),
    ],
)
def test_server_outcome(check, changes, outcome, text):
    result = one_server(check, **changes)
    assert result.outcome == outcome and text in result.fix, result


def test_the_band_near_half_is_e17s():
    outcomes = {share: one_server("shared-buffers", **buffers(share / 100)).outcome for share in range(20, 80)}
    assert [share for share, outcome in outcomes.items() if outcome == "change"] == list(range(45, 56))


def test_nothing_seen_is_unknown_everywhere_but_for_what_needs_nothing():
    blind = ServerFacts(dsn="host=h", version="15.1", major=15)
    assert {advice.outcome for advice in server_advice(blind, HOST) if advice.check != "dedicated-server"} == {"unknown"}
