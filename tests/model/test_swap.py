import pytest
from pydantic import ValidationError

from pgherd.model.swap import Swap


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "zram"},
        {"kind": "none", "size": 1},
        {"kind": "zram", "size": 1, "path": "/srv"},
        {"kind": "file", "size": 1, "algorithm": "lz4"},
        {"kind": "file", "size": 1, "memory": 1},
        {"kind": "zram", "size": 1, "algorithm": "lz4; reboot"},
        {"kind": "disk", "size": 1},
    ],
)
def test_what_contradicts_itself_is_refused(given) -> None:
    with pytest.raises(ValidationError):
        Swap(**given)


def test_each_kind() -> None:
    assert Swap(kind="none").size == 0
    assert Swap(kind="zram", size=1, algorithm="lzo-rle", memory=5).memory == 5
    assert Swap(kind="file", size=1, path="/srv").path == "/srv"
