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


@pytest.mark.parametrize("name", [name for name in rendering.asset_names() if name != rendering.VEGA])
def test_own_files_are_there(name):
    result = rendering.asset(name)
    assert result is not None and result.data and result.media_type.partition("/")[0] in ("text", "image")


@pytest.mark.parametrize("name", ["", "..", "../app.py", "app.py", "style.css/..", "/etc/passwd", "STYLE.CSS"])
def test_nothing_else_is(name):
    assert rendering.asset(name) is None


def test_the_address_changes_with_the_content(monkeypatch):
    before = rendering.asset_path("ui.js")
    rendering.asset_path.cache_clear()
    monkeypatch.setattr(rendering, "_read", lambda name: b"other")
    try:
        assert rendering.asset_path("ui.js") != before
    finally:
        rendering.asset_path.cache_clear()


def test_the_style_sheet_builds_on_the_report_s():
    data = rendering.asset("style.css").data.decode()
    assert data.index("--paper: #ffffff") < data.index(".skip")


def test_no_file_asks_for_anything_elsewhere():
    for name in rendering.asset_names():
        if name in (rendering.VEGA, "htmx.min.js", "icon.svg"):
            continue  # libraries name addresses in texts; that none is asked for the browser tests see
        assert b"http:" not in rendering.asset(name).data and b"https:" not in rendering.asset(name).data


def test_the_charts_library_is_kept(tmp_path, monkeypatch):
    import vl_convert

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: f"bundle {snippet}")
    rendering._vega.cache_clear()
    try:
        assert b"bundle" in rendering.vega()
        rendering._vega.cache_clear()
        monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: pytest.fail("made again"))
        assert b"bundle" in rendering.vega()
    finally:
        rendering._vega.cache_clear()
