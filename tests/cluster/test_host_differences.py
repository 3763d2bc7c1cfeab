"""What hosts run on, compared."""

from __future__ import annotations

import platform

from pgherd import __version__
from pgherd.cluster import bundle, host_differences

SAME = {"pgherd": "1", "Python": "3.11", "Dask": "2", "source": "x", "PostgreSQL": "18.1", "kernel": "6", "architecture": "x86"}
SAME |= {"CPU": "c", "cores": "2"}


def test_equal_hosts_differ_in_nothing():
    assert host_differences.compare({"a": SAME, "b": dict(SAME)}) == []


def test_differences_are_refused_or_listed():
    found = host_differences.compare({"a": SAME, "b": {**SAME, "kernel": "5", "pgherd": "2"}, "c": {**SAME, "kernel": "5"}})
    assert [(one.what, one.refused) for one in found] == [("pgherd", True), ("kernel", False)]
    assert str(found[0]) == "pgherd: 1 on a, c; 2 on b" and found[1].values == {"6": ("a",), "5": ("b", "c")}


def test_what_a_host_does_not_say_is_unknown():
    (found,) = host_differences.compare({"a": SAME, "b": {name: value for name, value in SAME.items() if name != "Dask"}})
    assert str(found) == "Dask: 2 on a; unknown on b" and found.refused


def test_this_machine():
    here = host_differences.here()
    assert here["pgherd"] == __version__ and platform.python_version().startswith(here["Python"])
    assert set(here) == {*host_differences.REFUSED, *host_differences.LISTED} and len(here["source"]) == 12
    assert host_differences.digest() == host_differences.digest()


def test_all_that_a_host_is_sent_counts(monkeypatch):
    found = set()
    for contents in ({"a.c": b"1"}, {"a.c": b"2"}, {"b.c": b"1"}, {"a.c": b"1", "b.html": b""}):
        monkeypatch.setattr(bundle, "contents", lambda contents=contents: contents)
        found.add(host_differences.digest())
    assert len(found) == 4
