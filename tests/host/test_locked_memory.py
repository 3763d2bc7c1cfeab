import os
import resource

import pytest

from pgherd.host import locked_memory
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode

NODE = LocalNode()
MB = 2**20


def locked(pid: int) -> int:
    lines = NODE.read(f"/proc/{pid}/status").decode().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmLck:"))


def test_it_holds_what_it_was_asked_for_until_it_is_ended(tmp_path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if os.geteuid() != 0 and limit != resource.RLIM_INFINITY and limit < MB:
        pytest.skip(f"this user may lock {limit} bytes only")
    process = locked_memory.hold(NODE, MB, (), str(tmp_path / "out"))
    try:
        assert process.poll() is None
        assert locked(process.pid) >= MB
    finally:
        process.signal(9)
        assert process.wait(10) == -9


def test_what_cannot_be_is_said(tmp_path) -> None:
    with pytest.raises(CapabilityError, match="can't be locked"):
        locked_memory.hold(NODE, 2**60, (), str(tmp_path / "out"))
