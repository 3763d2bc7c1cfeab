from __future__ import annotations

import pytest

from pgherd.host import block_trace
from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.runner.prepare import storage as module
from pgherd.runner.prepare.storage import prepare_storage
from pgherd.studies.storage import StorageOptions
from pgherd.studies.storage.request import StorageRequest

pytestmark = pytest.mark.usefixtures("own_directories")
NODE = LocalNode()


def prepared(**asked):
    found = prepare_storage(NODE, StorageRequest(**asked), True)
    assert isinstance(found.options, StorageOptions) and found.study == "storage"
    return found


def test_one_server_several_checkpoints_long():
    found = prepared(scale=5)
    assert found.options.single and found.options.repeats == 3 and found.options.every == 30
    (arm,) = found.options.arms
    assert arm.options["settings"]["checkpoint_timeout"] == "30s" and arm.options["seconds"] == 95
    assert not arm.options["read_only"] and arm.options["state"] == "fresh"
    assert any("one device" in choice or "Data on" in choice for choice in found.choices)


def test_memory_is_twice_the_database_where_it_can_be_limited():
    found = prepared(scale=50)
    memory = found.options.arms[0].options["container_memory"]
    if memory is None:
        assert any("memory is not limited" in choice for choice in found.choices)
    else:
        assert memory == pytest.approx(2 * 756 * 2**20, rel=0.1)


def test_a_setting_s_values_are_compared():
    found = prepared(scale=5, compare="checkpoint_completion_target=0.5,0.9")
    assert [arm.name for arm in found.options.arms] == ["0.5", "0.9"] and found.options.baseline == "0.5"
    values = [arm.options["settings"].get("checkpoint_completion_target", "the default") for arm in found.options.arms]
    assert values[0] == "0.5" and values[1] in ("0.9", "the default")
    assert not found.options.side_by_side and found.options.arms[0].options["seconds"] == 65 and found.options.most == 4


def test_beyond_the_memory():
    if prepared(scale=5).surroundings.runtime != "cgroup":
        pytest.skip("memory is limited by control groups, and none can be made here")
    found = prepared(io_bound=3.0, memory="256MB")
    (arm,) = found.options.arms
    assert (arm.options["workload"], arm.options["scale"], arm.options["intent"]) == ("random-block", 768, "io-bound")
    assert found.options.io_bound == 3.0
    refused = block_trace.refused(NODE)
    assert found.surroundings.trace == (not refused) and found.options.untraced == refused


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"compare": "checkpoint_completion_target"}, "write it as SETTING=VALUE,VALUE"),
        ({"compare": "=1,2"}, "write it as SETTING=VALUE,VALUE"),
        ({"compare": "wal_compression=on"}, "one value cannot be compared"),
        ({"compare": "a=1,2", "variant": ("x:a=1",)}, "say the same thing in two ways"),
        ({"checkpoint_every": "10s"}, "between 30 s and a day"),
        ({"io_bound": 2.0, "workload": "orders"}, "random-block, not orders"),
        ({"io_bound": 2.0, "compare": "a=1,2"}, "--io-bound watches one server"),
    ],
)
def test_what_contradicts_itself_is_said(asked, message):
    with pytest.raises(UsageError, match=message):
        prepare_storage(NODE, StorageRequest(**asked), True)


def test_names_of_variants():
    assert module._variants(StorageRequest(compare="max_wal_size=64MB, 1GB")) == ("64MB:max_wal_size=64MB", "1GB:max_wal_size=1GB")
