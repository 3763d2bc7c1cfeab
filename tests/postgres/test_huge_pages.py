import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Completed
from pgherd.postgres import huge_pages
from pgherd.postgres.huge_pages import HugePageNeed
from pgherd.postgres.installations import Installation

MB = 2**20


class FakeNode(LocalNode):
    """Node with given output of PostgreSQL and a given default size of the kernel."""

    def __init__(self, out: str = "", err: str = "", code: int = 0, default: str = "Hugepagesize:    2048 kB\n") -> None:
        super().__init__()
        self.answer, self.default, self.argv = Completed(code, out, err), default, ()

    def run(self, command, timeout=60.0):
        self.argv = tuple(command.argv)
        return self.answer

    def read(self, path):
        return self.default.encode() if path == "/proc/meminfo" else super().read(path)


PG = Installation("/pg/bin", "18.1", 18, "system")


@pytest.mark.parametrize(
    ("value", "insists", "declines"),
    [("on", True, False), ("TRUE", True, False), (" yes ", True, False), ("off", False, True), ("0", False, True), ("try", False, False)],
)
def test_what_settings_insist_on(value, insists, declines):
    settings = {"huge_pages": value}
    assert (huge_pages.requires_huge_pages(settings), huge_pages.refuses_huge_pages(settings)) == (insists, declines)


def test_settings_that_say_nothing_leave_it_open():
    assert not huge_pages.requires_huge_pages({}) and not huge_pages.refuses_huge_pages({})


@pytest.mark.parametrize("settings", [{}, {"huge_pages": "try"}, {"huge_pages": "on"}])
def test_settings_that_may_give_huge_pages_are_refused(settings):
    huge_pages.require_no_huge_pages({"huge_pages": "false"})
    with pytest.raises(UsageError, match=f"huge_pages is {settings.get('huge_pages', 'try')}, but .*; add --set huge_pages=off"):
        huge_pages.require_no_huge_pages(settings)


@pytest.mark.parametrize(("word", "size"), [(None, 2 * MB), ("0", 2 * MB), ("1GB", 1024 * MB), ("2048", 2 * MB)])
def test_a_bare_number_counts_kilobytes_and_zero_is_the_kernels_default(word, size):
    assert huge_pages.page_size(FakeNode(), {} if word is None else {"huge_page_size": word}) == size


def test_a_kernel_without_huge_pages():
    with pytest.raises(CapabilityError, match="no huge pages"):
        huge_pages.page_size(FakeNode(default="MemTotal: 1 kB\n"), {})


@pytest.mark.parametrize(
    ("word", "settings", "transparent"),
    [
        ("off", {"huge_pages": "off"}, False),
        ("thp", {"huge_pages": "off"}, True),
        ("2MB", {"huge_pages": "on", "huge_page_size": "2048kB"}, None),
        ("1GB", {"huge_pages": "on", "huge_page_size": "1048576kB"}, None),
        ("64kB", {"huge_pages": "on", "huge_page_size": "64kB"}, None),
    ],
)
def test_the_options_words(word, settings, transparent):
    assert huge_pages.settings_for(word) == settings
    assert huge_pages.transparent_for(word) == transparent


def test_without_the_option_all_stays_as_it_is():
    assert huge_pages.transparent_for(None) is None


@pytest.mark.parametrize("word", ["", "on", "huge", "3MB", "0", "512", "-2MB"])
def test_what_is_no_kind_of_pages(word):
    with pytest.raises(UsageError, match="give a page size such as 2MB or 1GB"):
        huge_pages.settings_for(word)


def test_postgresql_says_how_many_it_needs():
    node = FakeNode("8452\n")
    need = huge_pages.needed(node, PG, {"huge_pages": "on"}, "/data", None)
    assert need == HugePageNeed(2 * MB, 8452) and need.bytes == 8452 * 2 * MB
    assert node.argv == ("/pg/bin/postgres", "-C", "shared_memory_size_in_huge_pages", "-D", "/data")


def test_a_platform_without_them():
    with pytest.raises(CapabilityError, match="cannot use huge pages on this machine"):
        huge_pages.needed(FakeNode("-1\n"), PG, {}, "/data", None)


def test_settings_that_it_refuses_in_its_own_words():
    text = 'LOG:  x\nFATAL:  invalid value for parameter "shared_buffers": "many"\n'
    with pytest.raises(UsageError, match='invalid value for parameter "shared_buffers"'):
        huge_pages.needed(FakeNode(err=text, code=1), PG, {}, "/data", None)
