import random

from pgherd.analysis.paired import paired_ratio
from pgherd.analysis.two_sample import joint
from pgherd.study.comparison import tables, variants
from pgherd.study.comparison.analyse import analyse


def placed(result):
    """As ``runner.placing`` gives it back to the study: the host that a block was pinned to stands beside the whole."""
    whole = result.trial.deployment.hosts[0]
    name = whole.labels["host"]
    own = whole.model_copy(update={"name": name, "containers": ()})
    bare = whole.model_copy(update={"labels": {}})
    deployment = result.trial.deployment.model_copy(update={"hosts": (bare, own)})
    return result.model_copy(update={"trial": result.trial.model_copy(update={"deployment": deployment})})


def compared(options, simulate, blocks=16, **truth):
    """``truth``: what the variant gains on each host."""
    made = options(hosts=tuple(truth), most=blocks)
    results = []
    simulators = {host: simulate(made, truth={"other": gain}, seed=number) for number, (host, gain) in enumerate(truth.items())}
    for number in range(blocks):
        host = list(truth)[number % len(truth)]
        ran = [simulators[host].run(trial) for trial in variants.block_trials(made, number)]
        results += [placed(one.model_copy(update={"id": f"{len(results) + place:04d}"})) for place, one in enumerate(ran, 1)]
    return analyse(made, results)


def test_each_host_has_the_ratio_of_its_own_blocks(options, simulate):
    found = compared(options, simulate, a=1.2, b=1.2)
    rows = {row["host"]: row for row in found.tables["by_host"]}
    assert set(rows) == {"a", "b"} and {row["blocks"] for row in rows.values()} == {8}
    assert all(abs(row["ratio"].value - 1.2) < 0.03 and row["variant"] == "other" for row in rows.values())
    assert not any("disagree" in warning for warning in found.warnings)
    assert {row["host"] for row in found.tables["blocks"]} == {"a", "b"}


def test_hosts_that_disagree_are_told(options, simulate):
    found = compared(options, simulate, a=1.3, b=0.8)
    (said,) = [warning for warning in found.warnings if "disagree" in warning]
    assert said.startswith("The hosts disagree on other: its throughput is 0.") and "on b" in said.partition(", but")[0]
    assert said.endswith("holds for neither (intervals of 97.5 % each, jointly 95 %).")


def test_two_hosts_are_apart_where_their_intervals_have_nothing_in_common():
    assert tables.disjoint_intervals({"a": (1.0, 1.1), "b": (1.05, 1.2)}) is None and tables.disjoint_intervals({"a": (1.0, 1.1)}) is None
    assert tables.disjoint_intervals({"a": (1.2, 1.3), "b": (1.0, 1.1), "c": (1.05, 1.25)}) == ("b", "a")


def test_hosts_alike_are_said_to_disagree_no_more_often_than_promised(seed: int):
    """The hosts' noise differs ninefold, for which intervals that hold each by itself would be apart in more than a tenth."""
    rng, said, studies, hosts = random.Random(seed), 0, 400, 6
    for _ in range(studies):
        bounds = {}
        for host in range(hosts):
            values = [rng.lognormvariate(0, 0.01 * 3 ** (host % 3)) for _ in range(10)]
            estimate = paired_ratio(values, [1.0] * len(values), joint(hosts))
            bounds[str(host)] = (estimate.low, estimate.high)
        said += tables.disjoint_intervals(bounds) is not None
    assert said <= 0.05 * studies + 3.1 * (0.05 * 0.95 * studies) ** 0.5


def test_one_host_has_no_table_of_hosts(options, simulate):
    assert "by_host" not in compared(options, simulate, blocks=4, a=1.2).tables


def test_a_host_without_blocks_has_no_ratio(options, simulate):
    found = compared(options, simulate, blocks=1, a=1.2, b=1.2)
    ratio = {row["host"]: row["ratio"] for row in found.tables["by_host"]}
    assert ratio["b"].value is None and "no block of this host" in ratio["b"].note and ratio["a"].value is not None
