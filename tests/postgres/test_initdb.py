from __future__ import annotations

import struct
from pathlib import Path

import pytest

from pgherd.model.errors import TrialError
from pgherd.node.local import LocalNode
from pgherd.node.protocol import Command
from pgherd.postgres.initdb import arguments, checksums_default, initdb
from pgherd.postgres.installations import Installation


def test_arguments_follow_the_version() -> None:
    assert "--locale-provider=builtin" in arguments(17)
    assert "--locale-provider=builtin" not in arguments(16)
    assert "--data-checksums" not in arguments(18, checksums=True)  # its default
    assert "--no-data-checksums" in arguments(18, checksums=False)
    assert "--data-checksums" in arguments(15, checksums=True)
    assert not [word for word in arguments(15, checksums=False) if "checksums" in word]
    assert "--auth-host=reject" in arguments(15)


@pytest.mark.parametrize("checksums", [None, True, False])
def test_initdb_makes_a_cluster_of_the_account(node: LocalNode, installation: Installation, account, place: Path, checksums) -> None:
    data = place / "data"
    initdb(node, installation, str(data), account=account, checksums=checksums)
    assert (data / "PG_VERSION").read_text().strip() == str(installation.major)
    assert data.stat().st_mode & 0o777 == 0o700
    assert account is None or data.owner() == account
    said = node.run(Command([installation.tool("pg_controldata"), str(data)], user=account)).out
    on = checksums_default(installation.major) if checksums is None else checksums
    version = int(next(line.split(":")[1] for line in said.splitlines() if line.startswith("Data page checksum version")))
    assert (version != 0) == on


def test_its_own_words_when_it_fails(node: LocalNode, installation: Installation, account: str | None, place: Path) -> None:
    data = place / "data"
    node.make_dir(str(data), user=account)
    (data / "something").write_bytes(struct.pack("i", 1))
    with pytest.raises(TrialError, match=r"exists but is not empty"):
        initdb(node, installation, str(data), account=account)
