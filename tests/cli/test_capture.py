"""``pgherd capture`` on bad input. tests/it/test_capture.py captures from servers."""

from __future__ import annotations

import pytest

from pgherd.cli.main import run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["dbname=x"], "either --out DIR for a new capture, or --compare DIR"),
        (["dbname=x", "--out", "{new}", "--compare", "{old}"], "either --out DIR for a new capture, or --compare DIR"),
        (["what?", "--out", "{new}"], "DSN what?: this is not a DSN"),
        (["host=/nonexistent", "--out", "{new}"], "no connection"),
        (["host=/nonexistent", "--out", "{old}"], "is not empty"),
        (["host=/nonexistent", "--compare", "{old}"], "is not a file of pgherd capture"),
        (["host=/nonexistent", "--compare", "{empty}"], "requires the directory of a capture"),
        (["dbname=x", "--out", "{new}", "--duration", "0s"], "less than 1 s"),
        (["dbname=x", "--out", "{new}", "--duration", "soon"], "soon"),
    ],
)
def test_bad_input_is_one_message(arguments, message, capsys, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old/capture.json").write_text('{"fingerprint": {"seconds": -1}}')
    (tmp_path / "empty").mkdir()
    places = {name: str(tmp_path / name) for name in ("new", "old", "empty")}
    assert run(["capture", *(word.format(**places) for word in arguments)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "new").exists()
