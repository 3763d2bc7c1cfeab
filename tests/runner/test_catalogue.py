import pytest

from pgherd.model.errors import UsageError
from pgherd.runner.catalogue import STUDIES, request_of, study_of


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_study_has_its_parts(name):
    assert study_of(name).name == name
    assert request_of(name)()  # everything that a user may say has a default
    assert study_of(name).options.model_fields


def test_an_unknown_study_is_said_with_those_that_exist():
    with pytest.raises(UsageError, match="no study 'densty'; there are compare, compression"):
        study_of("densty")
