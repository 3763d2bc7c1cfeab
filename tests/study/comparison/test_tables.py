from pgherd.study.comparison import tables, variants
from pgherd.study.comparison.blocks import complete_blocks


def test_options_in_which_arms_differ(options, server):
    one = server(settings={"work_mem": "8MB", "jit": "off"}, seed=1)
    made = options({"a": one, "b": server(settings={"jit": "off", "shared_buffers": "1GB"}, protocol="simple", seed=2, budget_seconds=9)})
    rows = {row["option"]: (row["a"], row["b"]) for row in tables.difference_rows(made)}
    assert rows == {
        "work_mem": ("8MB", "the default"),
        "shared_buffers": ("the default", "1GB"),
        "protocol": ("prepared", "simple"),
    }


def test_what_no_hypervisor_is_asked_for_is_no_difference(options, server):
    """A container that is no guest has no hypervisor, which is as good as one of which nothing is asked."""
    guest = server(runtime="vm", guest={})
    rows = {row["option"]: (row["a"], row["b"]) for row in tables.difference_rows(options({"a": server(), "b": guest}))}
    assert rows == {"runtime": ("process", "vm")}
    pinned = server(runtime="vm", guest={"pinned": True})
    for other in (guest, server(runtime="vm")):
        rows = {row["option"]: (row["a"], row["b"]) for row in tables.difference_rows(options({"a": other, "b": pinned}))}
        assert rows == {"guest.pinned": ("–", "True")}


def test_volumes_are_told_in_words(options, server):
    loop = {"name": "on-wal", "kind": "loop", "path": None, "size": 2**31}
    made = options({"a": server(), "b": server(volumes=[loop, {"name": "x", "kind": "directory", "path": "/x"}], roles={"wal": "on-wal"})})
    rows = {row["option"]: row["b"] for row in tables.difference_rows(made)}
    assert rows == {"volumes": "on-wal (loop of 2 GB), x (directory at /x)", "roles.wal": "on-wal"}


def test_one_row_per_trial_in_the_order_of_the_run(options, simulate):
    made = options()
    results = simulate(made).all([*variants.block_trials(made, 0), *variants.block_trials(made, 1)[:1]])
    rows = tables.block_rows(made, complete_blocks(made, results), results)
    assert [row["order"] for row in rows] == [1, 2, 3] and {row["block"] for row in rows} == {0}
    assert [row["trial"] for row in rows] == ["0001", "0002", "0003"]
    assert rows[0]["throughput"] == results[0].phases[0].throughput and rows[0]["tainted"] == 0
    assert "memory" not in rows[0] and "point" not in rows[0], "what nobody saw has no column"


def test_points_are_told_where_there_are_several(options, server, simulate):
    made = options({"a": server(points=(1, 2)), "b": server(points=(1, 2), protocol="simple")})
    results = simulate(made).all(variants.block_trials(made, 0))
    rows = tables.block_rows(made, complete_blocks(made, results), results)
    assert {row["point"] for row in rows} == {"databases 1", "databases 2"}


def test_what_differs_by_itself_stands_last(options):
    made = options(defaults={"io_workers": {"base": "–", "other": "3"}})
    assert [row["option"] for row in tables.difference_rows(made)] == ["protocol", "io_workers (by itself)"]
    assert tables.difference_rows(made)[-1]["other"] == "3"
