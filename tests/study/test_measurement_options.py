import pytest
from pydantic import ValidationError

from pgherd.study.measurement_options import MeasurementRequest, RepeatsRequest


@pytest.mark.parametrize(("asked", "number"), [({}, 7), ({"repeats": 2}, 2), ({"min_repeats": 3}, 3)])
def test_the_number_of_planned_repeats(asked, number):
    assert RepeatsRequest(**asked).planned_repeats(7) == number


@pytest.mark.parametrize("request_of", [RepeatsRequest, MeasurementRequest])
def test_an_exact_and_a_minimum_number_of_repeats_exclude_each_other(request_of):
    with pytest.raises(ValidationError, match="give one of them"):
        request_of(repeats=2, min_repeats=2)
