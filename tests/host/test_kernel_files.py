import pytest

from pgherd.host.kernel_files import active_word, flat_keyed, names_in, nested_keyed, number, text_of, unescape
from pgherd.node.local import LocalNode


def test_text_and_names_of_missing_paths_are_empty(tmp_path):
    (tmp_path / "setting").write_text(" 12\n")
    assert text_of(LocalNode(), str(tmp_path / "setting")) == "12" and names_in(LocalNode(), str(tmp_path)) == ["setting"]
    assert text_of(LocalNode(), str(tmp_path / "none")) == "" and names_in(LocalNode(), str(tmp_path / "none")) == []


def test_active_word():
    assert [active_word(text) for text in ("a [b-c] d", "none\n", "")] == ["b-c", "none", ""]


def test_octal_escapes_are_decoded():
    assert unescape("/mnt/a\\040b\\134") == "/mnt/a b\\"


def test_flat_keyed_takes_what_is_wanted() -> None:
    assert flat_keyed("MemFree:   12 kB\nother x\nanon 3\n", {"MemFree": "free", "anon": "anon"}, 2) == {"free": 24, "anon": 6}


@pytest.mark.parametrize("raw", ["", "other 3", "anon", "anon ", "anon x", "anon -3", "anon 1e3"])
def test_flat_keyed_refuses(raw: str) -> None:
    with pytest.raises(ValueError):
        flat_keyed(raw, {"anon": "anon"})


def test_nested_keyed() -> None:
    assert nested_keyed("some avg10=0.50 total=7\n\nfull x\n") == {"some": {"avg10": "0.50", "total": "7"}, "full": {}}


def test_numbers_are_plain_counts() -> None:
    assert number("18446744073709551615") == 2.0**64
    for wrong in ("", "²", "-1", "1" * 21, "0x1"):
        with pytest.raises(ValueError):
            number(wrong)
