"""Completing what a request says of databases, for this host: budget, installation, runtime, scripts, size, settings, disk.

Studies differ in how many databases they deploy and how they load them; all that does not depend on it is here.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from pgherd.host import paths
from pgherd.host.account import server_account
from pgherd.host.facts import gather
from pgherd.host.journal import Journal
from pgherd.model.deployment import Database, RuntimeName
from pgherd.model.errors import UsageError
from pgherd.model.run import Surroundings
from pgherd.model.units import format_bytes, parse_seconds
from pgherd.node.protocol import Node
from pgherd.postgres import huge_pages, installations, settings, validation
from pgherd.postgres.huge_pages import Need
from pgherd.postgres.like import Like, like
from pgherd.postgres.settings import Choice
from pgherd.prepare import (
    container_limits,
    data_checksums,
    external_server,
    host_share,
    load_options,
    server_volumes,
    user_database,
    vm_options,
)
from pgherd.prepare.container_limits import Limits
from pgherd.prepare.context import Basis
from pgherd.prepare.prepared_study import Prepared, thresholds
from pgherd.prepare.vm_memory_policy import policy as guest_policy
from pgherd.runner.deploy import pages, platform, volumes
from pgherd.runner.play import io_view
from pgherd.runtimes.choice import choose
from pgherd.study.database_options import DatabaseOptions, DatabaseRequest
from pgherd.workloads.registry import find

# Data directory beyond the databases: catalogs, the first WAL segments.
EMPTY_CLUSTER = 64 * 2**20
DISK_RESERVE = 512 * 2**20
UNKNOWN_SIZE = 256 * 2**20
UNCACHED_BUFFERS = 128 * 2**20
"""Shared buffers of databases that are meant not to fit into them: PostgreSQL's default."""


class Preparation(Basis):
    """What stands fast of a request, and what it needs on this host: limits, sizes, settings, disk, options.

    The methods add sentences on what they chose to ``choices``.
    """

    def require_own(self, why: str) -> None:
        """For a study that needs servers of its own; raises UsageError, with ``why``, where ``--dsn`` names somebody else's."""
        if self.theirs is not None:
            raise UsageError(f"--dsn {self.theirs.dsn} does not go with this: {why}")

    def limits(self, vcpus: float) -> Limits:
        """CPU of each container: what was asked for, else ``vcpus``; by quota where the runtime has one.

        Raises:
            UsageError: it cannot be given so.
            CapabilityError: it needs another runtime.
        """
        if self.theirs is not None:
            return Limits(self.cores, "none")
        return container_limits.limits(self.asked, self.runtime, self.cores, self.facts, vcpus)

    def container_memory(self) -> int | None:
        """The memory that was asked for each container; raises CapabilityError where the runtime cannot limit it."""
        return container_limits.memory(self.asked, self.runtime)

    def database_bytes(self) -> int:
        """Size of one database. A user's own database is loaded, and each script tried on a copy of it, so that an error
        shows before anything is measured."""
        if self.theirs is not None:
            return self.theirs.bytes
        parts = load_options.partitions(self.asked)
        database = Database(
            workload=self.workload, scale=self.scale, partitions=parts, init=self.asked.init_script, init_data=self.init_data
        )
        size = find(database.workload).size_estimate(self.scale)
        if size is not None and not self.asked.script:
            return size
        known = user_database.loaded(self, database)
        size = known or size or UNKNOWN_SIZE
        if known is None:
            self.choices.append(f"Warning: the database's size is known only once it is loaded; {format_bytes(size)} is assumed.")
        return size

    def memory_needed(self, database_bytes: int, clients: int, *, cached: bool = True) -> int:
        """Bytes of memory that one server needs, with the database in its shared buffers where it is to be cached."""
        if self.theirs is not None:
            return external_server.MEMORY + clients * 2**20
        buffers = settings.buffers_for(database_bytes, not self.read_only) if cached else UNCACHED_BUFFERS
        system = container_limits.GUEST_SYSTEM if self.runtime == "vm" else 0
        return settings.memory_needed(buffers, clients) + pages.rounding(self.node, pages.asked_settings(self.asked)) + system

    def settings(self, database_bytes: int, clients: int, memory: int | None, *, cached: bool = True) -> Choice:
        """The server's settings: what was asked for over --settings-from over what the study needs.

        Raises:
            UsageError: PostgreSQL refuses one, or they contradict what is to be run.
        """
        if self.theirs is not None:
            return Choice({}, (), cached)
        own = Like({})
        if self.asked.settings_from:
            own = like(self.node, self.asked.settings_from, self.usable, self.account, str(self.work))
        self.choices.extend(f"Left out of --settings-from: {dropped.name} ({dropped.why})." for dropped in own.dropped)
        self.choices.extend(f"Warning: {warning}." for warning in own.warnings)
        selected = settings.choose_settings(
            major=self.installation.major,
            database_bytes=database_bytes,
            clients=clients,
            memory=memory,
            writes=not self.read_only,
            cached=cached,
            like=own.settings,
            asked=pages.asked_settings(self.asked),
        )
        selected = pages.explained(selected, self.asked)
        self.choices.extend(f"Warning: {warning}." for warning in selected.warnings)
        validation.validate(self.node, self.usable, selected.settings, self.account, str(self.work))
        return selected

    def disk(self, databases: int, database_bytes: int, lower: str = "--scale", golden: int = 1) -> int:
        """Bytes of disk that so many databases need, and so many in golden copies; raises UsageError, with what to ``lower``, when
        there is less."""
        if self.theirs is not None:
            return 0
        databases = host_share.most_on_one(self.asked, databases, self.asked.vcpus or 1.0)
        written = 0 if self.read_only else 2**30
        wal_dir = self.wal_dir
        if wal_dir is not None:
            self.holds.append(server_volumes.wal_beside(wal_dir, volumes.wal_bytes(databases, self.read_only)))
            server_volumes.look(self.node, self.holds[-1], self.account)
            if volumes.same_device(self.node, wal_dir, str(self.cache)):
                self.choices.append(f"Warning: --wal-dir {wal_dir} lies on the same file system as the servers' data in {self.cache}.")
            written = 0
        places = self._placed(databases, database_bytes)
        self.holds.extend(places.holds)
        placed = places.roles or {}
        if "wal" in placed:
            written = 0
        if "data" in placed:
            databases = 0  # the golden copy alone lies in the cache
        each = database_bytes + EMPTY_CLUSTER + written
        need = each * (databases + golden)
        existing = next(path for path in (self.cache, *self.cache.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if need + DISK_RESERVE > free:
            many = "1 database" if databases == 1 else f"{databases} databases"
            copies = "a golden copy" if golden == 1 else f"golden copies of {golden}"
            raise UsageError(
                f"{many} of about {format_bytes(each)} and {copies} need {format_bytes(need)} below {self.cache}, which has "
                f"{format_bytes(free)} free; lower {lower}, or set XDG_CACHE_HOME to a larger disk"
            )
        return need

    def _placed(self, databases: int, database_bytes: int) -> server_volumes.ServerPlaces:
        """What lies on volumes of its own, looked at, with room for so many databases."""
        written = 0 if self.read_only else 2**30
        return server_volumes.server_places(
            self.node,
            self.asked,
            self.account,
            {
                "data": databases * (database_bytes + EMPTY_CLUSTER + written),
                "wal": volumes.wal_bytes(databases, self.read_only),
                "temp": databases * volumes.TEMP_BYTES,
                "tablespace": databases * (database_bytes + written),
            },
        )

    def options(self, limits: Limits, selected: Choice, memory: int | None) -> dict[str, Any]:
        """The fields of DatabaseOptions but for times and repeats. ``memory`` is each container's, bytes, huge pages included.

        Raises:
            UsageError: that is too little for them.
            CapabilityError: this kernel or this PostgreSQL has none.
        """
        asked = self.asked
        need = self._pages(selected)
        if need is not None:
            pages.require_room(need, memory)
        if self.runtime == "vm" and memory is None:
            memory = container_limits.guest_memory_needed(selected.settings)
            self.choices.append(f"Each guest has {format_bytes(memory)} of memory: what its server needs, its kernel and its agent.")
        elif self.runtime == "vm" and memory is not None:
            memory, said = vm_options.whole_memory(memory)
            self.choices.extend(said)
        return {
            "cores": self.cores,
            "memory": self.memory,
            "vcpus": limits.vcpus,
            "container_memory": memory,
            "runtime": self.runtime,
            "cpu_mode": limits.cpu_mode,
            **vm_options.fields(asked, self.runtime, limits.vcpus, self.cores),
            "pg_bin": self.installation.bin,
            "pg_version": self.theirs.version if self.theirs else self.installation.version,
            "server": self.theirs.dsn if self.theirs else None,
            "settings": selected.settings,
            "workload": self.workload,
            "scale": self.scale,
            "partitions": load_options.partitions(asked),
            "init": asked.init_script and str(Path(asked.init_script).resolve()),
            "init_data": self.init_data,
            "transparent_huge_pages": huge_pages.transparent_for(asked.huge_pages),
            "huge_page_bytes": need.bytes if need is not None else 0,
            "checksums": None if self.theirs else self.checksums,
            "wal_dir": self.wal_dir,
            **self._volume_fields(),
            "scripts": self.scripts,
            "read_only": self.read_only,
            "rate": asked.rate,
            "variables": dict(self.own.variables) if self.own and not asked.init_script else {},
            "check_consistency": asked.check_consistency,
            "protocol": asked.protocol,
            "client_place": "outside" if self.theirs else asked.client_placement,
            "sampling": load_options.sampling(asked, self.read_only, self.scripts, self.pace[-1] if self.pace else None),
            "budget_seconds": parse_seconds(asked.time_budget) if asked.time_budget else None,
            "state": self.own.state
            if self.own and not asked.init_script and "start_state" not in asked.model_fields_set
            else asked.start_state,
            "seed": asked.seed if asked.seed is not None else random.randrange(2**31),
            "thresholds": self.thresholds,
        }

    def prepared(self, study: str, options: DatabaseOptions, selected: Choice, *, disk: int, memory: int) -> Prepared:
        """The outcome; ``memory`` is that of all servers, bytes.

        Raises:
            CapabilityError: the huge pages that the servers need together cannot be had.
        """
        confirm, wanted = pages.host_changes(self.node, study, options, self._pages(selected))
        where = "drivers' output" if self.theirs else "servers' data"
        changes = [f"{where} in {self.cache / 'work'}", "sockets in a private directory below /run or /tmp"]
        if self.wal_dir is not None:
            changes.append(f"servers' WAL in a private directory below {self.wal_dir}")
        places = self._placed(0, 0)
        changes += places.changes
        confirm = (*confirm, *places.confirm)
        if self.runtime == "vm":
            changes.insert(0, "virtual machines (QEMU), each with disks of its own")
            more, beneath = vm_options.host_changes(self.node, study, options, self.guest_memory, self.memory)
            confirm, wanted = (*confirm, *more), wanted | beneath
            self.choices.extend(vm_options.page_cache(self.node, study, self.cache, places))
            own = self.guest_memory.overhead if self.guest_memory is not None else 0
            assert self.beneath is not None
            self.choices.append(vm_options.sentence(self.node, self.beneath, options.guest, own))
        if self.runtime == "cgroup" or (self.runtime == "vm" and self.facts.cgroup_writable):
            changes.insert(0, f"control groups below {self.facts.cgroup_writable or 'the delegated subtree'}")
        if self.facts.core_note:
            self.choices.append(f"What a core is here: {self.facts.core_note}")
        return Prepared(
            study=study,
            options=options,
            surroundings=Surroundings(
                runtime=self.runtime,
                run_as=self.account,
                cores=self.cores,
                memory=min(self.memory, memory) if self.theirs else self.memory,
                platform=self.asked.track,
                trace=self.asked.trace_io,
                guest_memory=self.guest_memory,
            ),
            thresholds=self.thresholds,
            facts=self.facts,
            installation=self.installation,
            choices=(*self.choices, *places.choices),
            settings=selected.rows,
            host_changes=tuple(dict.fromkeys((*changes, *confirm))),
            disk=disk,
            memory=memory,
            confirm=confirm,
            typed=places.typed,
            huge_pages=wanted,
            pace=self.pace[-1] if self.pace else None,
            holds=tuple(self.holds),
        )

    def _pages(self, selected: Choice) -> Need | None:
        """The reserved huge pages that one server needs, as PostgreSQL says."""
        if not huge_pages.insists(selected.settings):
            return None
        cluster = validation.configured(self.node, self.usable, selected.settings, self.account, str(self.work))
        return huge_pages.needed(self.node, self.usable, selected.settings, cluster, self.account)

    def _volume_fields(self) -> dict[str, Any]:
        roles, spaces = server_volumes.asked_places(self.asked)
        found = {one.name: one for one in (*roles.values(), *spaces)}
        return {
            "volumes": tuple(found.values()),
            "roles": {role: one.name for role, one in roles.items()},
            "tablespaces": tuple(one.name for one in spaces),
        }


@contextlib.contextmanager
def preparation(node: Node, asked: DatabaseRequest, dry: bool) -> Iterator[Preparation]:
    """Look at this host and the request; what is made for it goes at the end. ``dry``: load nothing.

    Raises:
        UsageError: it asks for something wrong, or for more than there is.
        CapabilityError: this host cannot do it.
    """
    limits = thresholds(asked.threshold)
    facts = gather(node)
    account = server_account(asked.run_as)
    installation = installations.choose(node, asked.pg_bin, asked.pg_version)
    choices = [f"PostgreSQL {installation.version} ({installation.kind}) from {installation.bin}."]
    choices += io_view.require_traceable(node, asked.trace_io)
    cores, memory = host_share.budget(asked, facts)
    cache = paths.cache_dir()
    journal = Journal.open(node, paths.state_dir(), "prepare")
    try:
        own = load_options.own_mix(asked)
        scripts, read_only, words = load_options.scripts(asked, own)
        theirs = None if asked.dsn is None else external_server.find(asked, read_only=read_only)
        runtime, sentence = choose(node, journal, facts, asked.runtime if theirs is None else "external", "prep")
        choices.extend(
            [sentence, *data_checksums.words(asked, installation.major)]
            if theirs is None
            else external_server.sentences(theirs, asked, read_only=read_only)
        )
        if runtime.name == "vm":
            container_limits.require_guest_can(node, asked, scripts)
        init_data, told = load_options.data_of_init(node, asked)
        platform.check(node, asked.track, facts.cgroup_writable if runtime.name == "cgroup" else None)
        work = paths.work_tree(node, journal, "prepare", account)
        # First of all: what a hypervisor needs, which sizes of memory follow from, depends on which it is.
        beneath = vm_options.hypervisor(node, cache, work, dry=dry) if runtime.name == "vm" else None
        yield Preparation(
            node=node,
            asked=asked,
            dry=dry,
            facts=facts,
            account=account,
            installation=installation,
            usable=installations.reachable_copy(node, installation, account, str(cache)),
            runtime=cast(RuntimeName, runtime.name),
            cores=cores,
            memory=memory,
            thresholds=limits,
            scripts=scripts,
            read_only=read_only,
            scale=(theirs.scale if theirs else None) or asked.scale or (own.scale if own and not asked.init_script else 10),
            choices=[*choices, *words, *told],
            journal=journal,
            work=work,
            cache=cache,
            theirs=theirs,
            init_data=init_data,
            guest_memory=guest_policy(node, asked, cast(RuntimeName, runtime.name)),
            beneath=beneath,
        )
    finally:
        journal.close()
