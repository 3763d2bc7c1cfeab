"""Completion of a database request for this host: budget, installation, runtime, scripts, size, settings and disk space.

This module contains the steps that all database studies share. They do not depend on the number of databases or on their load.
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
from pgherd.model.capabilities import capabilities_of
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

EMPTY_CLUSTER = 64 * 2**20
"""Bytes of a data directory without databases: catalogs and the first WAL segments."""
DISK_RESERVE = 512 * 2**20
UNKNOWN_SIZE = 256 * 2**20
UNCACHED_BUFFERS = 128 * 2**20
"""Bytes of shared buffers if the study requires that they do not hold the database: PostgreSQL's default."""


class Preparation(Basis):
    """Steps that complete a request for this host: limits, sizes, settings, disk space and options.

    The methods append a sentence for each default that they choose, and each warning, to ``choices``.
    """

    def require_own(self, why: str) -> None:
        """Require that pgherd starts the servers. Raises UsageError with the reason ``why`` if ``--dsn`` names an external server."""
        if self.theirs is not None:
            raise UsageError(f"--dsn {self.theirs.dsn} does not go with this: {why}")

    def limits(self, vcpus: float) -> Limits:
        """Return the CPU limit of each container: the requested one, or ``vcpus``. The default is a quota, if the runtime has quotas.

        Raises:
            UsageError: the requested limit exceeds the host's budget or contradicts other options.
            CapabilityError: the runtime cannot enforce the requested limit.
        """
        if self.theirs is not None:
            return Limits(self.cores, "none")
        return container_limits.limits(self.asked, self.runtime, self.cores, self.facts, vcpus)

    def container_memory(self) -> int | None:
        """Return the requested memory of each container in bytes. Raises CapabilityError if the runtime cannot limit memory."""
        return container_limits.memory(self.asked, self.runtime)

    def database_bytes(self) -> int:
        """Return the size of one database in bytes.

        A database for the user's scripts is loaded here, and each script runs once on a copy of it. Errors in them are
        therefore reported before the first trial.
        """
        if self.theirs is not None:
            return self.theirs.bytes
        parts = load_options.partitions(self.asked)
        database = Database(
            workload=self.workload, scale=self.scale, partitions=parts, init=self.asked.init_script, init_data=self.init_data
        )
        size = find(database.workload).size_estimate(self.scale)
        if size is not None and not self.asked.script:
            return size
        loaded_size = user_database.loaded(self, database)
        size = loaded_size or size or UNKNOWN_SIZE
        if loaded_size is None:
            self.choices.append(f"Warning: the database is not loaded yet, so its size is unknown. {format_bytes(size)} is assumed.")
        return size

    def memory_needed(self, database_bytes: int, clients: int, *, cached: bool = True) -> int:
        """Return the memory that one server needs, in bytes. With ``cached``, shared buffers hold the database."""
        if self.theirs is not None:
            return external_server.MEMORY + clients * 2**20
        buffers = settings.buffers_for(database_bytes, not self.read_only) if cached else UNCACHED_BUFFERS
        system = container_limits.GUEST_SYSTEM if capabilities_of(self.runtime).own_kernel else 0
        return settings.memory_needed(buffers, clients) + pages.rounding(self.node, pages.asked_settings(self.asked)) + system

    def settings(self, database_bytes: int, clients: int, memory: int | None, *, cached: bool = True) -> Choice:
        """Return the server's settings. Requested settings override --settings-from, which overrides the study's settings.

        Raises:
            UsageError: PostgreSQL rejects a setting, or a setting contradicts the load.
        """
        if self.theirs is not None:
            return Choice({}, (), cached)
        copied = Like({})
        if self.asked.settings_from:
            copied = like(self.node, self.asked.settings_from, self.usable, self.account, str(self.work))
        self.choices.extend(f"Left out of --settings-from: {dropped.name} ({dropped.why})." for dropped in copied.dropped)
        self.choices.extend(f"Warning: {warning}." for warning in copied.warnings)
        selected = settings.choose_settings(
            major=self.installation.major,
            database_bytes=database_bytes,
            clients=clients,
            memory=memory,
            writes=not self.read_only,
            cached=cached,
            like=copied.settings,
            asked=pages.asked_settings(self.asked),
        )
        selected = pages.explained(selected, self.asked)
        self.choices.extend(f"Warning: {warning}." for warning in selected.warnings)
        validation.validate(self.node, self.usable, selected.settings, self.account, str(self.work))
        return selected

    def disk(self, databases: int, database_bytes: int, lower: str = "--scale", templates: int = 1) -> int:
        """Return the disk space for ``databases`` clones and for templates with ``templates`` databases, in bytes.

        Raises:
            UsageError: there is less free space. The message names the options to ``lower``.
        """
        if self.theirs is not None:
            return 0
        databases = host_share.most_on_one(self.asked, databases, self.asked.vcpus or 1.0)
        written = 0 if self.read_only else 2**30
        server_places = self._checked_volumes(databases, database_bytes)
        self.holds.extend(server_places.holds)
        roles = server_places.roles or {}
        if "wal" in roles:
            written = 0
        if "data" in roles:
            databases = 0  # the cache contains only the template
        each = database_bytes + EMPTY_CLUSTER + written
        need = each * (databases + templates)
        existing = next(path for path in (self.cache, *self.cache.parents) if path.exists())
        free = shutil.disk_usage(existing).free
        if need + DISK_RESERVE > free:
            many = "1 database" if databases == 1 else f"{databases} databases"
            copies = "a template" if templates == 1 else f"templates of {templates}"
            raise UsageError(
                f"{many} of about {format_bytes(each)} and {copies} need {format_bytes(need)} below {self.cache}, which has "
                f"{format_bytes(free)} free; lower {lower}, or set XDG_CACHE_HOME to a larger disk"
            )
        return need

    def _checked_volumes(self, databases: int, database_bytes: int) -> server_volumes.ServerPlaces:
        """Return the requested volumes after checking that they have space for this number of databases."""
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
        """Return the fields of DatabaseOptions without times and repeats.

        ``memory`` is the limit of each container in bytes. It includes reserved huge pages.

        Raises:
            UsageError: ``memory`` is too small for the requested huge pages.
            CapabilityError: this kernel or this PostgreSQL does not support huge pages.
        """
        asked = self.asked
        need = self._pages(selected)
        if need is not None:
            pages.require_room(need, memory)
        if capabilities_of(self.runtime).own_kernel and memory is None:
            memory = container_limits.guest_memory_needed(selected.settings)
            self.choices.append(f"Each guest has {format_bytes(memory)} of memory, for its server, its kernel and its agent.")
        elif capabilities_of(self.runtime).own_kernel and memory is not None:
            memory, messages = vm_options.whole_memory(memory)
            self.choices.extend(messages)
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
        """Return the prepared study. ``memory`` is the memory of all servers in bytes.

        Raises:
            CapabilityError: this host cannot reserve the huge pages that all servers need together.
        """
        confirm, reserved_pages = pages.host_changes(self.node, study, options, self._pages(selected))
        where = "drivers' output" if self.theirs else "servers' data"
        changes = [f"{where} in {self.cache / 'work'}", "sockets in a private directory below /run or /tmp"]
        server_places = self._checked_volumes(0, 0)
        changes += server_places.changes
        confirm = (*confirm, *server_places.confirm)
        if capabilities_of(self.runtime).own_kernel:
            changes.insert(0, "virtual machines (QEMU), each with separate disks")
            vm_changes, vm_pages = vm_options.host_changes(self.node, study, options, self.guest_memory, self.memory)
            confirm, reserved_pages = (*confirm, *vm_changes), reserved_pages | vm_pages
            self.choices.extend(vm_options.page_cache(self.node, study, self.cache, server_places))
            overhead = self.guest_memory.overhead if self.guest_memory is not None else 0
            assert self.beneath is not None
            self.choices.append(vm_options.sentence(self.node, self.beneath, options.guest, overhead))
        if capabilities_of(self.runtime).cgroups or (capabilities_of(self.runtime).own_kernel and self.facts.cgroup_writable):
            changes.insert(0, f"control groups below {self.facts.cgroup_writable or 'the delegated subtree'}")
        if self.facts.core_note:
            self.choices.append(f"Cores of this host: {self.facts.core_note}")
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
            choices=(*self.choices, *server_places.choices),
            settings=selected.rows,
            host_changes=tuple(dict.fromkeys((*changes, *confirm))),
            disk=disk,
            memory=memory,
            confirm=confirm,
            typed=server_places.typed,
            huge_pages=reserved_pages,
            pace=self.pace[-1] if self.pace else None,
            holds=tuple(self.holds),
        )

    def _pages(self, selected: Choice) -> Need | None:
        """Return the reserved huge pages that one server needs, as computed by PostgreSQL. None: it needs none."""
        if not huge_pages.insists(selected.settings):
            return None
        cluster = validation.configured(self.node, self.usable, selected.settings, self.account, str(self.work))
        return huge_pages.needed(self.node, self.usable, selected.settings, cluster, self.account)

    def _volume_fields(self) -> dict[str, Any]:
        roles, spaces = server_volumes.asked_places(self.asked)
        by_name = {volume.name: volume for volume in (*roles.values(), *spaces)}
        return {
            "volumes": tuple(by_name.values()),
            "roles": {role: volume.name for role, volume in roles.items()},
            "tablespaces": tuple(volume.name for volume in spaces),
        }


@contextlib.contextmanager
def preparation(node: Node, asked: DatabaseRequest, dry: bool) -> Iterator[Preparation]:
    """Check the request against this host and yield its preparation. Remove temporary files on exit.

    With ``dry``, no database is loaded.

    Raises:
        UsageError: an option is wrong, or requires more than this host has.
        CapabilityError: this host does not support the request.
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
        mix = load_options.own_mix(asked)
        scripts, read_only, script_messages = load_options.scripts(asked, mix)
        theirs = None if asked.dsn is None else external_server.find(asked, read_only=read_only)
        runtime, sentence = choose(node, journal, facts, asked.runtime if theirs is None else "external", "prep")
        choices.extend(
            [sentence, *data_checksums.words(asked, installation.major)]
            if theirs is None
            else external_server.sentences(theirs, asked, read_only=read_only)
        )
        if capabilities_of(runtime.name).own_kernel:
            container_limits.require_guest_can(node, asked, scripts)
        init_data, init_messages = load_options.data_of_init(node, asked)
        platform.check(node, asked.track, facts.cgroup_writable if runtime.name == "cgroup" else None)
        work = paths.work_tree(node, journal, "prepare", account)
        # Before all sizes, because the memory that a guest needs depends on the hypervisor.
        beneath = vm_options.hypervisor(node, cache, work, dry=dry) if capabilities_of(runtime.name).own_kernel else None
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
            scale=(theirs.scale if theirs else None) or asked.scale or (mix.scale if mix and not asked.init_script else 10),
            choices=[*choices, *script_messages, *init_messages],
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
