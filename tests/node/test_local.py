import os
import subprocess

import pytest

from pgherd.node.local import LocalNode


def test_files_are_written_whole_and_read_back(tmp_path):
    node = LocalNode()
    file = str(tmp_path / "knob")
    node.write(file, b"12")
    node.write(file, b"3")
    assert node.read(file) == b"3"
    assert node.exists(file) and node.listdir(str(tmp_path)) == ["knob"]


def test_directories_get_the_mode_and_trees_vanish(tmp_path):
    node = LocalNode()
    path = tmp_path / "a" / "b"
    node.make_dir(str(path), mode=0o700)
    assert os.stat(path).st_mode & 0o777 == 0o700
    node.remove_dir(str(path))
    assert not path.exists()
    node.remove_tree(str(tmp_path / "a"))
    node.remove_tree(str(tmp_path / "a"))
    assert not (tmp_path / "a").exists()


def test_a_missing_file_is_an_os_error():
    with pytest.raises(FileNotFoundError):
        LocalNode().read("/nonexistent")


def test_a_directory_that_is_still_written_to_goes_once_the_writer_has_ended(tmp_path):
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    for number in range(2000):
        (doomed / f"old{number}").touch()
    script = f"i=0; while [ $i -lt 3000 ]; do : > {doomed}/new$i || exit 0; i=$((i+1)); done 2>/dev/null"
    with subprocess.Popen(["sh", "-c", script]) as writer:
        LocalNode().remove_tree(str(doomed))
        writer.wait(30)
    assert not doomed.exists()
