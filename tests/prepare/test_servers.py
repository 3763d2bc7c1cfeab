"""Settings of servers that options request."""

import pytest

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.postgres.settings import ChosenSettings, SettingRow
from pgherd.prepare import servers
from pgherd.prepare.servers import explained, option_reasons, rounding, settings_of_options

NODE = LocalNode()


def test_the_option_becomes_settings():
    assert settings_of_options(("jit=off",), "2MB", False) == {
        "jit": "off",
        "huge_pages": "on",
        "huge_page_size": "2048kB",
    }
    assert settings_of_options(("huge_pages=try",), None, False) == {"huge_pages": "try"}
    with pytest.raises(UsageError, match="set the same parameter; give only one"):
        settings_of_options(("huge_pages=try",), "2MB", False)


def test_the_report_says_which_option_a_setting_comes_from():
    choice = ChosenSettings(
        {"huge_pages": "on"}, (SettingRow("huge_pages", "on", "", "asked for with --set"), SettingRow("jit", "off", "on", "x")), True
    )
    told = explained(choice, option_reasons("2MB", False)).rows
    assert told[0] == SettingRow("huge_pages", "on", "try", "asked for with --huge-pages") and told[1].why == "x"


def test_whole_pages_take_more_than_is_needed(monkeypatch):
    monkeypatch.setattr(servers.huge_pages.host_pages, "default_size", lambda node: 2 * 2**20)
    on = {"huge_pages": "on"}
    assert rounding(NODE, on) == 2 * 2**20 and rounding(NODE, {**on, "huge_page_size": "1GB"}) == 2**30
    assert rounding(NODE, {}) == 0
