from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from pgherd.ui import rendering


def test_everything_is_escaped():
    text = rendering.environment().from_string("{{ x }} {{ x|clean }} {{ x|quoted }}").render(x="<script>'\"&\x1b")
    assert "<" not in text and "\x1b" not in text.split()[1] and "%3Cscript%3E" in text


def test_a_name_that_is_not_there_is_an_error():
    with pytest.raises(UndefinedError):
        rendering.environment().from_string("{{ nothing }}").render()


@pytest.mark.parametrize("name", rendering.environment().list_templates())
def test_every_template_can_be_read(name):
    if name.endswith(".j2"):
        rendering.environment().get_template(name)


@pytest.mark.parametrize("seconds, text", [(1_790_000_000.0, "14:13:20"), (None, "–"), (float("nan"), "–"), (1e20, "–")])
def test_clock(seconds, text):
    assert rendering.clock(seconds) == text


def test_day_and_clock():
    assert rendering.day_and_clock(1_790_000_000.0) == "2026-09-21 14:13"


@pytest.mark.parametrize("count, text", [(0, "0 trials"), (1, "1 trial"), (3, "3 trials")])
def test_plural(count, text):
    assert rendering.plural(count, "trial") == text
