from typing import Annotated, Literal

import pytest
from pydantic import BeforeValidator, ValidationError

from pgherd.study.option import LIMITS, WORKLOAD, StudyRequest, declared, option, redefined


def _share(value):
    return float(value[:-1]) / 100 if isinstance(value, str) else value


Share = Annotated[float, BeforeValidator(_share)]


class Shares(StudyRequest):
    one: Share = option(0.02, "One.")
    perhaps: Share | None = option(None, "Perhaps.")
    several: tuple[Share, ...] | None = option(None, "Several.")


class Base(StudyRequest):
    count: int | None = option(None, "A count.", WORKLOAD, metavar="N", computed="two", gt=0)
    kind: Literal["x", "y"] = option("x", "A kind.", LIMITS)
    sizes: tuple[int, ...] | None = option(None, "Sizes.")
    files: tuple[str, ...] = option((), "Files.", repeated=True)
    quick: bool = option(False, "Be quick.")
    careful: bool | None = option(None, "Be careful.")


class Narrow(Base):
    LEFT_OUT = {"quick": "this one is never quick"}  # noqa: RUF012

    count: int | None = redefined(Base, "count", 5)


def kinds(model):
    return {item.name: (item.kind, item.default_text) for item in declared(model)}


def test_kinds_and_defaults_follow_from_the_field():
    assert kinds(Base) == {
        "count": ("whole number", "two"),
        "kind": ("choice", "x"),
        "sizes": ("list", ""),
        "files": ("repeated", ""),
        "quick": ("flag", ""),
        "careful": ("switch", ""),
    }


def test_a_type_that_reads_its_own_notation_is_text():
    assert [(item.kind, item.element) for item in declared(Shares)] == [("text", str), ("text", str), ("list", str)]
    assert Shares(perhaps="3%", several=("1%", 0.5)) == Shares(perhaps=0.03, several=(0.01, 0.5))


def test_options_are_ordered_by_section():
    assert [item.name for item in declared(Base)] == ["sizes", "files", "quick", "careful", "count", "kind"]


def test_a_redefined_option_keeps_its_limits():
    assert kinds(Narrow)["count"] == ("whole number", "5")
    with pytest.raises(ValidationError, match="greater than 0"):
        Narrow(count=0)


def test_an_option_that_is_left_out_is_refused_with_the_reason():
    assert "quick" not in kinds(Narrow)
    assert Narrow(quick=False).quick is False, "its default contradicts nothing"
    with pytest.raises(ValidationError, match="this one is never quick"):
        Narrow(quick=True)
