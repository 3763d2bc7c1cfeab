"""`pgherd sizes` from loading to the report, against what PostgreSQL itself says of a database that is loaded by hand."""

from __future__ import annotations

import json

import pytest

from pgherd.node.local import LocalNode
from pgherd.postgres import installations, templates


@pytest.mark.parametrize("kind", ["system", "embedded"])
def test_sizes_are_measured_and_predicted(elsewhere, kind):
    result = [item for item in installations.find_all(LocalNode()) if item.kind == kind]
    if not result:
        pytest.skip(f"there is no {kind} PostgreSQL here")
    ended = elsewhere("database-size", "--scales", "1,2,3,5", "--predict", "10,1000", "--pg-bin", result[0].bin, "--json")
    assert ended.code == 0, ended
    document = json.loads(ended.out)
    assert document["schema"] == "pgherd/database-size/2" and document["grade"] == "A"
    measured = {row["scale"]: row for row in document["tables"]["sizes"] if row["source"] == "measured"}
    assert set(measured) == {1, 2, 3, 5}
    for scale, row in measured.items():
        # 1640 pages of 8 kB of accounts and 275 of their key for each unit of scale; the rest hardly grows.
        assert row["tables"]["value"] == pytest.approx(1640 * scale / 128, rel=0.02)
        assert row["indexes"]["value"] == pytest.approx(276 * scale / 128, rel=0.05)
        assert sum(row[part]["value"] for part in ("tables", "indexes", "other")) == pytest.approx(row["size"]["value"])
    predicted = document["findings"]["predicted_size.10"]
    assert predicted["value"] == pytest.approx(157, rel=0.02) and predicted["published"] == "157 MB"
    assert templates.list_all(LocalNode(), str(elsewhere.cache)) == [], "what was loaded for this is gone"
    run = elsewhere.run
    assert (run / "figures/sizes.svg").is_file() and "<svg" in (run / "report.html").read_text()
    assert elsewhere.record()["timing"]["wall"] > 0


def test_a_run_that_was_killed_goes_on_with_the_scales_that_are_missing(elsewhere):
    process = elsewhere.start("database-size", "--scales", "1,2,40", "--no-report")
    elsewhere.wait_until(lambda: len(elsewhere.trials()) == 2)
    process.kill()
    elsewhere.end(process)
    retained = elsewhere.digests()
    ended = elsewhere("resume", "last", "--no-report", "--json")
    assert ended.code == 0, ended
    assert len(json.loads(ended.out)["trials"]) == 3
    assert retained.items() <= elsewhere.digests().items()
    assert [entry["after"] for entry in elsewhere.record()["proposals"]] == [0, 2, 3]
    assert elsewhere("clean").code == 0


def test_as_an_ordinary_user(ordinary):
    ended = ordinary("database-size", "--scales", "1,2", "--no-report", "--json")
    assert ended.code == 0, ended
    assert json.loads(ended.out)["grade"] == "B", "two scales give no interval"
