from functools import partial

from pgherd.runner.hosts.merging import qualified
from pgherd.store.merged_samples import HostSamples, merge_samples
from pgherd.store.samples import read_samples, write_samples


def renamed(entity, host):
    return qualified(entity, host)


def host(tmp_path, name, ahead, rows):
    directory = tmp_path / name
    directory.mkdir()
    write_samples(directory, rows)
    return HostSamples(directory, ahead, partial(renamed, host=name))


def test_rows_of_all_hosts_stand_on_one_clock_under_their_own_names(tmp_path):
    a = host(tmp_path, "a", 100.0, [(101.0, "cpu", "host", {"cpu.user": 1.0}), (102.0, "cpu", "host", {"cpu.user": 2.0})])
    b = host(
        tmp_path,
        "b",
        -50.0,
        [
            (-48.5, "cpu", "host", {"cpu.user": 5.0, "cpu.irq": 0.5}),
            (-48.5, "diskstats", "disk:sda", {"reads": 7.0}),
            (-48.5, "diskstats", "disk:sdb", {"reads": 8.0}),
            (-48.0, "cgroup_cpu", "container:db2", {"cpu.usage": 3.0}),
        ],
    )
    target = tmp_path / "trial"
    assert [file.name for file in merge_samples([a, b], target)] == ["cgroup_cpu.parquet", "cpu.parquet", "diskstats.parquet"]
    assert read_samples(target, "cpu", "cpu.user") == [(1.0, "host:a", 1.0), (1.5, "host:b", 5.0), (2.0, "host:a", 2.0)]
    assert read_samples(target, "cpu", "cpu.irq") == [(1.5, "host:b", 0.5)], "what a host does not have is no zero"
    assert read_samples(target, "diskstats", "reads") == [(1.5, "disk:b/sda", 7.0), (1.5, "disk:b/sdb", 8.0)]
    assert read_samples(target, "cgroup_cpu", "cpu.usage") == [(2.0, "container:db2", 3.0)]


def test_without_samples_nothing_is_written(tmp_path):
    assert merge_samples([HostSamples(tmp_path / "a", 0.0, str)], tmp_path / "trial") == []
    assert not (tmp_path / "trial").exists()


def test_one_name_on_two_hosts_is_two_entities(tmp_path):
    """And what is called alike in their files is told apart by the file that it stands in."""
    rows = [(1.0, "swap", "swap:own", {"swap.used": 1.0}), (2.0, "swap", "swap:own", {"swap.used": 2.0})]
    parts = [host(tmp_path, name, ahead, rows) for name, ahead in (("a", 0.0), ("b", 0.5), ("c", -0.5))]
    merge_samples(parts, tmp_path / "trial")
    assert sorted(read_samples(tmp_path / "trial", "swap", "swap.used")) == [
        (0.5, "swap:b/own", 1.0), (1.0, "swap:a/own", 1.0), (1.5, "swap:b/own", 2.0), (1.5, "swap:c/own", 1.0), (2.0, "swap:a/own", 2.0),
        (2.5, "swap:c/own", 2.0),
    ]  # fmt: skip
