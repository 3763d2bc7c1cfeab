import errno
import os

from pgherd.host import direct_io


def test_nothing_is_left_behind(tmp_path):
    assert direct_io.direct_io_works(str(tmp_path)) in (True, False)
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_a_name_where_there_are_none_without(tmp_path, monkeypatch):
    opened, real = [], os.open

    def named_only(path, flags, *rest):
        opened.append(path)
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no such files here")
        return real(path, flags & ~os.O_DIRECT, *rest)

    monkeypatch.setattr(os, "open", named_only)
    assert direct_io.direct_io_works(str(tmp_path)) is True
    assert len(opened) == 2 and list(tmp_path.iterdir()) == []


def test_a_file_system_that_refuses_it(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EINVAL, "no direct I/O")

    monkeypatch.setattr(os, "open", refuse)
    assert direct_io.direct_io_works(str(tmp_path)) is False
