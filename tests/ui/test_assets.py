from __future__ import annotations

import pytest

from pgherd.ui import assets


@pytest.mark.parametrize("name", [name for name in assets.names() if name != assets.VEGA])
def test_own_files_are_there(name):
    found = assets.asset(name)
    assert found is not None and found.data and found.media_type.partition("/")[0] in ("text", "image")


@pytest.mark.parametrize("name", ["", "..", "../app.py", "app.py", "style.css/..", "/etc/passwd", "STYLE.CSS"])
def test_nothing_else_is(name):
    assert assets.asset(name) is None


def test_the_address_changes_with_the_content(monkeypatch):
    before = assets.address("ui.js")
    assets.address.cache_clear()
    monkeypatch.setattr(assets, "_read", lambda name: b"other")
    try:
        assert assets.address("ui.js") != before
    finally:
        assets.address.cache_clear()


def test_the_style_sheet_builds_on_the_report_s():
    data = assets.asset("style.css").data.decode()
    assert data.index("--paper: #ffffff") < data.index(".skip")


def test_no_file_asks_for_anything_elsewhere():
    for name in assets.names():
        if name in (assets.VEGA, "htmx.min.js", "icon.svg"):
            continue  # libraries name addresses in texts; that none is asked for the browser tests see
        assert b"http:" not in assets.asset(name).data and b"https:" not in assets.asset(name).data


def test_the_charts_library_is_kept(tmp_path, monkeypatch):
    import vl_convert

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: f"bundle {snippet}")
    assets._vega.cache_clear()
    try:
        assert b"bundle" in assets.vega()
        assets._vega.cache_clear()
        monkeypatch.setattr(vl_convert, "javascript_bundle", lambda snippet: pytest.fail("made again"))
        assert b"bundle" in assets.vega()
    finally:
        assets._vega.cache_clear()
