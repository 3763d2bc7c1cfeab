import subprocess
import sys

import pytest

from pgherd.model.errors import UsageError
from pgherd.studies.registry import STUDIES, study_of


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_a_study_is_found_by_its_name(name):
    assert study_of(name).name == name


def test_an_unknown_study_is_said_with_those_that_exist():
    with pytest.raises(UsageError, match="no study 'densty'; there are compare, compression"):
        study_of("densty")


def test_nothing_is_imported_before_it_is_asked_for():
    code = "import sys, pgherd.studies.registry; sys.exit(any(m.startswith('pgherd.studies.density') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0
