import pytest

from pgherd.analysis.practice_server import server_advice
from pgherd.model.practice import HostPractice, ServerPractice

GB = 2**30
HOST = HostPractice(hostname="h", memory=64 * GB)
GOOD = ServerPractice(
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


def one(check, host=HOST, settings=None, **changes):
    if settings is not None:
        changes["settings"] = {name: text for name, text in (GOOD.settings | settings).items() if text is not None}
    return {advice.check: advice for advice in server_advice(GOOD.model_copy(update=changes), host)}[check]


def test_a_server_in_good_practice_has_nothing_to_change():
    assert {advice.outcome for advice in server_advice(GOOD, HOST)} == {"ok"}


def buffers(share):
    return {"bytes_": {"shared_buffers": int(64 * GB * share), "max_wal_size": 16 * GB}}


@pytest.mark.parametrize(
    ("check", "changes", "outcome", "words"),
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
        ("devices-apart", {"wal": ("vdb",)}, "consider", "pg_wal"),
        ("devices-apart", {"data": ("vda",), "wal": ("vdb",)}, "consider", "move the data directory"),
        ("devices-apart", {"wal": ("vda",)}, "consider", "mv pg_wal"),
        ("devices-apart", {"local": False}, "unknown", ""),
        ("devices-apart", {"data": ()}, "unknown", ""),
        ("dedicated-server", {"databases": {"a": 1, "b": 2}}, "consider", "pg_dump"),
        ("dedicated-server", {"databases": {}}, "ok", ""),
        ("dedicated-server", {"servers_here": 1}, "ok", ""),
        ("dedicated-server", {"servers_here": 3}, "consider", "give each server that matters a container"),
        ("dedicated-server", {"servers_here": 2, "databases": {"a": 1, "b": 2}}, "consider", "of its own, and give each server"),
        ("huge-pages", {"huge_pages_status": "off", "huge_pages_needed": 8400}, "consider", "vm.nr_hugepages=8400"),
        ("huge-pages", {"huge_pages_status": "off"} | buffers(0.01), "ok", ""),
        ("huge-pages", {"huge_pages_status": None}, "ok", ""),
        ("huge-pages", {"huge_pages_status": None, "settings": {"huge_pages": "try"}}, "unknown", ""),
        ("checkpoint-spread", {"settings": {"checkpoint_completion_target": "0.5"}}, "change", "'0.9'"),
        ("checkpoint-spread", {"settings": {"checkpoint_completion_target": None}}, "unknown", ""),
        ("max-wal-size", {"requested": 80}, "consider", "max_wal_size = '65536MB'"),
        ("max-wal-size", {"timed": 1, "requested": 3}, "unknown", ""),
        ("max-wal-size", {"timed": None}, "unknown", ""),
        ("wal-compression", {"settings": {"wal_compression": "off"}}, "consider", "'lz4'"),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "wal_compressions": ("pglz", "zstd")}, "consider", "'zstd'"),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "wal_compressions": ("pglz", "on", "off")}, "consider", "'on'"),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "wal_compressions": ()}, "consider", "'on'"),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "full_pages": 10}, "ok", ""),
        ("wal-compression", {"settings": {"wal_compression": "off"}, "full_pages": None}, "unknown", ""),
        ("checksums", {"settings": {"data_checksums": "off"}}, "consider", "pg_checksums"),
        ("fsync", {"settings": {"fsync": "off"}}, "change", "fsync = 'on'"),
        ("full-page-writes", {"settings": {"full_page_writes": "off"}}, "change", "full_page_writes"),
        ("autovacuum", {"settings": {"autovacuum": "off"}}, "change", "autovacuum"),
        ("synchronous-commit", {"settings": {"synchronous_commit": "off"}}, "consider", "synchronous_commit"),
        ("synchronous-commit", {"settings": {"synchronous_commit": "remote_apply"}}, "ok", ""),
    ],
)
def test_what_was_seen_decides(check, changes, outcome, words):
    found = one(check, **changes)
    assert found.outcome == outcome and words in found.command, found


def test_the_band_near_half_is_e17s():
    outcomes = {share: one("shared-buffers", **buffers(share / 100)).outcome for share in range(20, 80)}
    assert [share for share, outcome in outcomes.items() if outcome == "change"] == list(range(45, 56))


def test_nothing_seen_is_unknown_everywhere_but_for_what_needs_nothing():
    blind = ServerPractice(dsn="host=h", version="15.1", major=15)
    assert {advice.outcome for advice in server_advice(blind, HOST) if advice.check != "dedicated-server"} == {"unknown"}
