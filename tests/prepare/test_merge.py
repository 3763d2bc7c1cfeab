import pytest

from pgherd.model.deployment import VmMemoryPolicy, Volume
from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.model.run import RunEnvironment, Swap
from pgherd.postgres.settings import SettingRow
from pgherd.prepare import merge
from pgherd.prepare.prepared_study import VolumeContents
from pgherd.studies.density.options import DensityOptions


def test_what_goes_for_all_is_said_once_and_the_rest_with_names():
    sentences = {"a": ("Common.", "Of two.", "Common."), "b": ("Common.", "Of two."), "c": ("Own.", "Common.")}
    assert merge.choices(sentences) == ("Common.", "a, b: Of two.", "c: Own.")


def test_settings_that_differ_come_first_with_every_value():
    def row(name, value):
        return SettingRow(name, value, "0", "why")

    result = merge.settings({"a": [row("x", "1"), row("y", "1")], "b": [row("x", "1"), row("y", "2")], "c": [row("x", "1")]})
    assert [(item.name, item.value) for item in result] == [("y", "a: 1; b: 2; c: the default"), ("x", "1")]


def test_changes_once():
    assert merge.changes([("a", "b"), ("b", "c")]) == ("a", "b", "c")


def test_a_volume_holds_what_the_largest_variant_puts_there():
    fast, other = Volume(name="fast", path="/fast"), Volume(name="other", path="/other")
    small, large = VolumeContents(fast, "servers' WAL", 1), VolumeContents(fast, "servers' WAL", 3)
    assert merge.holds([(small,), (large, VolumeContents(other, "servers' data", 2)), ()]) == (
        large,
        VolumeContents(other, "servers' data", 2),
    )
    assert merge.holds([(large,), (small,)]) == (large,)


BASE = RunEnvironment(runtime="vm", cores=2, memory=100, track=("process=sshd",))


def test_surroundings_hold_the_largest_budget_and_open_control_groups_first():
    guests = VmMemoryPolicy(policy="virtio-balloon")
    other = BASE.model_copy(update={"runtime": "cgroup", "memory": 300, "vm_memory_policy": guests})
    result = merge.environment({"a": BASE, "b": other})
    assert (result.runtime, result.cores, result.memory, result.track) == ("cgroup", 2, 300, ("process=sshd",))
    assert result.vm_memory_policy == guests, "though the baseline has no guests"
    assert merge.environment({"a": BASE}) == BASE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trace_io": True}, "block requests .--trace-io. is the same for a whole run, but it is off in 'a', on in 'c'"),
        ({"run_as": "postgres"}, "but it is the host's default in 'a', postgres in 'c'"),
        ({"track": ()}, "but it is process=sshd in 'a', none in 'c'"),
        ({"swap": Swap(kind="zram", size=2**30)}, "the run's swap .--swap. is .* the host's default in 'a', zram of 1 GB in 'c'"),
    ],
)
def test_what_a_run_has_once_cannot_differ(change, message):
    """All but the first would be measured in surroundings that they did not ask for."""
    with pytest.raises(UsageError, match=message):
        merge.environment({"a": BASE, "b": BASE, "c": BASE.model_copy(update=change)})


def test_variants_of_the_same_scripts_are_logged_alike():
    """The share follows from a measurement, and noise would have one variant pay for more lines than the other."""

    def one(sampling, source="a.sql", rate=None):
        common = {"host_cores": 2, "host_memory": 2**30, "vcpus": 1, "pg_bin": "/pg", "pg_version": "18.6", "databases": (1,)}
        return DensityOptions(**common, scripts=(Script(source=source),), sampling=sampling, rate=rate)

    inputs = {"a": one(1.0), "b": one(0.2), "other": one(0.5, source="b.sql"), "slow": one(0.5, rate=1000.0)}
    result = merge.logged_alike(inputs)
    assert {name: options.sampling for name, options in result.items()} == {"a": 0.2, "b": 0.2, "other": 0.5, "slow": 0.5}
    assert result["b"] == inputs["b"]
    assert merge.logged_alike({"a": BASE, "b": BASE}) == {"a": BASE, "b": BASE}, "other studies log nothing"
