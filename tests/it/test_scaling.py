"""`pgherd scaling` of two variants with real servers: what runs is what was asked for, and every trial can be repeated by hand."""

from __future__ import annotations

import json

import pytest

QUICK = ("--clients", "1,3", "--scale", "1", "--repeats", "1", "--duration", "1s", "--warmup", "0s", "--time-budget", "12s")
VARIANTS = ("--variant", "base", "--variant", "odd:shared_buffers=48MB,protocol=simple")


def test_two_variants_from_servers_to_report(pgherd):
    ended = pgherd("scaling", *QUICK, *VARIANTS, "--json")
    assert ended.code in (0, 1), ended  # on a busy machine short trials may all be tainted
    document = json.loads(ended.out)
    assert document["schema"] == "pgherd/scaling/2"
    rows = {(row["variant"], row["clients"]): row for row in document["tables"]["scaling"]}
    assert set(rows) == {("base", 1), ("base", 3), ("odd", 1), ("odd", 3)}
    assert all(row["throughput"]["value"] > 0 for row in rows.values())
    assert document["findings"]["peak_ratio.odd"]["value"] > 0
    assert "'odd'" in document["answer"]
    trials = pgherd.trials()
    for trial in trials:
        (container,) = trial["trial"]["deployment"]["hosts"][0]["containers"]
        (load,) = trial["trial"]["phases"][0]["loads"].values()
        odd = trial["trial"]["point"]["variant"] == "odd"
        assert (container["servers"][0]["settings"]["shared_buffers"] == "48MB") == odd
        assert (load["protocol"], load["client_placement"]) == ("simple" if odd else "prepared", "outside")
        assert load["clients"] == trial["trial"]["point"]["clients"] and load["threads"] <= load["clients"]
    run = pgherd.run
    assert {"throughput", "ratios"} <= {file.stem for file in (run / "figures").glob("*.svg")}
    number = next(int(trial["id"]) for trial in trials if trial["trial"]["point"] == {"variant": "odd", "clients": 3})
    shown = pgherd("show", "last", str(number), "--repro-script")
    assert shown.code == 0, shown
    assert "shared_buffers = '48MB'" in shown.out
    assert " -M simple -c 3 " in shown.out
    pgherd.judged_fairly()


@pytest.mark.long  # its grade needs a host without other tests
def test_a_curve_of_two_points_has_a_grade(pgherd):
    size = ("--clients", "1,2", "--scale", "1", "--repeats", "2", "--duration", "2s", "--warmup", "500ms", "--time-budget", "60s")
    ended = pgherd("scaling", *size, "--no-report", "--json")
    assert ended.code in (0, 1), ended
    assert {row["clients"] for row in json.loads(ended.out)["tables"]["scaling"]} == {1, 2}
    pgherd.ended_well(ended)
