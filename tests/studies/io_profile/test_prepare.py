from __future__ import annotations

import pytest

from pgherd.host import block_trace
from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.studies.io_profile import prepare as module
from pgherd.studies.io_profile.options import IoProfileOptions, IoProfileRequest
from pgherd.studies.io_profile.prepare import prepare
from pgherd.study.comparison.options import Variant

pytestmark = pytest.mark.usefixtures("own_directories")
NODE = LocalNode()


def prepared(**requested):
    prepared_study = prepare(NODE, IoProfileRequest(**requested), True)
    assert isinstance(prepared_study.options, IoProfileOptions) and prepared_study.study == "io-profile"
    return prepared_study


def test_one_server_several_checkpoints_long():
    prepared_study = prepared(scale=5)
    assert prepared_study.options.single and prepared_study.options.repeats == 3 and prepared_study.options.checkpoint_timeout == 30
    (variant,) = prepared_study.options.variants
    assert variant.options["settings"]["checkpoint_timeout"] == "30s" and variant.options["duration"] == 95
    assert not variant.options["read_only"] and variant.options["start_state"] == "fresh"
    assert any("one device" in choice or "Data on" in choice for choice in prepared_study.defaults_chosen)


def test_memory_is_twice_the_database_where_it_can_be_limited():
    prepared_study = prepared(scale=50)
    memory = prepared_study.options.variants[0].options["container_memory"]
    if memory is None:
        assert any("memory is not limited" in choice for choice in prepared_study.defaults_chosen)
    else:
        assert memory == pytest.approx(2 * 756 * 2**20, rel=0.1)


def test_a_setting_s_values_are_compared():
    prepared_study = prepared(scale=5, compare_setting="checkpoint_completion_target=0.5,0.9")
    assert [variant.name for variant in prepared_study.options.variants] == ["0.5", "0.9"] and prepared_study.options.baseline == "0.5"
    values = [variant.options["settings"].get("checkpoint_completion_target", "the default") for variant in prepared_study.options.variants]
    assert values[0] == "0.5" and values[1] in ("0.9", "the default")
    assert (
        not prepared_study.options.in_slices
        and prepared_study.options.variants[0].options["duration"] == 65
        and prepared_study.options.max_blocks == 6
    )


def test_a_comparison_keeps_the_start_state_of_the_user():
    states = [
        {
            variant.options["start_state"]
            for variant in prepared(scale=5, compare_setting="full_page_writes=on,off", **requested).options.variants
        }
        for requested in ({}, {"start_state": "restarted"})
    ]
    assert states == [{"fresh"}, {"restarted"}]


@pytest.mark.parametrize(("budget", "fixed"), [(None, False), ("2m", True)])
def test_a_time_budget_is_that_of_the_user(budget, fixed):
    options = prepared(scale=5, time_budget=budget).options
    assert options.fixed_budget is fixed and options.time_budget == (120 if fixed else 1.5 * 3 * (95 + 5 + 6) + 30)


def test_values_with_commas_are_compared():
    prepared_study = prepared(scale=5, compare_setting='search_path="""$user"", public",public')
    variants = prepared_study.options.variants
    assert [variant.name for variant in variants] == ["value-1", "value-2"]
    assert variants[0].options["settings"]["search_path"] == '"$user", public'
    assert variants[1].options["settings"]["search_path"] == "public"


@pytest.mark.parametrize("text", ["", "jit", "jit=", "=on,off", "jit=on,", 'jit="on,off', 'jit="on"off,on'])
def test_values_of_a_setting_in_another_form_are_refused(text):
    with pytest.raises(UsageError, match="write it as SETTING=VALUE,VALUE"):
        prepared(scale=5, compare_setting=text)


def test_where_data_and_wal_lie_is_told_of_each_variant(tmp_path):
    (tmp_path / "wal").mkdir()
    loop = {"volumes": [{"name": "on-wal", "kind": "loop", "size": 2 * 2**30}], "roles": {"wal": "on-wal"}}
    adjacent = {"volumes": [{"name": "on-wal", "path": str(tmp_path / "wal")}], "roles": {"wal": "on-wal"}}
    changes = {"here": {}, "there": loop, "beside": adjacent, "off": {"settings": {"full_page_writes": "off"}}}
    plain = prepared(scale=1).options.variants[0].options
    variants = tuple(Variant(name=name, study="density", options={**plain, **change}) for name, change in changes.items())
    together, apart = module._devices(NODE, IoProfileOptions(variants=variants, baseline="here", time_budget=1))
    assert together.startswith("here, beside, off: Warning: data and WAL are on one device")
    assert apart.startswith("there: Data on ") and apart.endswith("WAL on loop device 'on-wal'.")


def test_loop_devices_are_told_by_name_and_wal_beside_a_tablespace_is_warned_of():
    volumes = [{"name": name, "kind": "loop", "size": 2**30} for name in ("w", "s1", "s2")]
    spread = {"one": ["s1"], "two": ["s1", "s2"], "shared": ["s1", "w"]}
    plain = prepared(scale=1).options.variants[0].options
    common = {**plain, "volumes": volumes, "roles": {"wal": "w"}}
    variants = tuple(Variant(name=name, study="density", options={**common, "tablespaces": spaces}) for name, spaces in spread.items())
    first, two, shared = module._devices(NODE, IoProfileOptions(variants=variants, baseline="one", time_budget=1))
    assert first.startswith("one: Data on ") and first.endswith("WAL on loop device 'w'; tables and indexes on loop device 's1'.")
    assert two.startswith("two: Data on ") and two.endswith("tables and indexes on loop device 's1', loop device 's2'.")
    assert shared.startswith("shared: Warning: WAL and a tablespace are on one device (loop device 'w'; data on ")
    assert "; tables and indexes on loop device 's1', loop device 'w'), so that their I/O cannot be separated" in shared


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({}, "2.2 checkpoints (max_wal_size is large enough)"),
        ({"set": ("max_wal_size=64MB",)}, "2.2 checkpoints (more if WAL reaches max_wal_size)"),
        ({"compare_setting": "max_wal_size=64MB,1GB"}, "2.2 checkpoints (more if WAL reaches max_wal_size)"),
        ({"compare_setting": "checkpoint_timeout=30s,60s"}, None),
    ],
)
def test_how_many_checkpoints_a_trial_holds_is_told(requested, message):
    prepared_study = prepared(**{"scale": 1, "compare_setting": "full_page_writes=on,off", **requested})
    reported = [choice for choice in prepared_study.defaults_chosen if choice.startswith("checkpoint_timeout 30 s: ")]
    assert [choice.endswith(f"{message}.") for choice in reported] == ([] if message is None else [True]), reported


def test_beyond_the_memory():
    if prepared(scale=5).environment.runtime != "cgroup":
        pytest.skip("memory is limited by control groups, and none can be made here")
    prepared_study = prepared(memory_ratio=3.0, memory="256MB")
    (variant,) = prepared_study.options.variants
    assert (variant.options["workload"], variant.options["scale"], variant.options["bound_by"]) == ("random-block", 768, "io")
    assert prepared_study.options.memory_ratio == 3.0
    variants = prepared(memory_ratio=3.0, memory="256MB", partitions=2, compare_setting="full_page_writes=on,off").options.variants
    assert {item.options["settings"]["shared_buffers"] for item in variants} == {variant.options["settings"]["shared_buffers"]}
    assert {(element.options["partitions"], element.options["scale"]) for element in variants} == {(2, 768)}
    refused = block_trace.refused(NODE)
    assert prepared_study.environment.trace_io == (not refused) and prepared_study.options.trace_unavailable == refused


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"compare_setting": "checkpoint_completion_target"}, "write it as SETTING=VALUE,VALUE"),
        ({"compare_setting": "=1,2"}, "write it as SETTING=VALUE,VALUE"),
        ({"compare_setting": "wal_compression=on"}, "a comparison needs two or more values"),
        ({"compare_setting": "a=1,2", "variant": ("x:a=1",)}, "both define variants"),
        ({"checkpoint_timeout": "10s"}, "is 30 s to 1 day"),
        ({"memory_ratio": 2.0, "workload": "orders"}, "random-block, but --workload is orders"),
        ({"compare_setting": "jit=on,off", "repeats": 5}, "^--repeats 5: a comparison counts blocks, not repeats; give --max-blocks"),
        ({"variant": ("x:jit=off",), "repeats": 5}, "^--repeats 5: a comparison counts blocks"),
        ({"metric": "p95"}, "^--metric applies only to a comparison; leave it out, or add --compare-setting or --variant"),
        ({"max_blocks": 6}, "^--max-blocks applies only to a comparison"),
        ({"precision": "1%"}, "^--precision applies only to a comparison"),
        ({"equivalence_margin": "1%"}, "^--equivalence-margin applies only to a comparison"),
    ],
)
def test_what_contradicts_itself_is_said(requested, message):
    with pytest.raises(UsageError, match=message):
        prepare(NODE, IoProfileRequest(**requested), True)


EXISTING = {"dsn": "host=/nonexistent dbname=app"}


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (EXISTING, "is read only by default, and --workload tpcb-like writes; use --workload select-only, or add --allow-writes"),
        (EXISTING | {"memory_ratio": 2.0}, "^--memory-ratio does not go with --dsn: .*neither limits its memory nor creates tables"),
        (EXISTING | {"compare_setting": "work_mem=1MB,2MB"}, "^--compare-setting does not go with --dsn: .*does not change its settings"),
        (EXISTING | {"checkpoint_timeout": "30s"}, "^--checkpoint-timeout does not go with --dsn: .*does not change its settings"),
        (EXISTING | {"checkpoints": 2}, "^--checkpoints does not go with --dsn: .*give --duration instead"),
        ({"servers": "fleet.yaml", "checkpoints": 2}, "^--checkpoints does not go with --servers: "),
        (EXISTING | {"memory": "1GB"}, "^--memory does not go with --dsn: .*its limits are configured where it runs"),
        (EXISTING | {"wal_volume": "/tmp"}, "^--wal-volume does not go with --dsn: .*does not move its files"),
        (EXISTING | {"set": ("work_mem=1MB",)}, "^--set does not go with --dsn: .*does not change its settings"),
        (EXISTING | {"start_state": "fresh"}, "^--start-state fresh does not go with --dsn"),
        (EXISTING | {"variant": ("a:work_mem=1MB", "b:work_mem=2MB")}, "^variant 'a': --set does not go with --dsn"),
        ({"variant": ("a", "b:dsn=host=x")}, "^variant 'b' names an existing server, but pgherd starts that of another variant"),
        ({"variant": ("b:dsn=host=x",)}, "variant b names an existing server, and there is no other"),
        ({"variant": ("a:dsn=host=x", "b:dsn=host=y"), "checkpoints": 2}, "^--checkpoints does not go with --dsn"),
    ],
)
def test_nothing_of_an_existing_server_is_set(requested, message):
    with pytest.raises(UsageError, match=message):
        prepare(NODE, IoProfileRequest(**requested), True)


def test_names_of_variants():
    assert module._variants(IoProfileRequest(compare_setting="max_wal_size=64MB, 1GB")) == (
        '64MB:max_wal_size="64MB"',
        '1GB:max_wal_size="1GB"',
    )


@pytest.mark.parametrize(("variants", "blocks"), [(1, 6), (2, 6), (3, 7), (4, 7), (5, 8)])
def test_a_comparison_has_as_many_blocks_as_it_takes_to_decide(variants, blocks):
    """By the rank test's own count: the rarest pattern of signs has a probability of 2 · 2⁻ⁿ."""
    share = 0.05 / max(1, variants - 1)
    assert module._min_blocks(variants) == blocks and 2 * 2.0**-blocks <= share < 2 * 2.0 ** -(blocks - 1)
