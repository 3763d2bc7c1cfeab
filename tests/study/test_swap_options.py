import pytest
from pydantic import ValidationError

from pgherd.study.database_options import DatabaseRequest
from pgherd.study.swap_options import SwapRequest


class Both(DatabaseRequest, SwapRequest):
    """As a study's request has it."""


def test_a_studys_request_has_it_beside_its_own():
    asked = Both(swap="zram", swap_size="1GB", host_cores=2)
    assert (asked.swap, str(asked.swap_size), asked.host_cores, asked.zram_mem_limit) == ("zram", "1GB", 2, None)


def test_another_kind_is_refused():
    with pytest.raises(ValidationError):
        SwapRequest(swap="disk")
