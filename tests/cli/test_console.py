"""Foreign texts on the terminal: neither control characters nor markup."""

import io
import json
import re
from pathlib import Path

import pytest
from rich.live import Live
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from pgherd.cli.console import CleanConsole
from pgherd.cli.main import run
from pgherd.cli.output import print_document
from pgherd.cli.run_study import TerminalProgress
from pgherd.store.run_directory import RunDirectory

SOURCES = Path(__file__).parents[2] / "src" / "pgherd"
HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e [/x] [link=https://x]here[/link] :smile: [red]"
CLEANED = "\N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}[2J"
MARKUP = "[/x] [link=https://x]here[/link] :smile: [red]"


def controls(text):
    return [c for c in text if not c.isprintable() and c != "\n"]


def table(text):
    cells = Table(title=text)
    cells.add_column(text, overflow="fold")
    cells.add_row(text)
    return cells


@pytest.mark.parametrize("make", [str, Text, table])
def test_foreign_text_is_printed_without_control_characters_and_markup(make, capsys):
    CleanConsole().print(make(HOSTILE))
    printed = capsys.readouterr().out
    assert not controls(printed) and MARKUP in " ".join(printed.split())


def test_a_live_display_still_moves_the_cursor_but_its_texts_do_not(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    console = CleanConsole()
    with Live(Text(HOSTILE), console=console, auto_refresh=False) as live:
        live.update(Text("a\x1b[2Jb"), refresh=True)
    printed = capsys.readouterr().out
    assert "\x1b[?25l" in printed and "\x1b[2J" not in printed and "\x07" not in printed


def test_progress_has_no_markup(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    console = CleanConsole(stderr=True)
    watcher = TerminalProgress(console)
    watcher._live = True
    with watcher:
        watcher.setup(HOSTILE)
        watcher.note(HOSTILE)
    printed = capsys.readouterr().err
    assert MARKUP in " ".join(printed.split()) and "\x07" not in printed and "\x1b]" not in printed
    assert all(column.markup is False for column in watcher._progress.columns if isinstance(column, TextColumn))
    assert isinstance(watcher._progress, Progress)


class ClosedPipe(io.StringIO):
    def flush(self):
        raise BrokenPipeError


def test_a_closed_pipe_ends_an_answer_but_no_progress():
    answer, progress = CleanConsole(), CleanConsole(stderr=True)
    answer.file, progress.file = ClosedPipe(), ClosedPipe()
    with pytest.raises(BrokenPipeError):
        answer.print("an answer")
    progress.print("a trial")
    progress.print("another one")
    assert progress.file.getvalue() == "a trial\n"


def test_a_message_has_no_escape_sequences(runs, name, capsys):
    file = runs / name / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema": "\x1b]0;x\x07\x1b[2J"}))
    assert run(["show", name, "--runs-dir", str(runs)]) == 2
    message = capsys.readouterr().err
    assert "has schema" in message and not controls(message)


def test_the_error_of_a_run_breaks_neither_the_list_nor_the_terminal(runs, name, capsys):
    directory = RunDirectory(runs / name)
    directory.save(directory.record().model_copy(update={"state": "failed", "analysis": None, "error": HOSTILE}))
    assert run(["list", "--runs-dir", str(runs)]) == 0
    printed = capsys.readouterr()
    assert name in printed.out and "[/x]" in printed.out and not controls(printed.out + printed.err)


def test_a_document_has_no_control_characters(capsys):
    print_document({"name": HOSTILE + "\U000e0001é"})
    printed = capsys.readouterr().out
    assert not controls(printed) and "é" in printed and json.loads(printed) == {"name": HOSTILE + "\U000e0001é"}


def test_there_is_one_console():
    paths = {path.relative_to(SOURCES).as_posix() for path in SOURCES.rglob("*.py") if re.search(r"\bConsole\(", path.read_text())}
    assert not paths, "use answer_console or progress_console"
