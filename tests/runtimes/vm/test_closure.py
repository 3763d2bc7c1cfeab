from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import closure
from pgherd.runtimes.vm.closure import Needs, parse

FIXTURES = Path(__file__).parents[2] / "fixtures/postgres"

SEVERAL = """/usr/bin/dash:
\tlinux-vdso.so.1 (0x00007ffd6b5f3000)
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f1f6c8d0000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f1f6caf0000)
/usr/bin/busybox:
\tnot a dynamic executable
/opt/pg/lib/odd.so:
\tlibpython3.9.so.1.0 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f0000000000)
"""


def test_several_files_are_told_apart() -> None:
    told = parse(SEVERAL, ["/usr/bin/dash", "/usr/bin/busybox", "/opt/pg/lib/odd.so"])
    assert told["/usr/bin/dash"] == Needs(("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"))
    assert told["/usr/bin/busybox"] == Needs(())
    assert told["/opt/pg/lib/odd.so"] == Needs(("/lib/x86_64-linux-gnu/libc.so.6",), ("libpython3.9.so.1.0",))


@pytest.mark.parametrize("name", ["ldd-15.txt", "ldd-18.txt"])
def test_captured_output_of_one_file(name: str) -> None:
    text = (FIXTURES / name).read_text()
    found = parse(text, ["postgres"])["postgres"].found
    assert len(found) == text.count("(0x") - text.count("linux-vdso")
    assert any(path.endswith("/libc.so.6") for path in found) and all(path.startswith("/") for path in found)


def test_a_program_s_own_libraries_are_found() -> None:
    found, usable = closure.libraries(LocalNode(), [shutil.which("sh") or ""], [])
    assert any("ld-linux" in path or "ld-musl" in path for path in found) and usable == []
    assert all(Path(path).exists() for path in found)


def test_a_missing_library_of_a_program_is_an_error_and_of_a_module_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"good": Needs(("/lib/a.so",)), "bad": Needs(("/lib/b.so",), ("libgone.so.1",))}
    monkeypatch.setattr(closure, "needs", lambda node, files: {name: told[name] for name in files})
    assert closure.libraries(LocalNode(), ["good"], ["bad"]) == (["/lib/a.so"], [])
    with pytest.raises(CapabilityError, match=r"bad needs libgone\.so\.1"):
        closure.libraries(LocalNode(), ["bad"])


def test_static_programs_are_told_from_others() -> None:
    assert not closure.is_static(Path(sys.executable).resolve().read_bytes())
    assert not closure.is_static(b"#!/bin/sh\n" + b"x" * 100)
    if busybox := shutil.which("busybox"):
        said = parse(LocalNode().run(__import__("pgherd.node.protocol", fromlist=["Command"]).Command(["ldd", busybox])).out, [busybox])
        assert closure.is_static(Path(busybox).read_bytes()) == (said[busybox].found == ())
