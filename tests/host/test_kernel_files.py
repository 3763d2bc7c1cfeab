from pgherd.host.kernel_files import active_word, names_in, text_of, unescape
from pgherd.node.local import LocalNode


def test_text_and_names_of_missing_paths_are_empty(tmp_path):
    (tmp_path / "setting").write_text(" 12\n")
    assert text_of(LocalNode(), str(tmp_path / "setting")) == "12" and names_in(LocalNode(), str(tmp_path)) == ["setting"]
    assert text_of(LocalNode(), str(tmp_path / "none")) == "" and names_in(LocalNode(), str(tmp_path / "none")) == []


def test_active_word():
    assert [active_word(text) for text in ("a [b-c] d", "none\n", "")] == ["b-c", "none", ""]


def test_octal_escapes_are_decoded():
    assert unescape("/mnt/a\\040b\\134") == "/mnt/a b\\"
