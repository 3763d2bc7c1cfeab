import pytest

from pgherd.model.errors import UsageError
from pgherd.node.local import LocalNode
from pgherd.studies.compression.options import CompressionRequest
from pgherd.studies.compression.prepare import prepare

pytestmark = pytest.mark.usefixtures("own_directories")


def prepared(**requested):
    return prepare(LocalNode(), CompressionRequest(**requested), dry=True)


def test_a_plain_request_is_completed(own_directories):
    prepared_study = prepared()
    assert [(item.name, item.scale) for item in prepared_study.options.data] == [("pgbench", 10), ("orders", 1), ("realistic", 100)]
    assert prepared_study.options.block_sizes[0] == 4096 and set(prepared_study.tools) == {"lz4", "zstandard", "cryptography", "mimesis"}
    assert not own_directories.joinpath("cache").exists()


def test_a_directory_alone_needs_no_postgresql(tmp_path):
    prepared_study = prepared(data=("none",), dir=str(tmp_path), codecs=("lz4",), encrypt=False)
    assert prepared_study.installation is None and prepared_study.disk == 0 and set(prepared_study.tools) == {"lz4"}


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ({"data": ("gold",)}, "'gold' is not a kind of data"),
        ({"data": ("pgbench@0",)}, "'pgbench@0' is not a kind of data"),
        ({"data": ("pgbench", "pgbench@2")}, "pgbench more than once"),
        ({"data": ("none",)}, "there is no data to compress"),
        ({"block_sizes": ("3k",)}, "a power of two from 512 bytes to 1 MB, such as 8k, not 3k"),
        ({"block_sizes": ("big",)}, "'big' is not a memory size"),
        ({"codecs": ()}, "names no codec"),
        ({"codecs": ("lzma",)}, "unknown codec 'lzma'"),
        ({"dir": "/nonexistent"}, "does not exist"),
        ({"data": ("none",), "dsn": "what?"}, "--dsn"),
    ],
)
def test_what_cannot_be_done_is_said(requested, message):
    with pytest.raises(UsageError, match=message):
        prepared(**requested)
