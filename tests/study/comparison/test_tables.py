import random

from pgherd.analysis.block_ratios import paired_ratio
from pgherd.analysis.group_sequential import Decision
from pgherd.analysis.intervals import Estimate
from pgherd.analysis.two_sample import joint
from pgherd.study.comparison import tables, variants
from pgherd.study.comparison.analyse import analyse
from pgherd.study.comparison.blocks import Block, MetricSeries, complete_blocks
from pgherd.study.comparison.metrics import metric
from pgherd.study.comparison.tables import ComparisonEstimates


def test_options_in_which_arms_differ(options, server):
    item = server(settings={"work_mem": "8MB", "jit": "off"}, seed=1)
    study_options = options(
        {"a": item, "b": server(settings={"jit": "off", "shared_buffers": "1GB"}, protocol="simple", seed=2, time_budget=9)}
    )
    rows = {row["option"]: (row["a"], row["b"]) for row in tables.difference_rows(study_options)}
    assert rows == {
        "work_mem": ("8MB", "the default"),
        "shared_buffers": ("the default", "1GB"),
        "protocol": ("prepared", "simple"),
    }


def test_what_no_hypervisor_is_asked_for_is_no_difference(options, server):
    """A container that is no guest has no hypervisor, which is as good as one of which nothing is asked."""
    guest = server(runtime="vm", vm={})
    rows = {row["option"]: (row["a"], row["b"]) for row in tables.difference_rows(options({"a": server(), "b": guest}))}
    assert rows == {"runtime": ("process", "vm")}
    pinned = server(runtime="vm", vm={"pinned": True})
    for other in (guest, server(runtime="vm")):
        rows = {row["option"]: (row["a"], row["b"]) for row in tables.difference_rows(options({"a": other, "b": pinned}))}
        assert rows == {"vm.pinned": ("–", "True")}


def test_volumes_are_told_in_words(options, server):
    loop = {"name": "on-wal", "kind": "loop", "path": None, "size": 2**31}
    study_options = options(
        {"a": server(), "b": server(volumes=[loop, {"name": "x", "kind": "directory", "path": "/x"}], roles={"wal": "on-wal"})}
    )
    rows = {row["option"]: row["b"] for row in tables.difference_rows(study_options)}
    assert rows == {"volumes": "on-wal (loop of 2 GB), x (directory at /x)", "roles.wal": "on-wal"}


def test_one_row_per_trial_in_the_order_of_the_run(options, simulate):
    study_options = options()
    results = simulate(study_options).all([*variants.block_trials(study_options, 0), *variants.block_trials(study_options, 1)[:1]])
    rows = tables.block_rows(study_options, complete_blocks(study_options, results), results)
    assert [row["order"] for row in rows] == [1, 2, 3] and {row["block"] for row in rows} == {0}
    assert [row["trial"] for row in rows] == ["0001", "0002", "0003"]
    assert rows[0]["throughput"] == results[0].phases[0].throughput and rows[0]["tainted_trials"] == 0
    assert "memory" not in rows[0] and "point" not in rows[0], "what nobody saw has no column"


def test_points_are_told_where_there_are_several(options, server, simulate):
    study_options = options({"a": server(databases=(1, 2)), "b": server(databases=(1, 2), protocol="simple")})
    results = simulate(study_options).all(variants.block_trials(study_options, 0))
    rows = tables.block_rows(study_options, complete_blocks(study_options, results), results)
    assert {row["point"] for row in rows} == {"databases 1", "databases 2"}


def test_what_differs_by_itself_stands_last(options):
    study_options = options(defaults={"io_workers": {"base": "–", "other": "3"}})
    assert [row["option"] for row in tables.difference_rows(study_options)] == ["protocol", "io_workers (by itself)"]
    assert tables.difference_rows(study_options)[-1]["other"] == "3"


ONE = Estimate(1.1, 1.0, 1.2, 0.95, 3, "m")


def test_the_metric_that_decides_comes_first(options):
    series = {
        name: MetricSeries(metric(name), dict.fromkeys(("base", "base (A/A)", "other"), (1.0, 2.0))) for name in ("throughput", "p95")
    }
    series["p99"] = MetricSeries(metric("p99"), dict.fromkeys(("base", "base (A/A)", "other"), (None, None)))
    decision = Decision("inconclusive", ONE, True, None, "")
    block = Block(0, {}, ())
    estimates = ComparisonEstimates(
        options(), [block], [block] * 3, series["p95"], series, {"other": decision}, {"other": {"throughput": ONE}}, {}
    )
    assert estimates.compared == ["p95", "throughput"]
    assert (
        estimates.ratio("other", "p95") is ONE and estimates.ratio("other", "throughput") is ONE and estimates.ratio("other", "p50") is None
    )
    assert estimates.clean
    assert not ComparisonEstimates(options(), [block], [block] * 2, series["p95"], series, {"other": None}, {}, {}).clean


def placed(result):
    """As ``runner.placing`` gives it back to the study: the host that a block was pinned to stands beside the whole."""
    host = result.trial.deployment.hosts[0]
    name = host.labels["host"]
    own = host.model_copy(update={"name": name, "containers": ()})
    bare = host.model_copy(update={"labels": {}})
    deployment = result.trial.deployment.model_copy(update={"hosts": (bare, own)})
    return result.model_copy(update={"trial": result.trial.model_copy(update={"deployment": deployment})})


def compared(options, simulate, blocks=16, **truth):
    """``truth``: what the variant gains on each host."""
    study_options = options(hosts=tuple(truth), max_blocks=blocks)
    results = []
    simulators = {host: simulate(study_options, truth={"other": gain}, seed=number) for number, (host, gain) in enumerate(truth.items())}
    for number in range(blocks):
        host = list(truth)[number % len(truth)]
        ran = [simulators[host].run(trial) for trial in variants.block_trials(study_options, number)]
        results += [placed(item.model_copy(update={"id": f"{len(results) + position:04d}"})) for position, item in enumerate(ran, 1)]
    return analyse(study_options, results)


def test_each_host_has_the_ratio_of_its_own_blocks(options, simulate):
    result = compared(options, simulate, a=1.2, b=1.2)
    rows = {row["host"]: row for row in result.tables["by_host"]}
    assert set(rows) == {"a", "b"} and {row["blocks"] for row in rows.values()} == {8}
    assert all(abs(row["ratio_to_baseline"].value - 1.2) < 0.03 and row["variant"] == "other" for row in rows.values())
    assert not any("disagree" in warning for warning in result.warnings)
    assert {row["host"] for row in result.tables["blocks"]} == {"a", "b"}


def test_hosts_that_disagree_are_told(options, simulate):
    result = compared(options, simulate, a=1.3, b=0.8)
    (text,) = [warning for warning in result.warnings if "disagree" in warning]
    assert text.startswith("The hosts disagree on other: its throughput is 0.") and "on b" in text.partition(", but")[0]
    assert text.endswith("holds for neither (intervals of 97.5 % each, jointly 95 %).")


def test_two_hosts_are_apart_where_their_intervals_have_nothing_in_common():
    assert tables.disjoint_intervals({"a": (1.0, 1.1), "b": (1.05, 1.2)}) is None and tables.disjoint_intervals({"a": (1.0, 1.1)}) is None
    assert tables.disjoint_intervals({"a": (1.2, 1.3), "b": (1.0, 1.1), "c": (1.05, 1.25)}) == ("b", "a")


def test_hosts_alike_are_said_to_disagree_no_more_often_than_promised(seed: int):
    """The hosts' noise differs ninefold, for which intervals that hold each by itself would be apart in more than a tenth."""
    rng, text, studies, hosts = random.Random(seed), 0, 400, 6
    for _ in range(studies):
        bounds = {}
        for host in range(hosts):
            values = [rng.lognormvariate(0, 0.01 * 3 ** (host % 3)) for _ in range(10)]
            estimate = paired_ratio(values, [1.0] * len(values), joint(hosts))
            bounds[str(host)] = (estimate.low, estimate.high)
        text += tables.disjoint_intervals(bounds) is not None
    assert text <= 0.05 * studies + 3.1 * (0.05 * 0.95 * studies) ** 0.5


def test_one_host_has_no_table_of_hosts(options, simulate):
    assert "by_host" not in compared(options, simulate, blocks=4, a=1.2).tables


def test_a_host_without_blocks_has_no_ratio(options, simulate):
    result = compared(options, simulate, blocks=1, a=1.2, b=1.2)
    ratio = {row["host"]: row["ratio_to_baseline"] for row in result.tables["by_host"]}
    assert ratio["b"].value is None and "no block of this host" in ratio["b"].note and ratio["a"].value is not None
