"""Both balloons in one real guest: the host's manager takes memory by the guest kernel's, the database's feels that as want in the guest
and gives buffers up, and both give back. Processors are emulated unless the machine has KVM; states are waited for, no time is judged."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pgherd.analysis.guest_memory_breakdown import GuestMemoryReading, breakdown
from pgherd.host.paths import free_ports
from pgherd.host.server_user import server_account
from pgherd.model.deployment import Container, VmMemoryPolicy
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations, pg_balloon
from pgherd.postgres.installations import Installation
from pgherd.postgres.instance import Instance, initdb
from pgherd.postgres.pg_balloon import BalloonLibrary
from pgherd.postgres.tcp_access import TcpAccess, generate, write_password_file
from pgherd.runtimes import balloon_manager
from pgherd.runtimes.balloon_controller import DEAD_BAND, SPARED
from pgherd.runtimes.vm import boot_images, disk_image
from pgherd.runtimes.vm.guest_node import GuestNode
from pgherd.runtimes.vm.qemu import BALLOON, Disk, GuestSpec
from pgherd.runtimes.vm.virtual_machine import VirtualMachine

MB = 2**20
MEMORY, SHORT = 512 * MB, 144 * MB
"""Of the guest, and what its host has for it while memory is short: less than the guest can give without its database."""
POOL, ROWS = 112 * MB, 12800
"""Shared buffers, and the rows that nearly fill them, each as large as a page."""
GIVEN_UP = 16 * MB
"""What the database must have given up at least; its floor leaves five times that."""
NEARLY = 4 * MB
HANGS = 600.0
"""Seconds that no step takes unless it hangs, however busy the machine is."""
SETTINGS = {"shared_buffers": f"{POOL // MB}MB", "max_connections": "20", "wal_level": "minimal", "max_wal_senders": "0", "fsync": "off"}
FILL = f"""CREATE TABLE filler (n int PRIMARY KEY, x text); ALTER TABLE filler ALTER x SET STORAGE PLAIN;
INSERT INTO filler SELECT n, repeat('x', 7500) FROM generate_series(1, {ROWS}) n"""
"""In one transaction, so that its pages are on disk and not in the WAL when it ends; page by page through the pool, not in a ring."""
READ = "SELECT sum(length(x)) FROM filler WHERE n > 0"

pytestmark = pytest.mark.timeout(1800)


@dataclass(frozen=True)
class Up:
    """A guest whose server has filled its pool; the database's balloon is there and switched off."""

    machine: VirtualMachine
    server: Instance
    library: BalloonLibrary

    def switch(self, enabled: bool) -> None:
        """The database's balloon on or off."""
        own = {"enabled": "on" if enabled else "off", "min_buffers": "32MB"}
        self.server.write_settings(pg_balloon.with_balloon(SETTINGS, self.library, own))

    def given_up(self) -> int:
        """Bytes in the database's balloon."""
        return int(self.server.sql("SELECT ballooned_bytes FROM pg_balloon_status()")[0][0])

    def actual(self) -> int:
        """Bytes that the guest has: its memory less what is in its kernel's balloon."""
        return int(self.machine.execute("query-balloon")["actual"])

    def available(self) -> int:
        """Bytes that the guest's kernel could make free, as it last told the host."""
        told = self.machine.execute("qom-get", path=BALLOON, property="guest-stats")["stats"]
        return int(told["stat-available-memory"])

    def held(self) -> int:
        """Private memory of QEMU on this host, bytes."""
        status = Path(f"/proc/{self.machine.pid}/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) * 1024

    def now(self) -> dict[str, Any]:
        """For a failure's message."""
        figures = {"actual": self.actual(), "available": self.available(), "given up": self.given_up(), "hypervisor": self.held()}
        return {name: round(size / MB, 1) for name, size in figures.items()}


@pytest.fixture
def up() -> Iterator[Up]:
    host, account = LocalNode(), server_account()
    cache = Path(sys.prefix, "cache")
    cache.mkdir(exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="pgherd-guest-", dir="/tmp"))
    place.chmod(0o755)
    with contextlib.ExitStack() as ending:
        ending.callback(shutil.rmtree, place, ignore_errors=True)
        try:
            chosen, library = _with_library(host, account, str(cache))
            made = boot_images.build(host, chosen, account, str(cache), str(place), extra=(library.directory,))
        except CapabilityError as error:
            pytest.skip(str(error))
        initdb(host, chosen, str(place / "disk/data"), account=account)
        disk_image.pack(host, str(place / "disk"), str(place / "data.raw"), free=256 * MB, account=account)
        (port,) = free_ports("127.0.0.1", 1)
        disk, accelerator = Disk("data", str(place / "data.raw"), "/mnt/data"), made.hypervisor.accelerator
        described = GuestSpec(
            "db01", made.boot, made.initrd, made.root.path, (disk,), memory=MEMORY, accelerator=accelerator, reporting=False, port=port
        )
        machine = VirtualMachine(host, described, str(place), made.hypervisor)
        machine.start()
        ending.callback(machine.stop)
        machine.wait_ready(HANGS)
        guest = GuestNode.connect("db01", machine.agent_socket, HANGS, alive=lambda: machine.running)
        ending.callback(guest.close)
        guest.patience = HANGS
        access = TcpAccess("127.0.0.1", port, str(place / "pgpass"), generate())
        server = Instance(guest, chosen, "/mnt/data/data", "/run/pgherd", account=made.root.account, name="db01/pg", access=access)
        write_password_file(access.password_file, [(access, server.user)], account)
        found = Up(machine, server, library)
        found.switch(enabled=False)
        server.start()
        server.wait_ready(HANGS)
        pg_balloon.create_functions(host, chosen, library, server.conninfo())
        server.sql(FILL)
        for setting in ("enable_seqscan", "enable_bitmapscan"):  # READ is to go page by page too
            server.sql(f"SET {setting} = off")
        yield found


def _with_library(host: LocalNode, account: str | None, cache: str) -> tuple[Installation, BalloonLibrary]:
    """The first PostgreSQL here for which the balloon can be built; raises CapabilityError."""
    refused = ["there is no PostgreSQL here"]
    for one in installations.find_all(host):
        try:
            usable = installations.reachable_copy(host, one, account, cache)
            library = pg_balloon.ensure_balloon(host, usable, cache)
            home = Path(cache, "pg_balloon-in-guests")  # so a root image takes the place of the one before
            shutil.copytree(library.directory, home, dirs_exist_ok=True)
            return usable, replace(library, directory=str(home))
        except CapabilityError as error:
            refused.append(str(error))
    raise CapabilityError(refused[-1])


def eventually(true: Callable[[], object], said: Callable[[], object]) -> None:
    deadline = time.monotonic() + HANGS
    while not true():
        assert time.monotonic() < deadline, said()
        time.sleep(0.2)


def test_the_guests_balloon_makes_the_databases_yield_and_both_give_back(up: Up) -> None:
    manager = balloon_manager.BalloonManager(VmMemoryPolicy(policy="virtio-balloon", reserve=0), MEMORY, period=0.25)
    manager.add(balloon_manager.managed(Container(name="db01", runtime="vm", memory=MEMORY), up.machine, overhead=0))
    manager.start()
    try:
        # The host is short. It takes all that the guest can spare, and that is not enough: without swap a guest keeps some available.
        manager.change_budget(SHORT)
        eventually(lambda: up.available() <= SPARED * MEMORY + NEARLY, lambda: (up.now(), manager.status()))
        alone, held = up.actual(), up.held()
        assert alone > SHORT + GIVEN_UP, "the test means nothing where the guest has enough without its database"
        assert up.given_up() == 0

        # Now the database feels the guest's want. What it gives up the host gets, by the guest kernel's balloon.
        up.switch(enabled=True)
        up.server.reload(HANGS)
        eventually(lambda: up.given_up() >= GIVEN_UP and up.actual() <= alone - GIVEN_UP, lambda: (alone, up.now(), manager.status()))
        assert held - up.held() >= GIVEN_UP / 2, "and the host has it"
        seen = breakdown(GuestMemoryReading(configured=MEMORY, actual=up.actual(), hypervisor=up.held(), pg_balloon=up.given_up()))
        most = up.given_up()
        assert GIVEN_UP <= seen.by_pg_balloon < seen.ballooned == seen.by_kernel + seen.by_pg_balloon, "a part of it, never added to it"

        # The host has plenty again: the guest gets its memory back, and the database, once it needs its pages, its buffers.
        manager.change_budget(MEMORY)
        eventually(lambda: up.actual() >= (1 - DEAD_BAND) * MEMORY - NEARLY, lambda: (up.now(), manager.status()))
        eventually(lambda: up.server.sql(READ) == [(ROWS * 7500,)] and up.given_up() <= most / 2, up.now)
        assert up.server.sql("SELECT pg_balloon_check()") == [(0,)]
    finally:
        manager.stop()
    assert up.machine.running and not up.machine.oom_kills()
