from __future__ import annotations

FIRST, SECOND = "20260131-120000-density-0001", "20260131-130000-density-0002"


def test_lists_all_newest_first(client):
    text = client.get("/").text
    assert text.index(SECOND) < text.index(FIRST) and "2 runs" in text and "db-host-1" in text


def test_narrowed(client):
    text = client.get("/?study=scaling").text
    assert "None of 2 runs is like that" in text and FIRST not in text


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
    assert "There is no run in" in text and "pgherd density" in text
