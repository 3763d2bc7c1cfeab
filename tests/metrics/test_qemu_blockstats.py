import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.metrics.diskstats import SAMPLER as DISKSTATS
from pgherd.metrics.qemu_blockstats import SAMPLER
from pgherd.metrics.sampler import SamplingView, metric
from pgherd.node.protocol import SampleSource

SOURCE = SampleSource("qemu_blockstats", "guest:a", "file", "a")
CAPTURED = Path(__file__).parent.parent / "fixtures" / "qemu" / "query-blockstats.json"


def read() -> dict[str, dict[str, float]]:
    return dict(SAMPLER.parse(CAPTURED.read_text(), SOURCE))


def test_every_drive_of_a_real_guest_has_a_name_that_says_which() -> None:
    assert set(read()) == {f"guest-drive:a/{name}" for name in ("data", "wal", "scsi", "nvme", "cd0", "ide")}


def test_reads_what_a_real_guest_did() -> None:
    raw = {one["device"] or one["qdev"]: one["stats"] for one in json.loads(CAPTURED.read_text())}
    data = read()["guest-drive:a/data"]
    assert data["writes"] == raw["data"]["wr_operations"] > 0
    assert data["write_bytes"] == raw["data"]["wr_bytes"] >= 8 * 2**20
    assert data["flushes"] == raw["data"]["flush_operations"] > 0
    assert data["write_time"] == pytest.approx((raw["data"]["wr_total_time_ns"] + raw["data"]["flush_total_time_ns"]) / 1e9)
    assert read()["guest-drive:a/cd0"]["writes"] == 0


def test_both_views_of_a_real_guest_agree() -> None:
    """vda is the drive 'data', vdb 'wal' (virtio): what its kernel counted is what QEMU counted, but for what the firmware read."""
    inside = dict(DISKSTATS.parse((CAPTURED.parent / "guest-diskstats").read_text(), SampleSource("diskstats", "disk", "file", "/x")))
    for within, below in (("vda", "data"), ("vdb", "wal")):
        seen, counted = inside[f"disk:{within}"], read()[f"guest-drive:a/{below}"]
        assert [counted[name] for name in ("writes", "write_bytes", "flushes", "read_bytes")] == [
            seen[name] for name in ("writes", "write_bytes", "flushes", "read_bytes")
        ] or counted["read_bytes"] - seen["read_bytes"] == 512
        assert counted["write_time"] <= seen["write_time"], "the guest waits for the hypervisor too"


def test_the_names_mean_what_they_mean_inside_the_guest() -> None:
    shared = {one.name for one in SAMPLER.metrics} & {one.name for one in DISKSTATS.metrics}
    assert shared == {"reads", "writes", "read_bytes", "write_bytes", "read_time", "write_time", "discards", "flushes", "flush_time"}
    assert metric("write_time").unit == "s"


def test_a_node_without_a_device_is_left_out_and_an_old_qemu_understood() -> None:
    stats = {"wr_total_time_ns": 2_000_000_000, "rd_operations": 1}
    drives = [
        {"node-name": "backing", "stats": stats},
        {"qdev": "/machine/peripheral/wal/virtio-backend", "stats": stats, "device": ""},
        {"qdev": "/machine/peripheral-anon/device[3]", "node-name": "n3", "stats": stats},
    ]
    found = dict(SAMPLER.parse(json.dumps(drives), SOURCE))
    assert list(found) == ["guest-drive:a/wal", "guest-drive:a/n3"]
    assert found["guest-drive:a/wal"] == {"reads": 1, "write_time": 2.0}
    assert SAMPLER.sources(SamplingView()) == []


@pytest.mark.parametrize(
    "raw", ["", "{}", "7", "[7]", '[{"device": "a"}]', '[{"device": "a", "stats": {}}]', '[{"device": "a", "stats": []}]']
)
def test_refuses_other_text(raw) -> None:
    with pytest.raises(ValueError):
        list(SAMPLER.parse(raw, SOURCE))


@given(
    st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_any_json_is_a_reading_or_a_value_error(document) -> None:
    with contextlib.suppress(ValueError):
        list(SAMPLER.parse(json.dumps(document), SOURCE))
