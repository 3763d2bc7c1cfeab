from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgherd.model.errors import UsageError
from pgherd.ui.runs_page import LARGEST_PAGE, RunFilter, choices, parse_filter, parse_integer, select
from pgherd.ui.shown_runs import Summary

FIRST, SECOND = "20260131-120000-density-0001", "20260131-130000-density-0002"


def test_lists_all_newest_first(client):
    text = client.get("/").text
    assert text.index(SECOND) < text.index(FIRST) and "2 runs" in text and "db-host-1" in text


def test_narrowed(client):
    text = client.get("/?study=scaling").text
    assert "No match among 2 runs" in text and FIRST not in text


def test_its_script_gets_the_part_alone(client):
    text = client.get("/?text=0001", headers={"HX-Request": "true", "HX-Target": "runs"}).text
    assert text.startswith('<div id="runs">') and FIRST in text and SECOND not in text and "1 run of 2" in text


def test_pages(client):
    text = client.get("/?size=1").text
    assert "page 1 of 2" in text and 'href="/?page=2&amp;size=1"' in text and 'rel="prev"' not in text
    assert FIRST in client.get("/?size=1&page=2").text


def test_an_empty_directory_says_how_to_begin(client, runs):
    import shutil

    shutil.rmtree(runs)
    text = client.get("/").text
    assert "There are no runs in" in text and "pgherd density" in text


def run(day: int, **more) -> Summary:
    at = datetime(2026, 1, day, 23, 59, 59, tzinfo=UTC).timestamp()
    return Summary(**{"run": f"202601{day:02d}-235959-density-0000", "study": "density", "state": "finished", "started": at, **more})


RUNS = [
    run(31, grade="A", host="a", answer="Holds 40 databases."),
    run(31, grade="C", host="b", study="scaling"),
    run(30, host="a", state="failed"),
]


@pytest.mark.parametrize(
    "query, found",
    [
        ({}, 3),
        ({"study": "scaling"}, 1),
        ({"host": "a"}, 2),
        ({"grade": "A"}, 1),
        ({"grade": "none"}, 1),
        ({"state": "failed"}, 1),
        ({"text": "40 DATA"}, 1),
        ({"since": "2026-01-31"}, 2),
        ({"until": "2026-01-30"}, 1),
        ({"since": "2026-02-01"}, 0),
        ({"host": "a", "grade": "C"}, 0),
    ],
)
def test_what_is_asked_for_is_found(query, found):
    assert select(RUNS, parse_filter(query)).matching == found


@pytest.mark.parametrize(
    "query",
    [
        {"grade": "D"},
        {"state": "<b>"},
        {"group": "x"},
        {"since": "yesterday"},
        {"until": "2026-13-01"},
        {"page": "0"},
        {"page": "-1"},
        {"page": "9" * 4000},
        {"page": "٣"},
        {"size": str(LARGEST_PAGE + 1)},
        {"text": "x" * 201},
    ],
)
def test_what_is_no_answer_to_the_question_is_refused(query):
    with pytest.raises(UsageError):
        parse_filter(query)


@given(st.dictionaries(st.sampled_from(["study", "host", "grade", "state", "text", "since", "until", "group", "page", "size"]), st.text()))
def test_any_query_gives_a_page_or_a_message(query):
    try:
        asked = parse_filter(query)
    except UsageError:
        return
    shown = select(RUNS, asked)
    assert sum(len(runs) for _, runs in shown.groups) <= asked.size and 1 <= shown.page <= shown.pages


def test_pages_hold_all_runs_once():
    many = [run(1 + i % 28, run=f"{i}") for i in range(45)]
    seen = [one.run for page in (1, 2, 3) for _, group in select(many, RunFilter(size=20, page=page)).groups for one in group]
    assert sorted(seen, key=int) == [str(i) for i in range(45)] and select(many, RunFilter(size=20, page=99)).page == 3


@pytest.mark.parametrize(
    "group, headings",
    [
        ("day", ["Saturday, 31 January 2026", "Friday, 30 January 2026"]),
        ("study", ["density", "scaling"]),
        ("host", ["a", "b"]),
        ("grade", ["grade A", "grade C", "no grade"]),
    ],
)
def test_headings(group, headings):
    assert [heading for heading, _ in select(RUNS, RunFilter(group=group)).groups] == headings


def test_query_strings_leave_out_what_goes_by_itself():
    assert RunFilter().query() == ""
    asked = RunFilter(study="a&b", since=date(2026, 1, 31), page=2)
    assert asked.query(page=3) == "study=a%26b&since=2026-01-31&page=3"
    assert RunFilter(page=2).query(page=1) == "" and not RunFilter(page=2).narrowed and asked.narrowed


def test_choices_are_those_that_there_are():
    assert choices(RUNS) == {"study": ["density", "scaling"], "host": ["a", "b"]}


def test_a_run_on_several_hosts_is_found_by_each_of_them():
    many = run(29, host=", ".join(f"h{n}" for n in range(40)))
    two = run(28, host="a, c")
    assert [run.host for _, inside in select([*RUNS, many, two], parse_filter({"host": "c"})).groups for run in inside] == ["a, c"]
    assert (
        select([*RUNS, many, two], parse_filter({"host": "a"})).matching == 3
        and select([many], parse_filter({"host": "h39"})).matching == 1
    )
    assert select([many], parse_filter({"host": "h3, h4"})).matching == 0
    assert choices([*RUNS, two])["host"] == ["a", "b", "c"]
    assert [heading for heading, _ in select([many, two], RunFilter(group="host")).groups] == ["a, c", "h0, h1, h2, h3 and 36 more"]
    assert run(1, host="a, b, c, d, e").hosts_shown == "a, b, c, d, e" and run(1).hosts == [] and run(1).hosts_shown == ""


@pytest.mark.parametrize("text, value", [("", 7), ("3", 3), ("10", 10)])
def test_whole_numbers(text, value):
    assert parse_integer("page", text, 7, 1, 10) == value


@pytest.mark.parametrize("text", ["11", "0", "x", "1.5", "²", " 3"])
def test_no_whole_numbers(text):
    with pytest.raises(UsageError, match="page is a whole number from 1 to 10"):
        parse_integer("page", text, 7, 1, 10)
