"""`pgherd compression`: from loading to the report, and of somebody else's database, which is only read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgherd.host.server_user import server_account
from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.instance import Instance, initdb
from pgherd.postgres.relation_files import Relations

NODE = LocalNode()


@pytest.fixture(scope="module")
def theirs() -> Iterator[Instance]:
    """A server with a table of noise with TOAST, a table of filler, and two who may log in: one may read files."""
    root = Path(tempfile.mkdtemp(prefix="theirs-", dir="/tmp"))
    root.chmod(0o755)
    account = server_account()
    try:
        usable = installations.reachable_copy(NODE, installations.choose(NODE), account, str(root))
    except CapabilityError as error:
        shutil.rmtree(root)
        pytest.skip(str(error))
    one = Instance(NODE, usable, str(root / "data"), str(root / "s"), account=account, name="theirs")
    try:
        initdb(NODE, usable, one.data_dir, account=account)
        one.write_settings({"fsync": "off", "autovacuum": "off"})
        one.start()
        one.wait_ready()
        with psycopg.connect(one.conninfo(), autocommit=True) as connection:
            for statement in (
                "CREATE ROLE reader LOGIN",
                "CREATE ROLE stranger LOGIN",
                "GRANT EXECUTE ON FUNCTION pg_read_binary_file(text, bigint, bigint, boolean) TO reader",
                "CREATE TABLE filler AS SELECT n, repeat(' ', 500) AS pad FROM generate_series(1, 20000) AS n",
                "CREATE INDEX filler_n ON filler (n)",
                'CREATE TABLE "odd/name" (id int, doc text)',
                'ALTER TABLE "odd/name" ALTER doc SET STORAGE EXTERNAL',
                'INSERT INTO "odd/name" SELECT n, repeat(md5(n::text), 200) FROM generate_series(1, 200) AS n',
                "CHECKPOINT",
            ):
                connection.execute(statement.encode())
        yield one
    finally:
        one.disconnect(["postgres"])
        one.stop("immediate", 10)
        shutil.rmtree(root)


def test_relations_are_those_of_the_disk(theirs):
    relations = Relations(lambda statement, parameters: theirs.sql(statement, parameters))
    found = {one.name: one for one in relations.all}
    tables = {"public.filler", "public.filler_n", "public.odd/name", "TOAST of public.odd/name", "index of TOAST of public.odd/name"}
    assert tables <= set(found) <= tables | {"index of TOAST of public.filler"}, "an empty TOAST table has an index all the same"
    one = found["public.filler"]
    data = Path(theirs.data_dir, one.path).read_bytes()
    assert len(data) == one.size and relations.read(one, 8192, 16384) == data[8192 : 8192 + 16384]
    assert relations.readable


def test_a_database_of_somebody_else_is_only_read(elsewhere, theirs):
    files = {file: file.stat().st_mtime for name in ("base", "global") for file in Path(theirs.data_dir, name).rglob("*") if file.is_file()}
    theirs.sql("CHECKPOINT")
    before = theirs.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
    dsn = f"host={theirs.socket_dir} user=reader dbname=postgres"
    ended = elsewhere("compression", "--data", "none", "--dsn", dsn, "--codecs", "lz4", "--block-sizes", "8k,32k", "--json", "--no-report")
    assert ended.code == 0, ended
    document = json.loads(ended.out)
    rows = {row["relation"]: row["ratio"]["value"] for row in document["tables"]["relations"]}
    assert rows["public.filler"] > 8 > rows["public.filler_n"] and "TOAST of public.odd/name" in rows
    assert document["findings"]["ratio_database_encrypted"]["value"] == pytest.approx(1)
    assert theirs.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())::text") == before, "no transaction wrote"
    assert files.keys() == {file for name in ("base", "global") for file in Path(theirs.data_dir, name).rglob("*") if file.is_file()}


def test_who_may_not_read_files_is_told_how(elsewhere, theirs):
    dsn = f"host={theirs.socket_dir} user=stranger dbname=postgres"
    ended = elsewhere("compression", "--data", "none", "--dsn", dsn, "--codecs", "lz4", "--no-encrypt", "--json", "--no-report")
    assert ended.code == 1, ended
    document = json.loads(ended.out)
    assert document["grade"] == "C" and "GRANT EXECUTE ON FUNCTION pg_read_binary_file" in document["warnings"][0]


def test_kinds_that_pgherd_makes_are_compressed_and_reported(elsewhere):
    words = ["--data", "pgbench@1,realistic@1", "--codecs", "lz4", "--block-sizes", "8k,32k", "--segments", "4"]
    ended = elsewhere("compression", *words, "--json")
    assert ended.code == 0, ended
    document = json.loads(ended.out)
    found = {name: finding["value"] for name, finding in document["findings"].items()}
    assert found["ratio_pgbench"] > 6 and 1.3 < found["ratio_realistic"] < 2.5, "filler misleads, values from life do as E15's"
    assert found["ratio_pgbench_encrypted"] == pytest.approx(1) == found["ratio_realistic_encrypted"]
    assert any("misleads" in text for text in document["warnings"])
    assert (elsewhere.run / "figures/kinds.svg").is_file() and (elsewhere.run / "figures/blocks.svg").is_file()


@pytest.fixture
def btrfs(tmp_path: Path) -> Iterator[Path]:
    """A btrfs that compresses with zstd, on a loop device."""
    if os.geteuid() != 0 or not all(shutil.which(tool) for tool in ("mkfs.btrfs", "compsize", "mount")):
        pytest.skip("a btrfs takes root, btrfs-progs and btrfs-compsize")
    image, place = tmp_path / "image", tmp_path / "mounted"
    image.touch()
    os.truncate(image, 300 * 2**20)
    place.mkdir()
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True, capture_output=True)
    if subprocess.run(["mount", "-o", "loop,compress=zstd:3", str(image), str(place)], capture_output=True).returncode:
        pytest.skip("this host does not mount a btrfs on a loop device")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_btrfs_takes_what_its_codec_in_its_blocks_and_sectors_predicts(elsewhere, btrfs, tmp_path):
    """btrfs compresses extents of 128 kB and stores them in sectors of 4 kB: a truth from outside for the column 'ratio_4k'."""
    data = tmp_path / "data"
    data.mkdir()
    rows = "".join(f"{number},{number * 7919 % 10007},{hash(number) % 97}\n" for number in range(150_000))
    (data / "rows.csv").write_text(rows)
    words = [
        "--data",
        "none",
        "--dir",
        str(data),
        "--codecs",
        "zstd-3",
        "--block-sizes",
        "128k",
        "--filesystem",
        str(btrfs),
        "--no-encrypt",
    ]
    ended = elsewhere("compression", *words, "--no-report", "--json")
    assert ended.code == 0, ended
    stored = {row["codec"]: row["ratio_4k"]["value"] for row in json.loads(ended.out)["tables"]["ratios"]}
    assert stored["file-system"] == pytest.approx(stored["zstd-3"], rel=0.03) and stored["zstd-3"] > 1.5
    assert list(btrfs.iterdir()) == [], "what was written there is gone"
