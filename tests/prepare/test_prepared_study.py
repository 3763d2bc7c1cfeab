import hashlib
import re
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from pgherd.model.analysis import Thresholds
from pgherd.model.errors import UsageError
from pgherd.model.load import Script
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.prepare import merge, prepared_study
from pgherd.prepare.merge import over_hosts
from pgherd.prepare.prepared_study import input_digests, most_pages, open_workspace, prepare, thresholds, with_inputs
from pgherd.studies.density.options import DensityOptions
from pgherd.studies.network.options import NetworkOptions
from pgherd.study.study import studies, study_of


def options(**changes):
    return DensityOptions(host_cores=2, host_memory=2**30, vcpus=1, pg_bin="/pg/bin", pg_version="18.1", databases=(1, 2), **changes)


def test_a_threshold_is_changed_and_the_rest_stays():
    assert thresholds(("max_steal=0.1",)) == Thresholds(max_steal=0.1)
    assert thresholds(("max_steal=10%",)) == Thresholds(max_steal=0.1)
    assert thresholds(()) == Thresholds()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stael=0.1", "no threshold 'stael'; use one of min_overlap"),
        ("max_steal", "--threshold max_steal: '' is not a value for max_steal; its default is 0.02"),
        ("max_steal=0,1", "'0,1' is not a value for max_steal"),
        ("max_steal=1_0", "'1_0' is not a value for max_steal"),
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


DEBIAN = "17.2 (Debian 17.2-1)"


@pytest.mark.parametrize(
    ("recorded", "usable"),
    [(DEBIAN, True), ("17.2", True), ("17.2 (Debian 17.2-2)", False), ("17.1", False), ("17.1 (Debian 17.2-1)", False)],
)
def test_a_run_goes_on_with_the_build_that_it_began_with(monkeypatch, recorded, usable):
    found = Installation("/pg", "17.2", 17, "system", DEBIAN)
    monkeypatch.setattr(prepared_study.installations, "choose", lambda node, pg_bin: found)
    with (
        nullcontext()
        if usable
        else pytest.raises(UsageError, match=re.escape(f"is PostgreSQL {DEBIAN} now, but the run started with {recorded}"))
    ):
        assert prepared_study.runnable(LocalNode(), "/pg", recorded, SimpleNamespace(account=None)) is found


def test_preparations_that_never_run_at_once_need_the_most_of_each_size():
    created = [SimpleNamespace(huge_pages=result) for result in ({}, {2: 5, 4: 1}, {2: 3, 8: 7})]
    assert most_pages(created) == {2: 5, 4: 1, 8: 7}


pytestmark = pytest.mark.usefixtures("own_directories")


def test_its_directory_is_removed_after_an_error_too():
    with pytest.raises(KeyError), open_workspace(LocalNode(), None, dry=True) as workspace:
        assert workspace.directory.is_dir()
        raise KeyError
    assert not workspace.directory.exists()


def test_servers_of_a_user_that_is_not_there_are_refused():
    with pytest.raises(UsageError, match="no-such-user"), open_workspace(LocalNode(), "no-such-user", dry=True):
        pass


@pytest.mark.parametrize("name", sorted(studies()))
def test_everything_that_a_user_may_give_has_a_default(name):
    assert study_of(name).request_model()


@pytest.mark.usefixtures("own_directories")
@pytest.mark.parametrize(
    ("study", "requested", "message"),
    [
        ("density", {"duration": "0s"}, "--duration 0s: input should be greater than 0"),
        ("density", {"time_budget": "0"}, "--time-budget 0: input should be greater than 0"),
        ("scaling", {"duration": "0ms"}, "--duration 0ms: input should be greater than 0"),
    ],
)
def test_a_time_of_nothing_is_the_users_fault(study, requested, message):
    with pytest.raises(UsageError, match=message):
        prepare(LocalNode(), study, study_of(study).request_model(**requested), dry=True)


def test_options_that_nobody_asked_for_are_not(monkeypatch):
    monkeypatch.setattr("pgherd.studies.database_size.prepare.prepare", lambda *_: study_of("database-size").options(scales=()))
    with pytest.raises(ValidationError):
        prepare(LocalNode(), "database-size", study_of("database-size").request_model(), dry=True)


def test_how_studies_use_a_cluster():
    uses = {name: study.hosts for name, study in studies().items()}
    one = {"balloon-limits", "scaling", "io-profile", "hugepages", "working-set", "consolidation", "isolation", "place-verify"}
    assert {name for name, use in uses.items() if use == "one"} == one
    assert {name for name, use in uses.items() if use == "in turn"} == {"compare"}
    assert uses["density"] == uses["exec"] == "together"


def test_studies_of_hosts_are_completed_by_each_of_them():
    assert {name for name, study in studies().items() if study.each_host} == {"disk", "exec", "network"}


def test_what_each_has_completed_becomes_one(monkeypatch):
    links = [{"name": "b", "kind": "hosts", "near": "a", "host": "b"}]
    item = NetworkOptions(links=links, host_cores=2, iperf3_version="3.12")
    each = {"a": SimpleNamespace(options=item), "b": SimpleNamespace(options=item.model_copy(update={"iperf3_version": "3.16"}))}
    monkeypatch.setattr(merge, "join_hosts", lambda prepared, options: (list(prepared), options))
    hosts, options = over_hosts("network", each)
    assert hosts == ["a", "b"] and options.iperf3_version == "3.12 on a, 3.16 on b"
