import pytest

from pgherd.store.samples import read_samples, write_samples


def test_samples_come_back_by_sampler_and_metric(tmp_path):
    samples = [
        (1000.123456, "cpu", "host", {"cpu.user": 1.5, "cpu.idle": 7.0}),
        (1001.123456, "cpu", "host", {"cpu.user": 2.5}),
        (1000.5, "cgroup", "container:db01", {"memory.usage": 4096.0}),
    ]
    files = write_samples(tmp_path, samples)
    assert sorted(file.name for file in files) == ["cgroup.parquet", "cpu.parquet"]
    assert read_samples(tmp_path, "cpu", "cpu.user") == [(1000.123456, "host", 1.5), (1001.123456, "host", 2.5)]
    assert read_samples(tmp_path, "cpu", "cpu.idle") == [(1000.123456, "host", 7.0)]
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == ["cgroup.parquet", "cpu.parquet"]


@pytest.mark.parametrize(("sampler", "metric"), [("none", "x"), ("cpu", "none")])
def test_what_was_not_sampled_is_empty(tmp_path, sampler, metric):
    write_samples(tmp_path, [(1.0, "cpu", "host", {"cpu.user": 1.0})])
    assert read_samples(tmp_path, sampler, metric) == []


def test_nothing_sampled_writes_nothing(tmp_path):
    assert write_samples(tmp_path, []) == []


def test_odd_entities_survive(tmp_path):
    entity = 'container:a,"b"\n; drop table x'
    write_samples(tmp_path, [(1.0, "cpu", entity, {"cpu.user": 1.0})])
    assert read_samples(tmp_path, "cpu", "cpu.user") == [(1.0, entity, 1.0)]


@pytest.mark.parametrize("few", [0, 10**9])
def test_few_and_many_cells_give_the_same_file(tmp_path, monkeypatch, few):
    """Few are handed over as values, many by way of a file."""
    monkeypatch.setattr("pgherd.store.samples._FEW", few)
    samples = [(0.1 + i, "cpu", f"disk:\u00e4 {i}'", {"a": 1 / 3 * 10**i} | ({"b": -0.0} if i % 2 else {})) for i in range(40)]
    write_samples(tmp_path, samples)
    assert read_samples(tmp_path, "cpu", "a") == [(t, entity, values["a"]) for t, _, entity, values in samples]
    assert [t for t, _, value in read_samples(tmp_path, "cpu", "b")] == [t for t, _, _, values in samples if "b" in values]
    assert [path.name for path in (tmp_path / "samples").iterdir()] == ["cpu.parquet"]
