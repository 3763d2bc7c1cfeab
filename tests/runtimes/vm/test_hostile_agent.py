"""A guest whose root user attacks the host: a process that speaks the agent's protocol over a real socket (``hostile_agent.py``)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ATTACKS = (
    *("names", "names-absolute", "names-nul", "type-list", "type-bytes", "type-number", "type-numbers", "endless", "nested", "values"),
    *("digits", "large-numbers", "length", "control", "control-bad", "events", "chunks", "fetch", "noise", "silence"),
)
MAX_BYTES = 500 * 2**20
"""A frame has 64 MB at most, of which some copies exist for a moment."""
MAX_SECONDS = 140.0

HOST = """
import json, sys
from pgherd.model.errors import PgherdError
from pgherd.node.protocol import Command
from pgherd.runtimes.vm.guest_node import GuestNode

def sample():
    sampling = guest.sample([], "spool")
    try:
        sampling.fetch()
    finally:
        sampling.stop()

def wait():
    process = guest.spawn(Command(["true"]))
    return process.wait(1)

def keep():
    for name in guest.listdir("/out"):
        open(name, "wb").close()

guest = GuestNode.connect("db01", sys.argv[1], 30)
guest.patience = 0.5
told = {}
calls = {
    "keep": keep, "wait": wait, "sample": sample,
    "read": lambda: guest.read("/x"),
    "read_untrusted": lambda: guest.read_untrusted("/x", 2**20),
    "read_end": lambda: guest.read_end("/x", 1000).data,
    "exists": lambda: guest.exists("/x"),
    "write": lambda: guest.write("/x", b"x"),
    "make_dir": lambda: guest.make_dir("/x"),
    "remove_tree": lambda: guest.remove_tree("/x"),
    "run": lambda: guest.run(Command(["true"]), 1).out,
    "clock": lambda: guest.measure_clock().at,
}
for name, call in calls.items():
    try:
        value = call()
        told[name] = ["value", str(value)[:1000]]
    except (OSError, PgherdError) as error:
        told[name] = ["error", str(error)]
guest.close()
status = open("/proc/self/status").read()  # not getrusage: an exec keeps the maximum of the process before it
print(json.dumps([told, int(status.partition("VmHWM:")[2].split()[0]) * 1024]))
"""


@pytest.fixture
def attack(request: pytest.FixtureRequest, place: Path):
    """A hostile agent that listens at the socket ``s``. As root it is another user."""
    other_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    (place / "guest").mkdir()
    if other_user:
        os.chown(place / "guest", 65534, 65534)
    path = place / "guest/s"
    with subprocess.Popen([*other_user, sys.executable, HERE / "hostile_agent.py", path, request.param]) as process:
        while not path.exists() and process.poll() is None:
            time.sleep(0.02)
        yield path
        process.kill()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("attack", ATTACKS, indirect=True)
def test_the_host_reports_an_error_in_bounded_time_and_memory(attack: Path, place: Path) -> None:
    (place / "host/work").mkdir(parents=True)
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", HOST, attack], cwd=place / "host/work", capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < MAX_SECONDS
    assert not done.stderr
    told, memory = json.loads(done.stdout)
    assert memory < MAX_BYTES
    for call, (kind, text) in told.items():
        assert len(text) < 2500 and text.isprintable(), call
        assert kind == "value" or "guest db01" in text or "Errno" in text or "process 2 of" in text, (call, text)
    assert told["keep"][0] == "error" and told["clock"][0] in ("value", "error")
    written = sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())
    assert set(written) <= {"host/work/spool"} and not Path("/tmp/escaped").exists()
