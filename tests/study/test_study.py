import pkgutil
import subprocess
import sys

import pytest

import pgherd.studies
from pgherd.model.errors import UsageError
from pgherd.study.study import Study, labels, studies, study_of, table_view


@pytest.fixture
def tiny(added_study):
    return study_of("tiny")


def test_a_study_is_found_by_its_directory(tiny):
    assert isinstance(tiny, Study) and "tiny" in studies()
    assert tiny.request_model().words == 500 and tiny.options.__name__ == "TinyOptions"
    assert len(tiny.propose(tiny.options(levels=(1, 9), words=2, marker=""), []).trials) == 2
    assert labels()["packed"] == "bytes after compression"


def test_a_hook_that_is_missing_is_none(tiny):
    assert tiny.hook("prepare", "over_hosts") is None and tiny.hook("probe", "measure") is None
    assert tiny.hook("prepare", "prepare") is not None


def test_an_import_that_fails_inside_a_hook_is_raised(tiny, added_study):
    (added_study / "figures.py").write_text("import no_such_module\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        tiny.hook("figures", "x")


def test_an_unknown_study_is_refused():
    with pytest.raises(UsageError, match="there is no study 'x'; there are balloon-limits, compare, "):
        study_of("x")


@pytest.mark.parametrize("name", sorted(studies()))
def test_the_modules_of_each_study_exist(name):
    study = study_of(name)
    assert study.request_model.__name__ == study.request and study.options.__name__ == study.resolved
    for module in ("prepare", study.propose_module, study.analyse_module, *study.figures, *filter(None, [study.overlays])):
        study.module(module)


def test_every_package_of_studies_is_one():
    assert len(studies()) == sum(iter_module.ispkg for iter_module in pkgutil.iter_modules(pgherd.studies.__path__))


def test_no_two_studies_name_a_column_differently():
    observed: dict[str, str] = {}
    for study in studies().values():
        for name, text in study.labels.items():
            assert observed.setdefault(name, text) == text


def test_a_table_without_a_view_has_an_empty_one():
    assert not table_view("no such table").columns


def test_options_are_not_imported_before_they_are_needed():
    code = "import sys; from pgherd.study.study import studies; studies(); sys.exit('pgherd.studies.density.options' in sys.modules)"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
