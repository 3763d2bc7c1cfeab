import pytest

from pgherd.studies.hugepages.options import HugepagesRequest


@pytest.mark.parametrize(
    ("asked", "message"),
    [({"huge_pages": "2MB"}, "name them with pages"), ({"repeats": 3}, "give blocks"), ({"precision": "60%"}, "less than")],
)
def test_what_makes_no_sense_for_it(asked, message):
    with pytest.raises(ValueError, match=message):
        HugepagesRequest(**asked)
