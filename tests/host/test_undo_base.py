import pytest

from pgherd.host.undo_base import absolute


@pytest.mark.parametrize("path", ["relative", "/", "/a/../b", "/a//b", ""])
def test_only_plain_absolute_paths_may_stand_in_the_journal(path):
    with pytest.raises(ValueError, match="plain absolute"):
        absolute(path)
    assert absolute("/a/b") == "/a/b"
