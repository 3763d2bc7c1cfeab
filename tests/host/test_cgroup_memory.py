import errno
from pathlib import Path

import pytest

from pgherd.host import cgroup_memory
from pgherd.host.cgroup_memory import OomVictim, parse_victims
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command, Completed

MB = 2**20
UNLIMITED = 2**63 - 4096


class GroupNode(LocalNode):
    """One v1 or v2 group that keeps the kernel's rule: memory and swap together are never limited below memory alone."""

    def __init__(self, files: dict[str, int]) -> None:
        super().__init__()
        self.files = dict(files)
        self.written: list[tuple[str, str]] = []
        self.busy = 0
        self.reclaims = True

    def exists(self, path: str) -> bool:
        return path.removeprefix("/g/") in self.files

    def read(self, path: str) -> bytes:
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        number = self.files[path.removeprefix("/g/")]
        return b"max\n" if number == UNLIMITED and path.endswith(".high") else f"{number}\n".encode()

    def write(self, path: str, data: bytes) -> None:
        name = path.removeprefix("/g/")
        self.written.append((name, data.decode()))
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        if self.busy:
            self.busy -= 1
            raise OSError(errno.EBUSY, "Device or resource busy", path)
        after = {**self.files, name: UNLIMITED if data == b"max" else int(data)}
        both = "memory.memsw.limit_in_bytes"
        if both in after and after[both] < after["memory.limit_in_bytes"]:
            raise OSError(errno.EINVAL, "Invalid argument", path)
        if name == "memory.max":
            assert self.files.get("memory.current", 0) <= after[name], "the kernel ends processes"
        if name == "memory.high" and self.reclaims:
            after["memory.current"] = max(after["memory.current"] // 2, min(after[name], after["memory.current"]))
        if name == "memory.reclaim":
            self.files["memory.current"] //= 2
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable", path)
        self.files = after


def v1(memory: int = UNLIMITED, both: int = UNLIMITED) -> GroupNode:
    return GroupNode(
        {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": both, "memory.force_empty": 0, "memory.swappiness": 60}
        | {"memory.stat": "total_inactive_file 0\ntotal_active_file 0"}
    )


@pytest.mark.parametrize("before", [(UNLIMITED, UNLIMITED), (100 * MB, 150 * MB), (10 * MB, 10 * MB), (50 * MB, 400 * MB)])
@pytest.mark.parametrize("expected", [(50 * MB, 20 * MB), (200 * MB, 0), (5 * MB, 500 * MB)])
def test_v1_limits_go_from_anything_to_anything(before, expected) -> None:
    node = v1(*before)
    cgroup_memory.limit_v1(node, "/g", *expected)
    assert (node.files["memory.limit_in_bytes"], node.files["memory.memsw.limit_in_bytes"]) == (expected[0], sum(expected))


@pytest.mark.parametrize("before", [(UNLIMITED, UNLIMITED), (100 * MB, 150 * MB), (50 * MB, 50 * MB)])
@pytest.mark.parametrize("expected", [(50 * MB, 20 * MB), (200 * MB, 0)])
def test_one_attempt_under_v1_goes_from_anything_to_anything(before, expected) -> None:
    node = v1(*before)
    assert cgroup_memory.try_limit(node, "/g", *expected, v2=False)
    assert (node.files["memory.limit_in_bytes"], node.files["memory.memsw.limit_in_bytes"]) == (expected[0], sum(expected))


def test_an_attempt_that_v1_refuses_leaves_a_limit_near_the_memory_in_use() -> None:
    node, swap = v1(400 * MB, 400 * MB), 0
    near = 300 * MB * 33 // 32
    for used, limit in ((300 * MB, near), (306 * MB, near), (200 * MB, 200 * MB * 33 // 32)):
        node.files["memory.usage_in_bytes"] = used
        assert not cgroup_memory.try_limit(node, "/g", 100 * MB, swap, v2=False)
        assert node.files["memory.limit_in_bytes"] == limit, "it leaves what new connections need, and is never raised"
    node.files["memory.usage_in_bytes"] = 90 * MB
    assert cgroup_memory.try_limit(node, "/g", 100 * MB, swap, v2=False)
    assert (node.files["memory.limit_in_bytes"], node.files["memory.memsw.limit_in_bytes"]) == (100 * MB, 100 * MB + swap)


def test_with_swap_v1_limits_are_lowered_by_a_tenth_at_a_time() -> None:
    """One write to the end would last as long as servers read back what the kernel swaps out."""
    node, limits = v1(400 * MB, 500 * MB), []
    node.files["memory.usage_in_bytes"] = 300 * MB
    for _ in range(20):
        reached = cgroup_memory.try_limit(node, "/g", 100 * MB, 100 * MB, v2=False)
        limits.append(node.files["memory.limit_in_bytes"])
        node.files["memory.usage_in_bytes"] = min(node.files["memory.usage_in_bytes"], limits[-1])
        if reached:
            break
    assert limits[:3] == [300 * MB * 33 // 32, 270 * MB, 243 * MB] and limits[-1] == 100 * MB and len(limits) == 12
    assert node.files["memory.memsw.limit_in_bytes"] == 200 * MB


def test_memory_that_becomes_free_is_followed_before_v1_swaps() -> None:
    """As pg_balloon makes it free: the limit stays just above the memory in use, and the kernel has nothing to swap out."""
    node = v1(400 * MB, 500 * MB)
    for used in (300, 250, 200, 150, 120):
        node.files["memory.usage_in_bytes"] = used * MB
        assert not cgroup_memory.try_limit(node, "/g", 100 * MB, 100 * MB, v2=False)
        assert node.files["memory.limit_in_bytes"] == used * MB + max(4 * MB, used * MB // 32)
    node.files["memory.usage_in_bytes"] = 90 * MB
    assert cgroup_memory.try_limit(node, "/g", 100 * MB, 100 * MB, v2=False)


def test_page_cache_does_not_keep_a_v1_limit_from_being_tried() -> None:
    node = v1(400 * MB, 400 * MB)
    node.files["memory.usage_in_bytes"] = 300 * MB
    node.files["memory.stat"] = f"cache {250 * MB}\ntotal_inactive_file {150 * MB}\ntotal_active_file {60 * MB}"
    assert cgroup_memory.try_limit(node, "/g", 100 * MB, 0, v2=False)


def test_an_attempt_under_v2_never_limits_below_the_memory_in_use() -> None:
    """The node fails where memory.max is below the memory in use. Each write of memory.high reclaims half of the difference or less."""
    node = GroupNode({"memory.max": UNLIMITED, "memory.high": UNLIMITED, "memory.current": 400 * MB})
    assert not cgroup_memory.try_limit(node, "/g", 150 * MB, None, v2=True), "200 MB are still in use"
    assert node.files["memory.high"] == 150 * MB and node.files["memory.max"] == UNLIMITED
    assert cgroup_memory.try_limit(node, "/g", 150 * MB, None, v2=True)
    assert node.files["memory.max"] == 150 * MB and node.files["memory.high"] == UNLIMITED
    assert cgroup_memory.try_limit(node, "/g", 300 * MB, None, v2=True)
    assert node.files["memory.max"] == 300 * MB


def test_v1_memory_alone_leaves_swap_alone() -> None:
    node = v1()
    cgroup_memory.limit_v1(node, "/g", 50 * MB, None)
    assert node.written == [("memory.limit_in_bytes", str(50 * MB))]
    cgroup_memory.limit_v1(node, "/g", None, None)
    assert len(node.written) == 1


def test_v1_swap_alone_is_beside_the_memory_that_there_is() -> None:
    node = v1(100 * MB, UNLIMITED)
    cgroup_memory.limit_v1(node, "/g", None, 10 * MB)
    assert node.files["memory.memsw.limit_in_bytes"] == 110 * MB


def test_v1_writes_again_while_the_kernel_reclaims() -> None:
    node = v1()
    node.busy = 3
    cgroup_memory.limit_v1(node, "/g", 50 * MB, None)
    assert node.files["memory.limit_in_bytes"] == 50 * MB and len(node.written) == 4


def test_v1_without_swap_accounting_disables_swappiness() -> None:
    node = GroupNode({"memory.limit_in_bytes": UNLIMITED, "memory.swappiness": 60})
    cgroup_memory.limit_v1(node, "/g", 50 * MB, 0)
    assert node.files == {"memory.limit_in_bytes": 50 * MB, "memory.swappiness": 0}


def test_v2_limits_each_for_itself() -> None:
    node = GroupNode({"memory.max": 0, "memory.swap.max": 0})
    cgroup_memory.limit_v2(node, "/g", 50 * MB, 20 * MB)
    assert node.files == {"memory.max": 50 * MB, "memory.swap.max": 20 * MB}
    without = GroupNode({"memory.max": 0})
    cgroup_memory.limit_v2(without, "/g", 50 * MB, 20 * MB)
    assert without.files == {"memory.max": 50 * MB}


def test_v2_memory_in_use_is_reclaimed_before_the_limit_falls_below_it() -> None:
    """memory.high never ends a process; one write may not do."""
    node = GroupNode({"memory.max": 800 * MB, "memory.high": UNLIMITED, "memory.current": 700 * MB})
    cgroup_memory.limit_v2(node, "/g", 100 * MB, None)
    held = ("memory.high", str(100 * MB))
    assert node.written == [held, held, held, ("memory.max", str(100 * MB)), ("memory.high", "max")]
    node.written.clear()
    cgroup_memory.limit_v2(node, "/g", 100 * MB, None)
    assert node.written == [("memory.max", str(100 * MB))], "what fits is not touched"


def test_v2_memory_that_cannot_be_reclaimed_is_said_and_nothing_is_ended(monkeypatch) -> None:
    monkeypatch.setattr(cgroup_memory, "_RECLAIM_TIMEOUT_S", 0.0)
    node = GroupNode({"memory.max": 800 * MB, "memory.high": 600 * MB, "memory.current": 700 * MB})
    node.reclaims = False
    with pytest.raises(CapabilityError, match=f"/g/memory.max can't be lowered to {100 * MB} bytes .* since {700 * MB} bytes are in use"):
        cgroup_memory.limit_v2(node, "/g", 100 * MB, None)
    assert node.files["memory.max"] == 800 * MB and node.files["memory.high"] == 600 * MB


def test_a_refusal_says_the_value_and_the_file() -> None:
    with pytest.raises(CapabilityError, match=r"does not take 5 for /g/memory.max: No such file"):
        cgroup_memory.limit_v2(GroupNode({}), "/g", 5, None)


def test_emptying_a_group() -> None:
    node = v1()
    cgroup_memory.empty(node, "/g", v2=False)
    assert node.written == [("memory.force_empty", "0")]
    unified = GroupNode({"memory.current": 40 * MB, "memory.reclaim": 0})
    cgroup_memory.empty(unified, "/g", v2=True)
    assert unified.files["memory.current"] < 2 * MB
    cgroup_memory.empty(GroupNode({}), "/g", v2=False)


CAPTURED = (Path(__file__).parent.parent / "fixtures/host/dmesg-oom").read_text()


class LogNode(LocalNode):
    def __init__(self, code: int = 0) -> None:
        super().__init__()
        self.code = code

    def run(self, command: Command, timeout: float = 60.0) -> Completed:
        assert tuple(command.argv) == ("dmesg", "--raw")
        return Completed(self.code, CAPTURED if self.code == 0 else "", "")

    def read(self, path: str) -> bytes:
        return b"27000.00 50000.00\n" if path == "/proc/uptime" else super().read(path)

    def now(self) -> float:
        return 1_000_027_000.0


def test_who_when_and_at_whose_limit() -> None:
    assert parse_victims(CAPTURED, 1_000_000_000.0) == [
        OomVictim(pytest.approx(1_000_026_255.888452), 26255.888452, "python3", 14817, "/pgherd-x/db1", "/pgherd-x"),
        OomVictim(pytest.approx(1_000_026_300.5), 26300.5, "postgres", 7690, "/pgherd-x/db2", "/pgherd-x/db2"),
        OomVictim(pytest.approx(1_000_026_400.25), 26400.25, "stress", 99, "/user.slice", ""),
    ]


def test_only_what_came_since() -> None:
    assert [victim.pid for victim in cgroup_memory.victims(LogNode(), 26255.888452)] == [7690, 99]
    assert cgroup_memory.victims(LogNode(), cgroup_memory.log_end(LogNode())) == []
    assert cgroup_memory.victims(LogNode(code=1), 0.0) == [], "the log is not readable"
    assert cgroup_memory.log_end(LogNode(code=1)) == 0


def test_other_lines_say_nothing() -> None:
    assert parse_victims("", 0) == []
    assert parse_victims("<6>[1.0] something oom-kill: pid=1\n<6>[2.0] oom-kill:constraint=X,pid=abc\n", 0) == []


@pytest.mark.parametrize(
    ("controller", "file", "text", "kills"),
    [
        ("memory", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", 3),
        ("memory", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", 0),  # before Linux 4.13
        ("v2", "memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 2\noom_group_kill 0\n", 2),
        ("v2", "other", "", 0),
    ],
)
def test_processes_killed_for_memory_are_counted(tmp_path, fake, controller: str, file: str, text: str, kills: int) -> None:
    node = fake.FakeNode(tmp_path, {f"/g/{file}": text})
    assert cgroup_memory.oom_kills(node, {controller: "/g"}) == kills
    assert cgroup_memory.oom_kills(node, {}) == 0
