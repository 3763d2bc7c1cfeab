from pgherd.studies.density.options import DensityOptions
from pgherd.studies.hugepages.options import HugepagesOptions
from pgherd.studies.hugepages.propose import propose
from pgherd.studies.hugepages.study import STUDY
from pgherd.study.comparison.propose import propose as compare_propose
from pgherd.study.registry import study_of

MB = 2**20


def test_it_proposes_what_a_comparison_does_and_asks_for_counters(build):
    options = build()
    trials, plain = propose(options, []).trials, compare_propose(options, []).trials
    assert [trial.key() for trial in trials] == [trial.key() for trial in plain]
    assert {trial.counters for trial in trials} == {("tlb",)}
    assert {trial.counters for trial in STUDY.propose(build(uncounted="none here"), []).trials} == {()}


def test_each_kind_is_deployed_as_it_is_called(build):
    servers = {
        trial.point["variant"]: (container, server)
        for trial in STUDY.propose(build(), []).trials
        for _, container, server in trial.deployment.servers()
    }
    assert servers["none"][1].settings["huge_pages"] == "off" and servers["none"][1].transparent_huge_pages is False
    assert servers["1GB"][1].settings["huge_page_size"] == "1048576kB" and servers["1GB"][1].transparent_huge_pages is None
    assert servers["thp"][1].transparent_huge_pages is True


def test_a_limit_is_lowered_by_the_pages_that_no_group_counts(compared):
    given = compared.server_options(container_memory=4096 * MB, huge_page_bytes=2048 * MB)
    assert DensityOptions.model_validate(given).container("a").memory == 2048 * MB


def test_it_is_registered():
    assert study_of("hugepages") is STUDY and STUDY.options is HugepagesOptions


def test_pages_are_counted_in_whole_ones(build):
    options = build()
    assert {side: options.reserved(side) for side in options.block_variants} == {"none": 0, "none again": 0, "2MB": 829, "1GB": 2, "thp": 0}
