import pytest

from pgherd.model.errors import CapabilityError, UsageError
from pgherd.node.local import LocalNode
from pgherd.studies.database_size.options import DatabaseSizeRequest
from pgherd.studies.database_size.prepare import prepare

pytestmark = pytest.mark.usefixtures("own_directories")


def prepared(**asked):
    return prepare(LocalNode(), DatabaseSizeRequest(**asked), dry=True)


def test_a_plain_request_is_completed(own_directories):
    found = prepared()
    assert found.options.scales == (1, 2, 5, 10, 20, 50) and found.options.pg_version == found.installation.version
    assert found.environment.runtime == "process", "no control group is needed where nothing runs"
    assert 800e6 < found.disk < 1e9, "the largest one decides, since they come one at a time"
    assert not own_directories.joinpath("cache").exists()


def test_a_time_budget_is_in_seconds():
    assert prepared(time_budget="10m").options.time_budget == 600 and prepared().options.time_budget is None


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"scales": (10_000_000,)}, CapabilityError, "a database of scale 10000000 needs .* are free"),
        ({"pg_bin": "/nonexistent"}, UsageError, "/nonexistent"),
        ({"run_as": "no-such-account"}, UsageError, "no user 'no-such-account'"),
    ],
)
def test_what_cannot_be_done_is_said(asked, error, message):
    with pytest.raises(error, match=message):
        prepared(**asked)
