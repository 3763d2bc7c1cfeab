import pytest

from pgherd.metrics.same_page_merging import SAMPLER
from pgherd.metrics.sampler import GuestView, View
from pgherd.node.protocol import Source

MB = 2**20


def test_reads_the_hosts_counts_and_each_guests_where_some_memory_may_be_merged() -> None:
    assert SAMPLER.sources(View(guests=[GuestView("a", 7, 256 * MB)])) == []
    guests = [GuestView("a", 7, 256 * MB, merging=True), GuestView("b", 8, 256 * MB), GuestView("c", 9, 256 * MB, merging=True)]
    found = {(source.entity, source.where): source.tag for source in SAMPLER.sources(View(guests=guests))}
    assert found == {
        ("host", "/sys/kernel/mm/ksm/pages_shared"): "ksm.shared",
        ("host", "/sys/kernel/mm/ksm/pages_sharing"): "ksm.saved",
        ("host", "/sys/kernel/mm/ksm/pages_unshared"): "ksm.unshared",
        ("host", "/sys/kernel/mm/ksm/full_scans"): "ksm.scans",
        ("guest:a", "/proc/7/ksm_merging_pages"): "guest.merged",
        ("guest:c", "/proc/9/ksm_merging_pages"): "guest.merged",
    }


def test_pages_become_bytes_and_rounds_stay() -> None:
    def read(raw: str, tag: str) -> dict[str, float]:
        ((_, values),) = SAMPLER.parse(raw, Source(SAMPLER.name, "host", "file", "/x", tag=tag))
        return values

    # As a kernel with two merged guests gave them.
    assert read("22033\n", "ksm.shared") == {"ksm.shared": 22033 * 4096}
    assert read("37913\n", "ksm.saved") == {"ksm.saved": 37913 * 4096}
    assert read("23\n", "ksm.scans") == {"ksm.scans": 23}


@pytest.mark.parametrize(("raw", "tag"), [("", "ksm.shared"), ("many", "guest.merged"), ("1", "ksm.other"), ("1", "")])
def test_refuses_other_text(raw: str, tag: str) -> None:
    with pytest.raises(ValueError):
        list(SAMPLER.parse(raw, Source(SAMPLER.name, "host", "file", "/x", tag=tag)))
