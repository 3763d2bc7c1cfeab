import json

from pgherd.distributed.lookout import SHOWN, Lookout
from pgherd.model.trial import Trial
from pgherd.report.live_status import _SAMPLERS
from pgherd.store.live import SPOOL, output_name

PART = Trial.model_validate(
    {
        "point": {"databases": 1},
        "deployment": {"hosts": [{"name": "a", "containers": [{"name": "db1", "servers": [{"bin": "/pg", "version": "18.6"}]}]}]},
        "phases": [
            {"name": "p", "loads": {"a/db1/pg/bench": {}, "a": {"driver": "command"}}},
            {"name": "q", "loads": {"a/db1/pg/bench": {}}},
        ],
    }
)
SOURCES = {
    "sources": [["cgroup_cpu", "container:db1", "file", "/x", "v1 usage"], ["vmstat", "host", "file", "/proc/vmstat", ""]],
    "first": 0,
}


def test_what_is_shown_is_what_is_looked_at():
    assert SHOWN == _SAMPLERS


def test_a_glimpse_holds_what_has_been_added_since(tmp_path):
    lookout = Lookout(PART, tmp_path, tmp_path / "out")
    first = lookout.take()
    assert (first.readings, first.told) == ([], [])
    readings = [{"t": 1.0 + n, "i": 0, "raw": f"{n}000000000\n"} for n in range(4)]
    with open(tmp_path / SPOOL, "w") as spool:
        for document in (SOURCES, *readings, {"t": 4.5, "i": 1, "raw": "pswpin 3\n"}):
            spool.write(json.dumps(document, separators=(",", ":")) + "\n")
    for phase, target, text in ((0, "a/db1/pg/bench", "progress: 1\nprogr"), (0, "a", "progress: 9\n"), (1, "a/db1/pg/bench", "ready\n")):
        place = tmp_path / "out" / output_name(phase, target)
        place.mkdir(parents=True)
        (place / "stderr").write_text(text)
    seen = lookout.take()
    assert seen.readings == [
        (1.0, "cgroup_cpu", "container:db1", {"cpu.usage": 0.0}),
        (4.0, "cgroup_cpu", "container:db1", {"cpu.usage": 3.0}),
    ], "the first and the last of what is shown; nothing of other samplers"
    assert seen.told == [(0, "a/db1/pg/bench", "pgbench", "progress: 1\n"), (1, "a/db1/pg/bench", "pgbench", "ready\n")], "whole lines"
    assert lookout.take().readings == [] and lookout.take().told == []
