from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.workloads.statements import command_lines

CASES = [
    ("", []),
    ("\n-- nothing\n/* at /* all */ */\n ;;\n", []),
    ("SELECT 1", [1]),
    ("SELECT 1;\n\nSELECT\n 2;\n", [1, 3]),
    ("SELECT 1; SELECT 2;", [1, 1]),
    ("\\set a 1\n\\set b 2\nSELECT :a;\n", [1, 2, 3]),
    ("-- first\nSELECT ';' /* ; */ -- ;\n , \";\" ;\nSELECT 2;", [2, 4]),
    ("SELECT $$ a; b $$, $x$ ; $$ ; $x$;\nSELECT 2;", [1, 2]),
    ("SELECT E'it\\'s;';\nSELECT 'no\\';\nSELECT 3;", [1, 2, 3]),
    ("SELECT name';';\nSELECT 2;", [1, 2]),
    ("SELECT 1 \\; SELECT 2 \\; SELECT 3;\nSELECT 4;", [1, 2]),
    ("SELECT 1 AS a \\gset\nSELECT 2 AS b \\gset p_\nSELECT 3;", [1, 2, 3]),
    ("SELECT 1\n\\set a 1\nSELECT 2;", [1, 2, 3]),
    ("\\set a \\\n 1 + \\\n 2\nSELECT 1;", [1, 4]),
    ("BEGIN;\nUPDATE t SET a = (SELECT ';' WHERE (1 = 1));\nEND;", [1, 2, 3]),
    ("CREATE RULE r AS ON INSERT TO t DO (SELECT 1; SELECT 2);\nSELECT 3;", [1, 2]),
    ("\\if :a = 1\nSELECT 1;\n\\else\nSELECT 2;\n\\endif\n", [1, 2, 3, 4, 5]),
    ("SELECT a$1$b FROM t;\nSELECT $1;", [1, 2]),
    ("SELECT 'open ; ", [1]),
]


@pytest.mark.parametrize(("script", "lines"), CASES)
def test_known_scripts(script: str, lines: list[int]) -> None:
    assert command_lines(script) == lines


PIECES = st.sampled_from(["SELECT 1", "';'", '";"', "$$;$$", "(;)", "-- ;\n", "/* ; */", "\n", " ", "x", "E'\\';'"])


@given(st.lists(st.lists(PIECES, min_size=1, max_size=6).map(lambda parts: " ".join(["SELECT", *parts])), max_size=6))
def test_as_many_commands_as_statements_were_joined(statements: list[str]) -> None:
    script = "".join(f"{statement}\n;\n" for statement in statements)
    lines = command_lines(script)
    assert len(lines) == len(statements)
    texts = script.split("\n")
    assert all(texts[line - 1].lstrip("; ").startswith("SELECT") for line in lines)


@given(st.text(max_size=200))
def test_any_text_has_its_lines_in_order(script: str) -> None:
    lines = command_lines(script)
    assert lines == sorted(lines)
    assert all(1 <= line <= script.count("\n") + 1 for line in lines)
