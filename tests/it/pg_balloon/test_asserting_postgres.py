"""Lists of packages become lists of their sources, in both forms that apt knows."""

from __future__ import annotations

import importlib.util
from pathlib import Path

_spec = importlib.util.spec_from_file_location("asserting_postgres_alone", Path(__file__).with_name("asserting_postgres.py"))
assert _spec and _spec.loader
asserting = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(asserting)


def test_a_list_of_lines():
    assert asserting.source_list("# deb is said here\ndeb [arch=amd64] http://mirror/debian stable main\n") == (
        "# deb is said here\ndeb-src [arch=amd64] http://mirror/debian stable main\n"
    )
    assert asserting.source_list("deb-src http://mirror/debian stable main\n") == "deb-src http://mirror/debian stable main\n"


def test_a_list_of_paragraphs():
    text = "Types: deb\nURIs: http://mirror/debian\nSuites: stable\n\nTypes: deb deb-src\nURIs: http://mirror/security\n"
    assert asserting.source_list(text) == text.replace("Types: deb\n", "Types: deb-src\n").replace("deb deb-src", "deb-src")


def test_another_release():
    assert asserting.source_list("deb [arch=amd64] http://mirror/debian stable main\ndeb http://mirror/debian stable main\n", "sid") == (
        "deb-src [arch=amd64] http://mirror/debian sid main\ndeb-src http://mirror/debian sid main\n"
    )
    assert asserting.source_list("Types: deb\nURIs: http://mirror/debian\nSuites: stable stable-updates\n", "sid") == (
        "Types: deb-src\nURIs: http://mirror/debian\nSuites: sid\n"
    )
