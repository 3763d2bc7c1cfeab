import pytest

from pgherd.studies.density.options import DensityOptions
from pgherd.studies.hugepages.options import HugepagesOptions, HugepagesRequest, propose
from pgherd.studies.hugepages.study import STUDY
from pgherd.study.comparison.propose import propose as compare_propose
from pgherd.study.study import study_of

MB = 2**20


def test_trials_are_those_of_a_comparison_with_counters(build):
    options = build()
    trials, plain = propose(options, []).trials, compare_propose(options, []).trials
    assert [trial.key() for trial in trials] == [trial.key() for trial in plain]
    assert {trial.counters for trial in trials} == {("tlb",)}
    assert {trial.counters for trial in STUDY.propose(build(counters_unavailable="none here"), []).trials} == {()}


def test_each_page_size_is_deployed_by_its_name(build):
    servers = {
        trial.point["variant"]: (container, server)
        for trial in STUDY.propose(build(), []).trials
        for _, container, server in trial.deployment.servers()
    }
    assert servers["none"][1].settings["huge_pages"] == "off" and servers["none"][1].transparent_huge_pages is False
    assert servers["1GB"][1].settings["huge_page_size"] == "1048576kB" and servers["1GB"][1].transparent_huge_pages is None
    assert servers["thp"][1].transparent_huge_pages is True


def test_a_limit_is_lowered_by_the_pages_that_cgroups_do_not_count(compared):
    server_options = compared.server_options(container_memory=4096 * MB, huge_page_bytes=2048 * MB)
    assert DensityOptions.model_validate(server_options).container("a").memory == 2048 * MB


def test_the_study_is_registered():
    assert study_of("hugepages") is STUDY and STUDY.options is HugepagesOptions


def test_reserved_pages_are_whole_numbers(build):
    options = build()
    assert {name: options.reserved_pages(name) for name in options.block_variants} == {
        "none": 0,
        "none (A/A)": 0,
        "2MB": 829,
        "1GB": 2,
        "thp": 0,
    }


@pytest.mark.parametrize(
    ("requested", "message"),
    [({"huge_pages": "2MB"}, "give them with page_sizes"), ({"repeats": 3}, "give max_blocks"), ({"precision": "60%"}, "less than")],
)
def test_options_of_other_studies_are_rejected(requested, message):
    with pytest.raises(ValueError, match=message):
        HugepagesRequest(**requested)
