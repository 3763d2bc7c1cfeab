import hashlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.model.analysis import Thresholds
from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.node.local import LocalNode
from pgherd.prepare.prepared_study import input_digests, most_pages, thresholds, with_inputs
from pgherd.studies.density.options import DensityOptions


def options(**changes):
    return DensityOptions(host_cores=2, host_memory=2**30, vcpus=1, pg_bin="/pg/bin", pg_version="18.1", databases=(1, 2), **changes)


def test_a_threshold_is_changed_and_the_rest_stays():
    assert thresholds(("max_steal=0.1",)) == Thresholds(max_steal=0.1)
    assert thresholds(()) == Thresholds()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stael=0.1", "no threshold 'stael'; use one of min_overlap"),
        ("max_steal", "--threshold max_steal: '' is not a value for max_steal; its default is 0.02"),
        ("max_steal=much", "'much' is not a value for max_steal"),
        ("min_overlap=1.5", "'1.5' is not a value for min_overlap; its default is 0.95"),
    ],
)
def test_a_wrong_threshold_is_refused(text, message):
    with pytest.raises(UsageError, match=message):
        thresholds((text,))


def test_builtin_scripts_need_no_copies(tmp_path):
    assert with_inputs(LocalNode(), options(), tmp_path / "inputs") == options()
    assert not (tmp_path / "inputs").exists()


def test_the_users_files_become_part_of_the_run(tmp_path):
    script, init = tmp_path / "a.sql", tmp_path / "fill.sql"
    script.write_text("SELECT 1;\n")
    init.write_text("CREATE TABLE t (a int);\n")
    study_options = options(scripts=(Script(source=str(script), weight=3),), init=str(init), workload="script")
    inputs = with_inputs(LocalNode(), study_options, tmp_path / "run" / "inputs")
    script.unlink()
    init.unlink()
    assert inputs.scripts[0].weight == 3
    with open(inputs.scripts[0].source) as file:
        assert file.read() == "SELECT 1;\n"
    with open(inputs.init) as file:
        assert file.read() == "CREATE TABLE t (a int);\n"


def test_copies_are_known_by_their_contents(tmp_path, monkeypatch):
    monkeypatch.delattr(Path, "read_bytes")  # they may be larger than memory
    assert input_digests(tmp_path / "none") == {}
    (tmp_path / "arm").mkdir()
    (tmp_path / "0-a.sql").write_bytes(b"")
    (tmp_path / "arm/0-a.sql").write_bytes(b"SELECT 1;\n")
    assert input_digests(tmp_path) == {"0-a.sql": "e3b0c44298fc", "arm/0-a.sql": hashlib.sha256(b"SELECT 1;\n").hexdigest()[:12]}


def test_preparations_that_never_run_at_once_need_the_most_of_each_size():
    created = [SimpleNamespace(huge_pages=result) for result in ({}, {2: 5, 4: 1}, {2: 3, 8: 7})]
    assert most_pages(created) == {2: 5, 4: 1, 8: 7}
