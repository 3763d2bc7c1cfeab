"""Transfer of a template from one host to another: sender and receiver, each in its host's agent.

The data directory was created on another machine. It is accepted only for the same key, and only if byte-identical
PostgreSQL files on the same architecture would have created it here (``postgres.installations.substance``). It is moved into place
only when complete, under the lock that creating it here would need.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pgherd.model.errors import TrialError
from pgherd.model.trial import Trial
from pgherd.node.protocol import Node
from pgherd.postgres import templates
from pgherd.postgres.disk_space import used_bytes
from pgherd.postgres.installations import Installation, decisive, substance
from pgherd.postgres.instance import checksums_default
from pgherd.postgres.templates import Template
from pgherd.workloads.registry import loaders
from pgherd.workloads.user_script import settings_of_contents

CHUNK_BYTES = 4 * 2**20
"""Maximum bytes per call."""


@dataclass(frozen=True)
class Manifest:
    """Contents of a template's data directory: directories, and files with sizes, in the order of transfer.

    Paths are relative to it. ``substance`` is that of the installation which created it.
    """

    template: Template
    substance: str
    directories: tuple[str, ...]
    files: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        """Return the total size of all files."""
        return sum(size for _, size in self.files)


@dataclass(frozen=True)
class Chunk:
    """Bytes of the concatenated files. The last one has ``digest``, the SHA-256 of all of them."""

    data: bytes
    digest: str | None = None


class TemplateSender:
    """Finished template, read from start to end."""

    def __init__(self, copy: Template, substance: str) -> None:
        """List its files. Raises TrialError if it holds anything but directories and files, OSError if it cannot be
        read.
        """
        self._home = copy.data_dir
        directories, files = [], []
        for parent, subdirectories, names in os.walk(self._home, onerror=_raise):
            for name in sorted((*subdirectories, *names)):
                path = os.path.join(parent, name)
                mode, size = (status := os.lstat(path)).st_mode, status.st_size
                if stat.S_ISDIR(mode):
                    directories.append(os.path.relpath(path, self._home))
                elif stat.S_ISREG(mode):
                    files.append((os.path.relpath(path, self._home), size))
                else:
                    raise TrialError(f"template {copy.key} contains '{name}', which is neither a file nor a directory")
        self.manifest = Manifest(copy, substance, tuple(directories), tuple(files))
        self._number, self._offset, self._hash = 0, 0, hashlib.sha256()

    def next(self, maximum: int = CHUNK_BYTES) -> Chunk:
        """Return the next bytes. Raises OSError."""
        pieces, remaining = [], maximum
        while self._number < len(self.manifest.files) and remaining:
            path, size = self.manifest.files[self._number]
            with open(os.path.join(self._home, path), "rb") as file:
                file.seek(self._offset)
                data = file.read(min(remaining, size - self._offset))
            if not data and self._offset < size:
                raise OSError(f"{path} of the template shrank while it was read")
            pieces.append(data)
            remaining -= len(data)
            self._offset += len(data)
            if self._offset == size:
                self._number, self._offset = self._number + 1, 0
        load = b"".join(pieces)
        self._hash.update(load)
        return Chunk(load, self._hash.hexdigest() if self._number == len(self.manifest.files) else None)


class TemplateReceiver:
    """Receives a template in pieces. Call ``keep`` to commit it or ``drop`` to discard it."""

    def __init__(self, node: Node, manifest: Manifest, cache_dir: str, account: str | None) -> None:
        """Create its directories, if there is enough space.

        Raises:
            TrialError: the manifest does not describe a data directory, or the template already exists here or is
                being created here.
            CapabilityError: there is too little space.
        """
        _check_manifest(manifest)
        self._node, self._manifest, self._account = node, manifest, account
        self._hash, self._number, self._offset = hashlib.sha256(), 0, 0
        self._open = contextlib.ExitStack()
        key = manifest.template.key
        unfinished = self._open.enter_context(templates.assembling(node, cache_dir, key, manifest.bytes, account=account, made_here=False))
        try:
            if unfinished is None:
                raise TrialError(f"template {key} exists already")
            self._unfinished, self._data = unfinished, os.path.join(unfinished, "data")
            os.mkdir(self._data, 0o700)
            for path in manifest.directories:
                os.mkdir(os.path.join(self._data, path), 0o700)
        except BaseException:
            self.drop()
            raise

    def add(self, data: bytes) -> None:
        """Write the next bytes of the files. Raises TrialError if there are more than in the manifest, OSError on a full
        disk.
        """
        self._hash.update(data)
        remaining = memoryview(data)
        while self._number < len(self._manifest.files):
            path, size = self._manifest.files[self._number]
            part = remaining[: size - self._offset]
            if not part and size > self._offset:
                return
            with open(os.path.join(self._data, path), "ab", opener=_private) as file:
                file.write(part)
            remaining, self._offset = remaining[len(part) :], self._offset + len(part)
            if self._offset == size:
                self._number, self._offset = self._number + 1, 0
        if remaining:
            raise TrialError(f"template {self._manifest.template.key} has more bytes than announced")

    def keep(self, digest: str) -> None:
        """Move it into place. Raises TrialError if it is incomplete or differs from what was sent, and OSError."""
        copy = self._manifest.template
        if self._number < len(self._manifest.files) or self._hash.hexdigest() != digest:
            raise TrialError(f"template {copy.key} was not received as sent")
        local = replace(copy, bytes=used_bytes(self._node, self._data))
        templates.seal(self._node, self._unfinished, local)
        self._open.close()

    def drop(self) -> None:
        """Remove what was received, unless it was kept."""
        with contextlib.suppress(_Dropped):
            self._open.__exit__(_Dropped, _Dropped(), None)
        self._open = contextlib.ExitStack()


class _Dropped(Exception):
    """Ends the assembly of a discarded template."""


def _check_manifest(manifest: Manifest) -> None:
    """Require that all files are below one directory, each in a directory that was listed before. Raises TrialError."""
    paths, directories = {""}, {""}
    for path, size in (*((path, None) for path in manifest.directories), *manifest.files):
        name = os.path.basename(path)
        if path in paths or name in ("", ".", "..") or "\0" in name or os.path.dirname(path) not in directories or (size or 0) < 0:
            raise TrialError(f"template {manifest.template.key} would contain '{path}', which is not in its data directory")
        paths.add(path)
        if size is None:
            directories.add(path)
    if not {path for path, _ in manifest.files} >= {"PG_VERSION", "global/pg_control"}:
        raise TrialError(f"template {manifest.template.key} is not a data directory: it lacks PG_VERSION or global/pg_control")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _raise(error: OSError) -> None:
    raise error


class TemplateTransfer:
    """Template transfers of one host's agent: at most one outgoing and one incoming at a time."""

    def __init__(self, node: Node, installations: Mapping[str, Installation], cache_dir: str, account: str | None) -> None:
        """Args:
        installations: bin directory, as trials name it, to the installation here.
        """
        self._node, self._installations, self._cache, self._account = node, installations, cache_dir, account
        self._substances: dict[str, str] = {}
        self._missing: dict[str, str] = {}
        self._out: TemplateSender | None = None
        self._in: TemplateReceiver | None = None

    def lacks(self, part: Trial) -> dict[str, str]:
        """Return key → bin directory, as trials name it, of the templates that a part needs and this host lacks."""
        missing = {}
        seen: set[str] = set()
        for _, _, server in part.deployment.servers():
            contents = f"{server.bin} {server.checksums} {settings_of_contents(server)} {server.databases}"
            if server.dsn is None and contents not in seen:
                seen.add(contents)
                installation = self._installations[server.bin]
                checksums = checksums_default(installation.major) if server.checksums is None else server.checksums
                key = templates.key_of(installation, loaders(self._node, server.databases, server.settings), checksums)
                if templates.at(self._node, self._cache, key) is None:
                    missing[key] = server.bin
        self._missing |= missing
        return missing

    def has(self, wanted: dict[str, str]) -> dict[str, float]:
        """Return key → seconds that creating it took, of the templates that exist here."""
        copies = {key: templates.at(self._node, self._cache, os.path.basename(key)) for key in wanted}
        return {key: copy.seconds for key, copy in copies.items() if copy is not None}

    def lend(self, key: str, bin_: str) -> Manifest:
        """Start sending a template. Raises TrialError, OSError."""
        copy = templates.at(self._node, self._cache, os.path.basename(key))
        if copy is None:
            raise TrialError(f"template {key} is gone")
        if any(os.stat(path).st_ctime >= copy.made for path in decisive(self._node, self._installations[bin_])):
            raise TrialError(f"PostgreSQL or one of its libraries was installed after template {key} was created")
        self._out = TemplateSender(copy, self._substance(bin_))
        return self._out.manifest

    def piece(self) -> Chunk:
        """Return the next bytes of the outgoing template. Raises OSError, and TrialError if there is none."""
        if self._out is None:
            raise TrialError("no template is being sent")
        return self._out.next()

    def borrow(self, manifest: Manifest) -> None:
        """Start receiving a template.

        Raises:
            TrialError: this host does not lack it, a different PostgreSQL created it, or it is being created here.
            CapabilityError: there is too little space.
        """
        self.drop()
        key, bin_ = manifest.template.key, self._missing.get(manifest.template.key)
        if bin_ is None:
            raise TrialError(f"this host does not need template {key}")
        local = self._substance(bin_)
        if not local or local != manifest.substance:
            raise TrialError(f"template {key} was created with PostgreSQL files or libraries that differ from those here")
        self._in = TemplateReceiver(self._node, manifest, self._cache, self._account)

    def add(self, data: bytes) -> None:
        """Write the next bytes of the incoming template. Raises as ``TemplateReceiver.add``."""
        self._incoming().add(data)

    def keep(self, digest: str) -> None:
        """Commit the incoming template. Raises as ``TemplateReceiver.keep``."""
        self._incoming().keep(digest)
        self._in = None

    def drop(self) -> None:
        """Discard the outgoing transfer, and an incoming template that was not kept."""
        self._out = None
        if self._in is not None:
            self._in.drop()
            self._in = None

    def _incoming(self) -> TemplateReceiver:
        if self._in is None:
            raise TrialError("no template is being received")
        return self._in

    def _substance(self, bin_: str) -> str:
        if bin_ not in self._substances:
            self._substances[bin_] = substance(self._node, self._installations[bin_])
        return self._substances[bin_]
