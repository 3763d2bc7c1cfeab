"""A golden copy that is carried from one host to another: read in pieces there, put together here. Both ends, each in its host's agent.

What is carried is a data directory that another machine has made. It is taken only for the same key, and only where the same
PostgreSQL, to the byte, on the same architecture would have made it here (``postgres.installations``); and it is put in place, under the
lock under which it would have been made here, only once every byte of it has come.
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
from pgherd.node.protocol import Command, Node
from pgherd.postgres import golden
from pgherd.postgres.disk import patience, used_bytes
from pgherd.postgres.golden import Golden
from pgherd.postgres.installations import Installation, decisive, substance
from pgherd.postgres.instance import checksums_default
from pgherd.workloads.registry import fillings

PIECE = 4 * 2**20
"""Bytes that one call carries at most."""


@dataclass(frozen=True)
class Manifest:
    """What a golden copy's data directory holds: its directories, and its files with their bytes, in the order in which they come; paths
    are relative to it. ``substance`` is that of the installation which made it."""

    golden: Golden
    substance: str
    directories: tuple[str, ...]
    files: tuple[tuple[str, int], ...]

    @property
    def bytes(self) -> int:
        """All files together."""
        return sum(size for _, size in self.files)


@dataclass(frozen=True)
class Load:
    """Some bytes of the files, one after the other as if they were one; ``digest`` is the SHA-256 of all of them, with the last."""

    data: bytes
    digest: str | None = None


class Outgoing:
    """A finished golden copy, read from its beginning to its end."""

    def __init__(self, copy: Golden, substance: str) -> None:
        """List it; raises TrialError where it holds anything but directories and files, OSError where it cannot be read."""
        self._home = copy.data_dir
        directories, files = [], []
        for place, below, names in os.walk(self._home, onerror=_raise):
            for name in sorted((*below, *names)):
                path = os.path.join(place, name)
                mode, size = (found := os.lstat(path)).st_mode, found.st_size
                if stat.S_ISDIR(mode):
                    directories.append(os.path.relpath(path, self._home))
                elif stat.S_ISREG(mode):
                    files.append((os.path.relpath(path, self._home), size))
                else:
                    raise TrialError(f"the golden copy {copy.key} holds '{name}', which is neither a file nor a directory")
        self.manifest = Manifest(copy, substance, tuple(directories), tuple(files))
        self._number, self._offset, self._hash = 0, 0, hashlib.sha256()

    def next(self, most: int = PIECE) -> Load:
        """The next bytes; raises OSError."""
        pieces, room = [], most
        while self._number < len(self.manifest.files) and room:
            path, size = self.manifest.files[self._number]
            with open(os.path.join(self._home, path), "rb") as file:
                file.seek(self._offset)
                data = file.read(min(room, size - self._offset))
            if not data and self._offset < size:
                raise OSError(f"{path} of the golden copy became shorter while it was read")
            pieces.append(data)
            room -= len(data)
            self._offset += len(data)
            if self._offset == size:
                self._number, self._offset = self._number + 1, 0
        load = b"".join(pieces)
        self._hash.update(load)
        return Load(load, self._hash.hexdigest() if self._number == len(self.manifest.files) else None)


class Incoming:
    """A golden copy that comes in: begun, added to, and at last kept, or dropped."""

    def __init__(self, node: Node, manifest: Manifest, cache_dir: str, account: str | None) -> None:
        """Make its directories, where there is room for it.

        Raises:
            TrialError: the manifest is not one of a data directory, or the copy has come to be here meanwhile, or is being made here.
            CapabilityError: there is too little room.
        """
        _insist_proper(manifest)
        self._node, self._manifest, self._account = node, manifest, account
        self._hash, self._number, self._offset = hashlib.sha256(), 0, 0
        self._open = contextlib.ExitStack()
        key = manifest.golden.key
        unfinished = self._open.enter_context(golden.assembling(node, cache_dir, key, manifest.bytes, account=account, made_here=False))
        try:
            if unfinished is None:
                raise TrialError(f"the golden copy {key} is there already")
            self._unfinished, self._data = unfinished, os.path.join(unfinished, "data")
            os.mkdir(self._data, 0o700)
            for path in manifest.directories:
                os.mkdir(os.path.join(self._data, path), 0o700)
        except BaseException:
            self.drop()
            raise

    def add(self, data: bytes) -> None:
        """The next bytes of the files; raises TrialError where they are more than the manifest says, OSError on a full disk."""
        self._hash.update(data)
        rest = memoryview(data)
        while self._number < len(self._manifest.files):
            path, size = self._manifest.files[self._number]
            part = rest[: size - self._offset]
            if not part and size > self._offset:
                return
            with open(os.path.join(self._data, path), "ab", opener=_private) as file:
                file.write(part)
            rest, self._offset = rest[len(part) :], self._offset + len(part)
            if self._offset == size:
                self._number, self._offset = self._number + 1, 0
        if rest:
            raise TrialError(f"the golden copy {self._manifest.golden.key} goes on after its end")

    def keep(self, digest: str) -> None:
        """Put it in place; raises TrialError where it is not whole, or not what was sent, and OSError."""
        copy = self._manifest.golden
        if self._number < len(self._manifest.files) or self._hash.hexdigest() != digest:
            raise TrialError(f"the golden copy {copy.key} has not come as it was sent")
        here = replace(copy, owner=self._account, bytes=used_bytes(self._node, self._data))
        if self._account is not None:
            # Not before: whoever may rename in it could make us write somewhere else.
            owned = self._node.run(Command(["chown", "-R", f"{self._account}:", "--", self._unfinished]), timeout=patience(copy.bytes))
            if owned.code != 0:
                raise TrialError(f"the golden copy {copy.key} cannot be given to '{self._account}': {owned.err.strip()}")
        golden.seal(self._node, self._unfinished, here)
        self._open.close()

    def drop(self) -> None:
        """Remove what has come, if it has not been kept."""
        with contextlib.suppress(_Dropped):
            self._open.__exit__(_Dropped, _Dropped(), None)
        self._open = contextlib.ExitStack()


class _Dropped(Exception):
    """Ends an assembly that is of no use."""


def _insist_proper(manifest: Manifest) -> None:
    """That a manifest names files below one directory, each in a directory that it has named before; raises TrialError."""
    taken, directories = {""}, {""}
    for path, size in (*((path, None) for path in manifest.directories), *manifest.files):
        name = os.path.basename(path)
        if path in taken or name in ("", ".", "..") or "\0" in name or os.path.dirname(path) not in directories or (size or 0) < 0:
            raise TrialError(f"the golden copy {manifest.golden.key} would hold '{path}', which does not lie in its data directory")
        taken.add(path)
        if size is None:
            directories.add(path)
    if not {path for path, _ in manifest.files} >= {"PG_VERSION", "global/pg_control"}:
        raise TrialError(f"the golden copy {manifest.golden.key} is no data directory: it lacks PG_VERSION or global/pg_control")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def _raise(error: OSError) -> None:
    raise error


class Carrier:
    """What one host's agent does of it. Of each kind one copy at a time: the one that is sent, and the one that comes in."""

    def __init__(self, node: Node, installations: Mapping[str, Installation], cache_dir: str, account: str | None) -> None:
        """``installations`` maps bin directories, as trials name them, to what runs them here."""
        self._node, self._installations, self._cache, self._account = node, installations, cache_dir, account
        self._substances: dict[str, str] = {}
        self._wanted: dict[str, str] = {}
        self._out: Outgoing | None = None
        self._in: Incoming | None = None

    def lacks(self, part: Trial) -> dict[str, str]:
        """Key → bin directory, as trials name it, of the golden copies that a part of a trial needs here and that are not here."""
        found = {}
        for _, _, server in part.deployment.servers():
            if server.dsn is None:
                here = self._installations[server.bin]
                checksums = checksums_default(here.major) if server.checksums is None else server.checksums
                key = golden.key_of(here, fillings(self._node, server.databases), checksums)
                if golden.at(self._node, self._cache, key) is None:
                    found[key] = server.bin
        self._wanted |= found
        return found

    def has(self, wanted: dict[str, str]) -> dict[str, float]:
        """Key → the seconds that it took to make it, of those golden copies that are here."""
        copies = {key: golden.at(self._node, self._cache, os.path.basename(key)) for key in wanted}
        return {key: copy.seconds for key, copy in copies.items() if copy is not None}

    def lend(self, key: str, bin_: str) -> Manifest:
        """Begin to send a copy; raises TrialError, OSError."""
        copy = golden.at(self._node, self._cache, os.path.basename(key))
        if copy is None:
            raise TrialError(f"the golden copy {key} is not there any more")
        if any(os.stat(path).st_ctime >= copy.made for path in decisive(self._node, self._installations[bin_])):
            raise TrialError(f"PostgreSQL or a library of its has come to be here since the golden copy {key} was made")
        self._out = Outgoing(copy, self._substance(bin_))
        return self._out.manifest

    def piece(self) -> Load:
        """The next bytes of what is sent; raises OSError, and TrialError where nothing is."""
        if self._out is None:
            raise TrialError("no golden copy is being sent")
        return self._out.next()

    def borrow(self, manifest: Manifest) -> None:
        """Begin to take a copy in.

        Raises:
            TrialError: it is none that this host lacks, or was made by another PostgreSQL; or one is being made here.
            CapabilityError: there is too little room.
        """
        self.drop()
        key, bin_ = manifest.golden.key, self._wanted.get(manifest.golden.key)
        if bin_ is None:
            raise TrialError(f"nobody here wants the golden copy {key}")
        own = self._substance(bin_)
        if not own or own != manifest.substance:
            raise TrialError(f"the golden copy {key} was made by a PostgreSQL, or with libraries, that differ from those here")
        self._in = Incoming(self._node, manifest, self._cache, self._account)

    def add(self, data: bytes) -> None:
        """The next bytes of what comes in; raises as ``Incoming.add``."""
        self._coming().add(data)

    def keep(self, digest: str) -> None:
        """What comes in has come whole; raises as ``Incoming.keep``."""
        self._coming().keep(digest)
        self._in = None

    def drop(self) -> None:
        """Let go of what is sent, and of what has come in and was not kept."""
        self._out = None
        if self._in is not None:
            self._in.drop()
            self._in = None

    def _coming(self) -> Incoming:
        if self._in is None:
            raise TrialError("no golden copy is coming in")
        return self._in

    def _substance(self, bin_: str) -> str:
        if bin_ not in self._substances:
            self._substances[bin_] = substance(self._node, self._installations[bin_])
        return self._substances[bin_]
