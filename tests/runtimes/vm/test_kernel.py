from __future__ import annotations

import gzip
import lzma
import os
import struct
from pathlib import Path

import pytest
import zstandard

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.runtimes.vm import kernel
from pgherd.runtimes.vm.kernel import Kernel


def module(depends: str) -> bytes:
    """As .modinfo of a module holds it."""
    return b"\x7fELF...\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"


def home(root: Path, release: str = "6.1.0-9-amd64", modules: dict[str, bytes] | None = None, built_in: str = "") -> Path:
    """A root directory with a kernel."""
    directory = root / "lib/modules" / release
    (root / "boot").mkdir(parents=True, exist_ok=True)
    (root / "boot" / f"vmlinuz-{release}").write_bytes(b"image")
    for name, data in (modules or {}).items():
        path = directory / "kernel/drivers" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (directory / "kernel").mkdir(parents=True, exist_ok=True)
    (directory / "modules.builtin").write_text(built_in)
    return root


def made(tmp_path: Path, modules: dict[str, bytes], built_in: str = "") -> Kernel:
    root = home(tmp_path / "root", modules=modules, built_in=built_in)
    return Kernel(str(root / "boot/vmlinuz-6.1.0-9-amd64"), "6.1.0-9-amd64", str(root / "lib/modules/6.1.0-9-amd64"), "unpacked")


def test_modules_are_loaded_after_what_they_depend_on(tmp_path: Path) -> None:
    result = made(
        tmp_path,
        {
            "ext4.ko": module("mbcache,jbd2,crc16"),
            "jbd2.ko": module(""),
            "mbcache.ko": module(""),
            "virtio_net.ko": module("net-failover"),
            "net_failover.ko": module("failover"),
            "failover.ko": module(""),
        },
        built_in="kernel/lib/crc16.ko\n",
    )
    names = [path.stem for path in result.load_order(["virtio-net", "ext4", "jbd2", "crc16"])]
    assert names == ["failover", "net_failover", "virtio_net", "mbcache", "jbd2", "ext4"]


def test_what_is_built_in_is_not_missing(tmp_path: Path) -> None:
    result = made(tmp_path, {"virtio-rng.ko": module("")}, built_in="kernel/drivers/virtio/virtio_pci.ko\n")
    assert result.missing(["virtio_pci", "virtio_rng", "overlay"]) == ["overlay"]


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)])
def test_compressed_modules_are_read(tmp_path: Path, suffix: str, pack) -> None:
    result = made(tmp_path, {f"a.ko{suffix}": pack(module("b")), f"b.ko{suffix}": pack(module(""))})
    assert [kernel.read_module(path) for path in result.load_order(["a"])] == [module(""), module("b")]


def test_modules_compressed_with_zstd_are_read(tmp_path: Path) -> None:
    result = made(tmp_path, {"a.ko.zst": zstandard.ZstdCompressor().compress(module(""))})
    assert kernel.read_module(result.files["a"]) == module("")


def test_the_newest_unpacked_kernel_with_the_modules_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    kernels = {"6.1.0-9-amd64": "ab", "6.1.0-10-amd64": "ab", "6.12.0-1-amd64": "a", "6.1.0-8-cloud-amd64": "b"}
    for release, names in kernels.items():
        home(cache / "vm/kernel" / f"linux-image-{release}", release, {f"{name}.ko": module("") for name in names})
    monkeypatch.setattr(
        kernel, "_below", lambda location, origin, own=kernel._below: [] if location == Path("/") else own(location, origin)
    )
    result = kernel.present(str(cache), ["a", "b"])
    assert result is not None and (result.release, result.origin) == ("6.1.0-10-amd64", "unpacked")
    smaller = kernel.present(str(cache), ["b"])
    assert smaller is not None and smaller.release == "6.1.0-8-cloud-amd64"
    assert kernel.present(str(cache), ["c"]) is None


def test_of_two_kernels_in_one_place_the_higher_version_comes_first(tmp_path: Path) -> None:
    home(tmp_path, "6.1.0-9-amd64")
    home(tmp_path, "6.1.0-10-amd64")
    assert [item.release for item in kernel._below(tmp_path, "installed")] == ["6.1.0-10-amd64", "6.1.0-9-amd64"]


@pytest.mark.skipif(os.geteuid() != 0, reason="QEMU runs as another user only for root")
def test_the_user_of_qemu_may_enter_the_cache_of_guests_with_any_umask(tmp_path: Path) -> None:
    (tmp_path / "old" / "vm").mkdir(parents=True)
    (tmp_path / "old" / "vm").chmod(0o750)
    before = os.umask(0o077)
    try:
        made = [kernel.make_home(str(tmp_path / "new" / "cache"), "kernel"), kernel.make_home(str(tmp_path / "old"))]
    finally:
        os.umask(before)
    assert made == [tmp_path / "new/cache/vm/kernel", tmp_path / "old/vm"]
    for path in (*made, *list(made[0].parents)[:3]):
        assert path.stat().st_mode & 0o777 == 0o711, path


def test_without_a_kernel_and_apt_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "present", lambda *_: None)
    monkeypatch.setattr(kernel.shutil, "which", lambda name: None)
    with pytest.raises(CapabilityError, match="there is no apt-get to fetch one; install the distribution's kernel package"):
        kernel.ensure(LocalNode(), str(tmp_path), str(tmp_path))


def image(payload: bytes, *, magic: bytes = b"HdrS", version: int = 0x20F) -> bytes:
    """A kernel image as Documentation/arch/x86/boot.rst lays it out: two sectors of set-up, then 100 bytes, then the payload."""
    data = bytearray(3 * 512 + 100)
    data[0x1F1] = 2
    data[0x202:0x206] = magic
    struct.pack_into("<H", data, 0x206, version)
    struct.pack_into("<II", data, 0x248, 100, len(payload))
    return bytes(data) + payload + b"\0" * 64


NOTE = struct.pack("<III4sI", 4, 4, 18, b"Xen\0", 0x1000000)
ELF = b"\x7fELF\x02" + b"code" * 500 + NOTE


@pytest.mark.parametrize("payload", [lzma.compress(ELF) + struct.pack("<I", len(ELF)), gzip.compress(ELF, mtime=0)])
def test_the_kernel_inside_an_image_is_unpacked(payload: bytes) -> None:
    assert kernel.uncompressed(image(payload)) == ELF


@pytest.mark.parametrize(
    "data",
    [
        b"",
        image(lzma.compress(ELF), magic=b"none"),
        image(lzma.compress(ELF), version=0x207),
        image(lzma.compress(ELF.replace(NOTE, b""))),  # QEMU cannot boot it directly
        image(lzma.compress(b"no program" * 100)),
        image(lzma.compress(ELF)[:-200]),
        image(b"\xfd7zXZ\0damaged" * 10),
        image(b"\x02\x21\x4c\x18 of lz4"),
        image(b"something else"),
    ],
)
def test_an_image_that_cannot_be_unpacked_stays_as_it_is(data: bytes) -> None:
    assert kernel.uncompressed(data) is None
