import json
import os

import pytest

from pgherd.store import live_state
from pgherd.store.live_state import (
    FILE,
    LiveContainer,
    LivePhase,
    LiveState,
    LiveTrial,
    TailReader,
    output_dir,
    read_live,
    remove_live,
    spool_file,
    write_live,
)

TRIAL = LiveTrial(
    number=7,
    point={"databases": 2},
    repeat=1,
    reason="planned",
    begun=100.0,
    phases=(LivePhase(name="steady", warmup=1, seconds=9, loads={"local/c01/pg/bench": "pgbench"}),),
    containers={"c01": LiveContainer(vcpus=0.5, memory=2**30)},
    output="/var/cache/out/0007",
)
STATE = LiveState(pid=1, written=100.5, trials_remaining=3, seconds_left=30.0, overhead=0.7, trial=TRIAL, phase=0, phase_begun=100.2)


def test_a_state_is_read_as_it_was_written(tmp_path):
    write_live(tmp_path, STATE)
    assert read_live(tmp_path) == STATE
    assert json.loads((tmp_path / FILE).read_text())["schema"] == "pgherd/live/1"
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_state_is_replaced_not_overwritten(tmp_path):
    write_live(tmp_path, STATE)
    with open(tmp_path / FILE) as before:
        write_live(tmp_path, STATE.model_copy(update={"step": "stopping"}))
        assert LiveState.model_validate_json(before.read()) == STATE, "who has it open still reads the former one whole"


def test_no_state_is_none(tmp_path):
    assert read_live(tmp_path) is None
    (tmp_path / FILE).write_text('{"schema": "pgherd/live/2", "pid": 1, "written": 0}')
    assert read_live(tmp_path) is None, "of a newer schema"
    (tmp_path / FILE).write_text('{"schema": "pgherd/li')
    assert read_live(tmp_path) is None


def test_what_a_later_version_adds_is_passed_over(tmp_path):
    (tmp_path / FILE).write_text('{"schema": "pgherd/live/1", "pid": 1, "written": 0, "hosts": ["a"]}')
    assert read_live(tmp_path) == LiveState(pid=1, written=0)


def test_at_the_end_nothing_is_left(tmp_path):
    write_live(tmp_path, STATE)
    (tmp_path / f".{FILE}.0123456789ab").touch()
    remove_live(tmp_path)
    remove_live(tmp_path)
    assert not list(tmp_path.iterdir())


def test_where_things_lie(tmp_path):
    assert spool_file(tmp_path, 7) == tmp_path / "trials/0007.partial/spool.jsonl"
    assert str(output_dir(TRIAL, 0, "local/c01/pg/bench")) == "/var/cache/out/0007/00/local.c01.pg.bench"
    assert output_dir(TRIAL.model_copy(update={"output": None}), 0, "t") is None


def test_lines_come_once_and_whole(tmp_path):
    file = tmp_path / "spool.jsonl"
    lines = TailReader(file)
    assert list(lines) == [], "it is not there yet"
    with open(file, "ab", buffering=0) as growing:
        growing.write(b"one\ntwo\nthr")
        assert list(lines) == [b"one", b"two"]
        assert list(lines) == []
        growing.write(b"ee\n\nfour\n")
        assert list(lines) == [b"three", b"", b"four"]
    file.unlink()
    assert list(lines) == []


def test_a_late_reader_takes_the_end_and_what_it_always_needs(tmp_path):
    file = tmp_path / "spool.jsonl"
    old = [b'{"sources": [1]}', *(b'{"t": %d}' % number for number in range(1000)), b'{"sources": [2]}']
    new = [b'{"t": %d}' % number for number in range(1000, 1010)]
    file.write_bytes(b"".join(line + b"\n" for line in [*old, *new]))
    lines = TailReader(file, recent=100, always=b'{"sources"')
    result = list(lines)
    assert result[:2] == [old[0], old[-1]]
    assert result[2:] == [*old, *new][-len(result[2:]) :] and 5 <= len(result[2:]) <= 12
    with open(file, "ab") as growing:
        growing.write(b"more\n" * 100)
    assert list(lines) == [b"more"] * 100, "later it reads everything"


def test_a_short_file_is_read_from_its_start(tmp_path):
    file = tmp_path / "f"
    file.write_bytes(b"a\nb\n")
    assert list(TailReader(file, recent=100)) == [b"a", b"b"]


@pytest.mark.parametrize("kind", ["fifo", "link", "sparse"])
def test_what_is_no_file_of_lines_yields_nothing(tmp_path, kind):
    file = tmp_path / "spool.jsonl"
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "link":
        file.symlink_to("/etc/passwd")
    else:
        with open(file, "wb") as opened:
            opened.truncate(2**40)
    assert list(TailReader(file)) == [] and list(TailReader(file, recent=1000, always=b"{")) == []


def test_a_file_of_more_than_can_be_read_at_once_is_read_in_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(live_state, "_MAX_BYTES_AT_ONCE", 1000)
    monkeypatch.setattr(live_state, "_CHUNK_BYTES", 100)
    file, lines = tmp_path / "spool.jsonl", [b"%09d" % i for i in range(1000)]
    file.write_bytes(b"".join(line + b"\n" for line in lines))
    reader = TailReader(file)
    assert list(reader) == lines[:100] and list(reader) == lines[100:200]
    assert [*TailReader(file, recent=50)][-4:] == lines[-4:], "the middle is passed over"


def test_a_link_of_a_foreign_run_is_replaced_and_not_followed(tmp_path):
    target = tmp_path / "target"
    target.write_text("secret")
    run = tmp_path / "run"
    run.mkdir()
    for name in (FILE, f"{FILE}.tmp"):
        (run / name).symlink_to(target)
    write_live(run, STATE)
    assert target.read_text() == "secret" and read_live(run) == STATE


def test_a_link_a_pipe_and_a_device_have_no_lines(tmp_path):
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    assert [list(TailReader(tmp_path / name, recent=100)) for name in ("link", "pipe", "device")] == [[], [], []]
