from __future__ import annotations

import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from pgherd.runtimes.vm.log_pipe import KEPT_BYTES, LogPipe

LINES = 40_000
PRINTS = f'i=0; while [ $i -lt {LINES} ]; do i=$((i + 1)); echo "line $i"; done > "$0"'


def test_only_the_end_is_kept_and_nothing_is_on_disk(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with LogPipe(str(path)) as log:
        subprocess.run(["sh", "-c", PRINTS, str(path)], check=True, timeout=60)
        text = log.text()
    assert len(text) == KEPT_BYTES and text.endswith(f"line {LINES - 1}\nline {LINES}\n")
    assert stat.S_ISFIFO(path.stat().st_mode) and path.stat().st_size == 0


def test_a_text_is_complete_at_once_and_stays_after_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log = LogPipe(str(path))
    for number in range(20):  # the thread is in its pause, or reads at the same time
        with open(path, "a") as file:
            file.write(f"{number}\n")
        assert log.text().split() == [str(one) for one in range(number + 1)]
    with open(path, "a") as file:
        file.write("last")
        file.flush()
        log.close()  # while the program still has it open
    assert log.text().split()[-1] == "last"
    log.close()
    assert not [thread for thread in threading.enumerate() if thread is log._thread]
    with pytest.raises(OSError, match="No such device or address"):  # nobody reads any more
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)


def test_what_has_its_name_is_replaced_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("root's own")
    path = tmp_path / "log"
    path.symlink_to(tmp_path / "secret")
    for _ in range(2):
        with LogPipe(str(path)) as log:
            assert stat.S_ISFIFO(path.lstat().st_mode) and stat.S_IMODE(path.stat().st_mode) == 0o600 and log.text() == ""
    assert (tmp_path / "secret").read_text() == "root's own"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_it_belongs_to_whom_its_directory_belongs(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with LogPipe(str(tmp_path / "log")):
        assert (tmp_path / "log").stat().st_uid == 65534
