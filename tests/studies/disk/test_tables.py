import pytest

from pgherd.studies.disk.points import group
from pgherd.studies.disk.tables import depth_rows, disk_rows, figure_finding, hero_rows, positive_mean, volume_rows


@pytest.fixture
def measured(make, bank):
    def run(volumes=1, **host):
        options = make(volumes)
        return options, group(options, bank(options, **host).all())

    return run


def test_one_row_for_each_test_with_units_intervals_and_what_limited_it(measured):
    options, groups = measured()
    rows = {row["test"]: row for row in disk_rows(options, groups)}
    read = rows["8 kB random read"]
    assert read["iops"].value == pytest.approx(40_000, rel=0.02) and read["iops"].low < read["iops"].value < read["iops"].high
    assert read["bandwidth"].unit == "MB/s" and read["bandwidth"].value == pytest.approx(read["iops"].value * 8192 / 1e6)
    assert (read["limited_by"], read["from_cache"], read["steady"], read["trials"]) == ("device", "no", "3 of 3", 3)
    assert read["p99_9"].value is None and "fewer than ten" in read["p99_9"].note


def test_e12_stands_beside_with_its_source(measured):
    options, groups = measured()
    rows = {row["test"]: row for row in hero_rows(options, groups)}
    finding = rows["8 kB random write"]["figure"]
    assert finding.experiment == "E12" and "618,775" in finding.published and "4 nodes" in finding.published
    assert rows["one 8 kB read at a time"]["figure"].unit == "ms"


def test_the_hero_table_is_of_all_volumes_at_once(measured):
    options, groups = measured(2)
    rows = {row["test"]: row for row in hero_rows(options, groups)}
    assert rows["8 kB random read"]["figure"].value == pytest.approx(80_000, rel=0.02)
    assert next(row for row in disk_rows(options, groups) if row["volume"] == "all")["of_sum"] == pytest.approx(1, rel=0.02)


def test_a_cached_figure_says_so_wherever_it_stands(measured):
    options, groups = measured(cached=0.8)
    assert "from a cache" in figure_finding(options, groups[0], groups).note
    assert {row["from_cache"] for row in hero_rows(options, groups)} == {"yes"}


def test_what_twice_the_depth_makes(measured):
    options, groups = measured(latency=2.0)
    row = depth_rows(options, groups)[0]
    assert (row["depth"], row["deeper"]) == (32, 64) and row["ratio"].value == pytest.approx(2, rel=0.05)


def test_no_interval_reaches_below_zero():
    found = positive_mean([0.1, 0.2, 3.0])
    assert found.low == 0 and found.high > 3 and "cut off at 0" in found.note
    assert positive_mean([1, 1.1, 1.2]).low > 0 and positive_mean([1]).low is None


def test_what_each_volume_is(make):
    row = volume_rows(make())[0]
    assert (row["kind"], row["direct_io"], row["distorts"], row["devices"]) == ("directory", "yes", "no", "sd0")
