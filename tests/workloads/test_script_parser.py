from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.workloads.script_parser import backslash_commands, command_lines, named_words, runs_programs

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


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("\\copy t FROM data.csv CSV\n", {"data.csv"}),
        ("\\COPY t FROM STDIN\nit's\n\\.\n\\Copy u FROM data.csv\n", {"data.csv"}),
        ("\\copy t FROM 'the data/it''s.csv' WITH (FORMAT csv, HEADER)\n", {"the data/it's.csv"}),
        ("\\copy t FROM PROGRAM 'gunzip -c data.csv.gz | head -5'\n", {"data.csv.gz"}),
        ("\\lo_import picture.png\n\\! sort in.txt >out.txt\n", {"picture.png", "in.txt", "out.txt"}),
        ("\\set text `cat words.txt`\n", {"words.txt"}),
        ("COPY t FROM '/srv/a file.csv';", {"/srv/a file.csv"}),
        ("COPY t FROM E'/srv/a.csv' ;COPY u FROM PROGRAM 'zcat /srv/b.csv.gz';", {"/srv/a.csv", "/srv/b.csv.gz"}),
        ("DO $$ BEGIN EXECUTE 'COPY t FROM ''/srv/c.csv'''; END $$;", {"/srv/c.csv"}),
    ],
)
def test_words_that_may_name_a_file(script: str, named: set[str]) -> None:
    assert named <= named_words(script)


@pytest.mark.parametrize(
    "script",
    [
        "-- \\copy t FROM data.csv\n/* COPY t FROM '/data.csv' */",
        "COPY t FROM STDIN;\n/data.csv\tdata.csv\n\\.\n",
        "\\copy t from stdin\n/data.csv\n\\.\n",
        "SELECT 'data.csv', 1;",
        f"\\copy t FROM {'a' * 5000}data.csv\n",
    ],
)
def test_words_that_name_no_file(script: str) -> None:
    assert not {word for word in named_words(script) if word.endswith("data.csv")}


@pytest.mark.parametrize(
    "script",
    [
        "\\copy t TO 'my data.csv' CSV\n",
        "\\copy (SELECT a, to_char(b, 'x') FROM t) to data.csv with (format csv, delimiter 'to')\n",
        "COPY (SELECT 1 FROM t) TO '/srv/data.csv';",
        "\\o data.csv\nSELECT 1;\n",
        "\\o 'data.csv'\nSELECT 1;\n\\o\n",
        "SELECT 1 \\g (format=unaligned) data.csv\n",
        "SELECT 1 \\gx data.csv\n\\w data.csv\n\\lo_export 17 data.csv\n",
        "\\o data.csv\nSELECT 1;\n\\o\n\\copy t FROM data.csv\n",
    ],
)
def test_files_that_are_written(script: str) -> None:
    assert not {word for word in named_words(script) if word.endswith("data.csv") or word == "my"}


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("\\copy t FROM data.csv\n\\copy t TO data.csv\n", {"data.csv"}),
        ("\\copy (SELECT pg_read_file('/srv/in.txt')) TO out.txt\n", {"/srv/in.txt"}),
        ("\\copy t TO PROGRAM 'join - in.txt'\n\\o | join - more.txt\n", {"in.txt", "more.txt"}),
        ("COPY t FROM '/srv/in.csv' (NULL 'to'); ALTER SYSTEM SET a TO '/srv/b';", {"/srv/in.csv", "/srv/b"}),
        ("ALTER TABLE copy RENAME TO data;\n\\copy t FROM data\n", {"data"}),
    ],
)
def test_what_is_read_beside_what_is_written(script: str, named: set[str]) -> None:
    assert named <= named_words(script) and "out.txt" not in named_words(script)


def test_what_follows_rows_of_a_backslash_copy_is_seen() -> None:
    script = "\\copy a from stdin\n1;\n\\.\nCREATE TABLE b ();\n\\copy b from 'b.csv'\n"
    assert backslash_commands(script, psql=True) == [(1, "copy"), (5, "copy")]
    assert "b.csv" in named_words(script)


@pytest.mark.parametrize("script", ["\\! date\n", "\\set a `date`\n", "\\copy t from program 'date'\n", "COPY t FROM PROGRAM\n'date';"])
def test_programs_that_are_run(script: str) -> None:
    assert runs_programs(script)


def test_words_that_only_sound_like_it() -> None:
    assert not runs_programs("SELECT program FROM t; -- FROM PROGRAM 'x'\nSELECT 'from program' FROM program_list;\n\\copy t from a.csv\n")


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
    assert all(word and "\0" not in word for word in named_words(script))
