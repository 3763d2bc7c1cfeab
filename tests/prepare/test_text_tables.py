"""Tables in text files: rows of one width. Separators and decimal marks are tested with 'pgherd fit'."""

from __future__ import annotations

import pytest

from pgherd.model.errors import UsageError
from pgherd.prepare.text_tables import read_text_table


def test_rows_have_the_line_of_the_file_and_the_width_of_the_header(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("a;b;c\n\n# comment\n1;2\n3;4;5;\n")
    table = read_text_table(path, "a, b and c", "one row")
    assert (table.separator, table.source) == (";", str(path))
    assert table.body(3) == [(4, ["1", "2", ""]), (5, ["3", "4", "5"])]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; it requires lines of a and b"),
        ("a\n1\n", r"has one column only \('a'\); it requires a and b, separated by commas"),
        ("a,b\n1,2,3\n", "line 2 has 3 cells, but the table has 2 columns"),
        ('a,b\n"1,2\n', "is not a CSV table: .*; write one row per line"),
    ],
)
def test_other_texts_are_refused(tmp_path, text, message):
    path = tmp_path / "table.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_text_table(path, "a and b", "one row").body(2)
