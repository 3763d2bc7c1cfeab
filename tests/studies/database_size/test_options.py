import pytest
from pydantic import ValidationError

from pgherd.studies.database_size.options import PREDICTED, SCALES, DatabaseSizeRequest, deployment


def test_scales_are_put_in_order(options):
    assert options(scales=(20, 1, 5, 1)).scales == (1, 5, 20)
    assert options().scales == SCALES and options().predict == PREDICTED


@pytest.mark.parametrize("scales", [(), (0, 1), (-5,)])
def test_what_is_no_scale_is_refused(options, scales):
    with pytest.raises(ValidationError, match="give one or more scales, each at least 1"):
        options(scales=scales)
    with pytest.raises(ValidationError):
        DatabaseSizeRequest(predict=scales)


def test_one_server_with_one_database_and_no_limits(options):
    ((_, _, container, server, database),) = deployment(options(), 7).databases()
    assert (database.scale, server.version, container.runtime, container.cpu_mode, container.memory) == (7, "18.6", "process", "none", None)
