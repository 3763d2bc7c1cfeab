from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from pgherd.host import huge_pages, shared_settings
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.studies.hugepages import prepare as module
from pgherd.studies.hugepages.options import HugepagesOptions, HugepagesRequest
from pgherd.studies.hugepages.prepare import prepare

pytestmark = pytest.mark.usefixtures("own_directories")
NODE = LocalNode()


@pytest.fixture(scope="module")
def fake_pools():
    spec = importlib.util.spec_from_file_location("fake_pools", Path(__file__).parents[2] / "host/fake_pools.py")
    result = importlib.util.module_from_spec(spec)
    sys.modules["fake_pools"] = result
    spec.loader.exec_module(result)
    return result


def kinds(node, scale=10, **requested):
    return module._kinds(node, HugepagesRequest(**requested), scale)


def test_all_kinds_that_the_host_can_give(fake_pools):
    assert kinds(fake_pools.PoolNode()) == (("none", "2MB", "1GB", "thp"), [])


def test_what_the_host_cannot_give_is_left_out_and_said(fake_pools):
    node = fake_pools.PoolNode(memory=900 * 2**20)
    node.own = "never"
    result, text = kinds(node)
    assert result == ("none", "2MB")
    assert len(text) == 2 and text[0].startswith("Left out: 1GB: ") and text[1].startswith("Left out: thp: ")


def test_a_kernel_of_other_sizes(fake_pools):
    assert kinds(fake_pools.PoolNode(sizes=(65536, 32 * 2**20)))[0] == ("none", "64kB", "32MB", "thp")


def test_without_root_there_is_nothing_to_compare(fake_pools):
    with pytest.raises(CapabilityError, match=r"cannot provide huge pages\. 2MB: .* as root.* 1GB: .* thp: ") as caught:
        kinds(fake_pools.PoolNode(root=False))
    assert caught.value.exit_code == 3


def test_kinds_by_name_in_any_spelling_the_first_is_the_baseline(fake_pools):
    node = fake_pools.PoolNode()
    assert kinds(node, page_sizes=("1gb", "OFF", "2 MB"))[0] == ("1GB", "none", "2MB")
    assert kinds(node, page_sizes=("2MB",))[0] == ("none", "2MB"), "one alone is compared with ordinary pages"


@pytest.mark.parametrize(
    ("pages", "message"), [(("none", "off"), "none is given twice"), (("2MB", "2048kB"), "2MB is given twice"), (("large",), "'large'")]
)
def test_kinds_that_are_none(fake_pools, pages, message):
    with pytest.raises(UsageError, match=message):
        kinds(fake_pools.PoolNode(), page_sizes=pages)


def test_the_scale_is_what_memory_holds():
    from pgherd.host.facts import gather

    facts = gather(NODE)
    small = module._scale(HugepagesRequest(host_memory="1500MB"), facts)[0]
    large = module._scale(HugepagesRequest(host_memory="100GB"), facts)[0]
    assert small < large == module.SCALES[0]
    assert module._scale(HugepagesRequest(scale=7), facts) == (7, [])
    assert module._scale(HugepagesRequest(host_memory="100GB"), facts)[1] == ["Scale 30: about 456 MB, all of it in shared buffers."]
    for request in ({"set": ("shared_buffers=64MB",)}, {"settings_from": "postgresql.conf"}, {"memory": "200MB"}):
        (text,) = module._scale(HugepagesRequest(host_memory="100GB", **request), facts)[1]
        assert text.endswith(" MB."), "whether they hold it is not known, or known to be false"


def test_ordinary_pages_alone_are_no_comparison():
    with pytest.raises(UsageError, match="names only none"):
        prepare(NODE, HugepagesRequest(page_sizes=("none",)), dry=True)


def test_servers_in_guests_are_refused_with_what_can_be_compared_instead():
    with pytest.raises(CapabilityError, match="the kernel of the guest; to compare guests on huge pages, use 'pgherd compare"):
        prepare(NODE, HugepagesRequest(runtime="vm"), dry=True)


def test_a_server_that_the_host_cannot_hold_names_options_of_this_verb():
    needs_pages()
    request = HugepagesRequest(page_sizes=("none", "2MB"), scale=100_000, host_memory="1GB")
    with pytest.raises(
        UsageError, match=r"'none': one database needs .* memory budget is .*; lower --scale or --memory, or raise --host"
    ) as raised:
        prepare(NODE, request, dry=True)
    assert "--points" not in str(raised.value)


def needs_pages():
    if os.geteuid() != 0 or not huge_pages.may_reserve(NODE, 2**21):
        pytest.skip("huge pages cannot be reserved here: that needs root and a kernel with pages of 2 MB")


@pytest.fixture
def prepared():
    needs_pages()
    before = {size: pool.reserved for size, pool in huge_pages.pools(NODE).items()}
    prepared_study = prepare(NODE, HugepagesRequest(page_sizes=("none", "2MB"), scale=5, memory="1GB", seed=3), dry=False)
    assert {size: pool.reserved for size, pool in huge_pages.pools(NODE).items()} == before
    return prepared_study


def test_a_request_is_completed_for_this_host(prepared):
    options = prepared.options
    assert isinstance(options, HugepagesOptions) and prepared.study == "hugepages" and options.baseline == "none"
    assert options.page_sizes == {"2MB": 2**21} and options.reserved_pages("2MB") > 40 and options.reserved_pages("none") == 0
    variant = options.of("2MB")
    assert variant["settings"]["huge_pages"] == "on" and variant["clients"] == module.CLIENTS and variant["start_state"] == "restarted"
    assert variant["huge_page_bytes"] == options.reserved_pages("2MB") * 2**21
    assert options.of("none")["transparent_huge_pages"] is False
    assert any("pages of 2MB" in change for change in prepared.confirm) and set(prepared.confirm) <= set(prepared.host_changes)
    assert any("TLB" in choice for choice in prepared.defaults_chosen)
    assert not os.path.exists(shared_settings.LEDGER) or "prepare" not in shared_settings.LEDGER.read_text()


def test_blocks_that_are_asked_for_are_all_run():
    needs_pages()
    prepared_study = prepare(NODE, HugepagesRequest(page_sizes=("none", "2MB"), scale=5, max_blocks=30), dry=True)
    assert prepared_study.options.max_blocks == 30


def test_more_pages_than_memory_are_refused():
    needs_pages()
    request = HugepagesRequest(page_sizes=("none", "2MB"), scale=5, set=("shared_buffers=1TB",), runtime="process")
    with pytest.raises(CapabilityError, match=r"huge pages of 2MB take 1.\d* TB"):
        prepare(NODE, request, dry=True)
