import pytest
from pydantic import ValidationError

from pgherd.studies.disk.options import DiskRequest


def test_everything_has_a_default():
    assert DiskRequest().volume == () and DiskRequest().together and DiskRequest().rate is None


@pytest.mark.parametrize("wrong", [{"iodepth": 0}, {"ioengine": "nonsense"}, {"repeats": 0}, {"colour": "red"}])
def test_what_it_cannot_be(wrong):
    with pytest.raises(ValidationError):
        DiskRequest.model_validate(wrong)
