"""Sources, cache directory, settings and status of pg_balloon. tests/it/test_balloon.py builds, loads and queries it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed
from pgherd.postgres import pg_balloon
from pgherd.postgres.installations import Installation
from pgherd.postgres.pg_balloon import BalloonLibrary, BalloonStatus, with_balloon

# ---- library


OLD = BalloonLibrary("/c/15", "15.1", 15, "abc")
NEW = BalloonLibrary("/c/18", "18.1", 18, "abc")


class Machine(LocalNode):
    """Node with some tools and given output of pg_config."""

    def __init__(self, tools: tuple[str, ...] = ("make", "cc"), **config: str) -> None:
        super().__init__()
        self.tools, self.config = tools, config

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        argv = list(command.argv)
        if argv[0].endswith("pg_config"):
            output = self.config.get(argv[1].strip("-").replace("-", "_"))
            return Completed(0 if output else 1, output or "", "")
        if argv[0] not in self.tools:
            raise FileNotFoundError(argv[0])
        return Completed(0, "1.0", "")


def installation(directory: Path, major: int = 16) -> Installation:
    (directory / "postgres").write_text(f"server {major}")
    return Installation(str(directory), f"{major}.1", major, "system")


def test_a_server_that_has_no_settings_of_its_own():
    assert with_balloon({}, OLD, {"enabled": "on"}) == {
        "shared_preload_libraries": "pg_balloon",
        "dynamic_library_path": "/c/15:$libdir",
        "pg_balloon.enabled": "on",
    }
    assert with_balloon({}, NEW)["extension_control_path"] == "/c/18:$system"


def test_what_a_server_loads_already_stays():
    settings = {"shared_preload_libraries": "auto_explain, pg_stat_statements", "dynamic_library_path": "/x:$libdir", "work_mem": "8MB"}
    merged = with_balloon(settings, OLD)
    assert merged["shared_preload_libraries"] == "auto_explain,pg_stat_statements,pg_balloon"
    assert merged["dynamic_library_path"] == "/c/15:/x:$libdir"
    assert merged["work_mem"] == "8MB"
    assert with_balloon(merged, OLD) == merged, "asked twice"


def test_the_sources_are_all_that_the_makefile_builds():
    contents = pg_balloon.sources()
    makefile = contents["Makefile"].decode().replace("\\\n", " ")
    objects = re.search(r"^OBJS = (.*)$", makefile, re.MULTILINE)
    assert objects and all(name.replace(".o", ".c") in contents for name in objects[1].split())
    assert {"pg_balloon.control", "pg_balloon--1.0.sql", "src/compat.h"} <= set(contents)


def test_the_digest_changes_with_every_source():
    content = {"a": b"1", "b": b"2"}
    digests = {pg_balloon.digest(one) for one in (content, content | {"a": b"12"}, {"a": b"1"}, {"b": b"1", "a": b"2"})}
    assert len(digests) == 4 and pg_balloon.digest(dict(reversed(content.items()))) in digests


def test_builds_of_one_version_do_not_share_a_library(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for directory in (one, other):
        directory.mkdir()
    first, second = installation(one), installation(other)
    (other / "postgres").write_text("with assertions")
    node = LocalNode()
    homes = {pg_balloon.home_of(node, x, "/cache", source) for x in (first, second) for source in ("s1", "s2")}
    assert len(homes) == 4 and all(home.startswith("/cache/pg_balloon/16.1-") for home in homes)


def test_the_script_has_no_words_of_psql_that_would_end_it():
    script = pg_balloon.script(pg_balloon.sources()["pg_balloon--1.0.sql"].decode())
    assert "\\quit" not in script and "MODULE_PATHNAME" not in script and "AS 'pg_balloon' LANGUAGE C" in script


def test_functions_are_created_where_transactions_are_read_only_by_default(tmp_path):
    ran: list[Command] = []
    node = SimpleNamespace(sql=lambda conninfo, statement: [], run=lambda command: ran.append(command) or Completed(0, "", ""))
    pg_balloon.create_functions(node, installation(tmp_path), OLD, "dbname=postgres")
    assert [command.env for command in ran] == [{"PGOPTIONS": "-c default_transaction_read_only=off"}]


def headers(root: Path) -> dict[str, str]:
    (root / "include/storage").mkdir(parents=True)
    (root / "include/storage/buf_internals.h").write_text("")
    (root / "pgxs.mk").write_text("")
    return {"version": "PostgreSQL 16.1", "includedir_server": str(root / "include"), "pgxs": str(root / "pgxs.mk")}


def test_nothing_is_missing(tmp_path):
    assert pg_balloon.missing_to_build(Machine(**headers(tmp_path)), installation(tmp_path)) == ""


@pytest.mark.parametrize(
    ("changed", "tools", "message"),
    [
        ({"version": ""}, ("make", "cc"), "has no pg_config: install postgresql-server-dev-16"),
        ({"version": "PostgreSQL 15.2"}, ("make", "cc"), "reports PostgreSQL 15.2, but the server is version 16.1: install"),
        ({"includedir_server": "/nowhere"}, ("make", "cc"), "no server headers in /nowhere: install postgresql-server-dev-16"),
        ({"pgxs": "/nowhere"}, ("make", "cc"), r"no makefiles for extensions \(PGXS\)"),
        ({}, ("cc",), "make is missing"),
        ({}, ("make",), "a C compiler is missing: install gcc"),
    ],
)
def test_what_is_missing_is_named_with_its_package(tmp_path, changed, tools, message):
    node = Machine(tools, **(headers(tmp_path) | changed))
    with pytest.raises(CapabilityError, match=f"pg_balloon cannot be built: .*{message}"):
        pg_balloon.ensure_balloon(node, installation(tmp_path), str(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()


def test_the_sources_are_in_the_wheel():
    """pyproject.toml lists every required file. Only a release builds the wheel."""
    root = Path(__file__).parents[2]
    tracked = subprocess.run(["git", "-C", str(root), "ls-files", "extension/pg_balloon"], capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("this is no checkout")
    import tomllib

    wheel = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for name in pg_balloon.sources(root / "extension/pg_balloon"):
        path = f"extension/pg_balloon/{name}"
        assert any(wheel.get(place) == f"pgherd/{place}" for place in (path, str(Path(path).parent))), path


# ---- status in a running server


MB = 2**20
STATUS = {
    "usable": True, "unusable_reason": None, "enabled": True, "shared_buffers_bytes": 400 * MB,
    "ballooned_bytes": 100 * MB, "target_bytes": None,
    "floor_bytes": 32 * MB, "ceiling_bytes": 360 * MB, "resident_bytes": 250 * MB, "balloon_resident_bytes": 0,
    "working_set_bytes": 200 * MB,
    "source": "cgroup2", "cgroup_path": "/sys/fs/cgroup/a", "limit_bytes": 512 * MB, "available_bytes": 64 * MB, "refaults_per_s": 12.0,
    "swap_out_bytes_per_s": 0.0, "psi_share": 0.1, "misses_per_s": 42.0, "page_read_ms": 0.21,
    "state": "nothing to do", "decision": "inflated",
    "decision_bytes": 100 * MB, "decision_reason": "memory is short", "decision_at": None, "worker_pid": 7,
}  # fmt: skip
COUNTERS = {"inflated_unused": 10, "inflated_clean": 20, "deflated": 5, "prefetched": 3, "buffers_written": 1}


def test_a_balloon_in_words():
    lines = dict(BalloonStatus("host=h", "17.2", True, True, STATUS, COUNTERS).lines())
    assert lines["balloon"].startswith("100 MB (25% of the pool)")
    assert lines["memory"] == "64 MB available of 512 MB (/sys/fs/cgroup/a)"
    assert "42 misses/s of 0.21 ms" in lines["signals"] and "12 refaults/s" in lines["signals"]
    assert "swap grows by 0 B/s" in lines["signals"] and lines["pool"] == "400 MB; in memory: 250 MB"
    missing = {"refaults_per_s": None, "resident_bytes": None, "balloon_resident_bytes": None}
    unknown = dict(BalloonStatus("host=h", "17.2", True, True, STATUS | missing, COUNTERS).lines())
    assert "unknown refaults/s" in unknown["signals"] and unknown["pool"] == "400 MB; in memory: unknown"
    assert "30 buffers given, 5 taken back" in lines["since reset"]
    assert "stuck" not in lines and lines["enabled"] == "yes"


def test_before_the_first_tick_and_switched_off():
    now = STATUS | dict.fromkeys(("limit_bytes", "available_bytes", "working_set_bytes", "decision", "worker_pid", "state"))
    lines = dict(BalloonStatus("host=h", "15.1", True, False, now).lines())
    assert "memory" not in lines and "last decision" not in lines
    assert lines["enabled"].startswith("no: set pg_balloon.enabled") and lines["server"].endswith("not running")


def test_what_it_does_is_said_also_where_nothing_was_seen_of_the_memory():
    now = STATUS | {"limit_bytes": None, "available_bytes": None, "working_set_bytes": None, "state": "pg_balloon.target"}
    lines = dict(BalloonStatus("host=h", "15.1", True, True, now).lines())
    assert lines["now"] == "pg_balloon.target" and "memory" not in lines


def test_a_server_that_cannot_have_one():
    found = BalloonStatus("host=h", "15.1", True, True, STATUS | {"usable": False, "unusable_reason": "huge pages"})
    assert dict(found.lines())["balloon"] == "cannot be used: huge pages"


def test_a_target_and_stuck_memory_are_said():
    lines = dict(BalloonStatus("host=h", "15.1", True, True, STATUS | {"target_bytes": 40 * MB, "balloon_resident_bytes": MB}).lines())
    assert "kept at 40 MB by pg_balloon.target" in lines["enabled"] and lines["stuck"].startswith("1 MB")


def test_as_a_document():
    document = BalloonStatus("host=h", "15.1", False, advice="load it").document()
    assert json.loads(json.dumps(document))["advice"] == "load it" and document["status"] is None
