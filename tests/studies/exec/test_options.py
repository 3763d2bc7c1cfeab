import json

import pytest
from pydantic import ValidationError

from pgherd.studies.exec.options import ExtractedValue


def test_the_load_carries_the_command_and_all_about_it(options):
    values = ({"name": "rate", "pattern": r"(\d+)", "unit": "MB/s"},)
    load = options(env={"A": "1"}, cwd="/src", as_root=True, extract=values).load()
    assert load.driver == "command" and json.loads(load.options["argv"]) == ["make", "-j2"]
    assert {name: value for name, value in load.options.items() if name != "argv"} == {
        "env:A": "***",
        "cwd": "/src",
        "privileged": "1",
        "value:rate": r"(\d+)",
    }
    assert options().load().options == {"argv": '["make", "-j2"]'}


def test_every_host_is_in_the_deployment(options):
    assert [host.name for host in options(hosts=("a", "b")).deployment().hosts] == ["a", "b"]


@pytest.mark.parametrize("pattern", ["(", "(a)(b)", "[z-a]"])
def test_a_pattern_has_to_be_one(pattern):
    with pytest.raises(ValidationError):
        ExtractedValue(name="v", pattern=pattern)


def test_a_group_that_does_not_capture_is_none():
    assert ExtractedValue(name="v", pattern=r"(?:a|b)=(\d+)").pattern == r"(?:a|b)=(\d+)"


def test_no_command_is_refused(options):
    with pytest.raises(ValidationError):
        options(command=())
