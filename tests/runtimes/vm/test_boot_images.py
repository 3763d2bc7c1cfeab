from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgherd.model.errors import CapabilityError
from pgherd.node.local import LocalNode
from pgherd.postgres.installations import Installation
from pgherd.runtimes.vm import boot_images, hypervisor, initramfs, kernel, root_image
from pgherd.runtimes.vm.hypervisor import Hypervisor
from pgherd.runtimes.vm.kernel import Kernel
from pgherd.runtimes.vm.root_image import RootImage

POSTGRES = Installation("/opt/pg/bin", "15.1", 15, "system", "15.1")


@pytest.fixture
def image_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Parts that cost nothing; returns the cache."""
    cache, image = tmp_path / "cache", tmp_path / "vmlinuz"
    image.write_bytes(b"compressed")
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(boot_images, "mkfs", lambda: "/sbin/mkfs.ext4")
    monkeypatch.setattr(hypervisor, "program", lambda: "/usr/bin/qemu")
    monkeypatch.setattr(initramfs, "busybox", lambda: "/bin/busybox")
    monkeypatch.setattr(initramfs, "archive", lambda *_, **__: b"archive")
    monkeypatch.setattr(kernel, "ensure", lambda *_, **__: Kernel(str(image), "6.1", str(tmp_path), "unpacked"))
    monkeypatch.setattr(hypervisor, "find", lambda *_, **__: Hypervisor("/usr/bin/qemu", "7.2", True, "tcg", "no device"))

    def ensure(node, installation, account, cache_dir, scratch, **extra) -> RootImage:
        path = Path(cache_dir, "vm/root-15.1-x")
        path.mkdir(parents=True, exist_ok=True)
        (path / "root.ext4").write_bytes(b"x")
        (path / "image.json").write_text(
            '{"schema": "pgherd/root-image/1", "image": {"path": "", "version": "15.1", "bin": "/opt/pg/bin", '
            '"account": "nobody", "bytes": 4096, "made": 1.0, "seconds": 1.0, "built": true}, "sources": []}'
        )
        return RootImage(str(path / "root.ext4"), "15.1", "/opt/pg/bin", "nobody", 4096, 1.0, 1.0)

    monkeypatch.setattr(root_image, "ensure", ensure)
    return cache


def build(cache: Path):
    return boot_images.build(LocalNode(), POSTGRES, None, str(cache), str(cache.parent / "scratch"))


def test_a_kernel_that_can_be_unpacked_is_booted_unpacked(image_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "uncompressed", lambda data: b"\x7fELF")
    first = build(image_cache)
    assert Path(first.boot).read_bytes() == b"\x7fELF" and Path(first.initrd).read_bytes() == b"archive"
    monkeypatch.setattr(kernel, "uncompressed", lambda data: pytest.fail("it is in the cache"))
    assert build(image_cache).boot == first.boot
    assert set(first.seconds) == {"kernel", "unpacking the kernel", "initramfs", "root image", "trying the hypervisor"}


@pytest.mark.skipif(os.geteuid() != 0, reason="QEMU runs as another user only for root")
def test_a_cache_that_the_user_of_qemu_cannot_enter_is_opened(image_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "uncompressed", lambda data: b"\x7fELF")
    (image_cache / "vm/kernel").mkdir(parents=True)
    for path in (image_cache / "vm", image_cache / "vm/kernel"):
        path.chmod(0o750)
    build(image_cache)
    for path in (image_cache / "vm", image_cache / "vm/kernel"):
        assert path.stat().st_mode & 0o777 == 0o711, path


def test_by_kvm_the_image_stays_as_it_is(image_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hypervisor, "find", lambda *_, **__: Hypervisor("/usr/bin/qemu", "7.2", True, "kvm"))
    monkeypatch.setattr(kernel, "uncompressed", lambda data: pytest.fail("a real processor unpacks it at once"))
    assert build(image_cache).boot.endswith("/vmlinuz")


def test_another_is_booted_as_it_is_and_that_is_remembered(image_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "uncompressed", lambda data: None)
    assert build(image_cache).boot.endswith("/vmlinuz")
    monkeypatch.setattr(kernel, "uncompressed", lambda data: pytest.fail("it was tried before"))
    assert build(image_cache).boot.endswith("/vmlinuz")


def test_what_is_in_use_stays_and_the_rest_goes(image_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "uncompressed", lambda data: b"\x7fELF")
    result = build(image_cache)
    (image_cache / "vm/kernel/linux-image-6.1/boot").mkdir(parents=True)
    assert [item.kind for item in boot_images.list_all(str(image_cache))] == ["kernel package", "kernel", "initramfs", "root image"]
    removed, remaining = boot_images.clean(str(image_cache), [result.root.path])
    assert {element.kind for element in removed} == {"kernel", "initramfs"} and {item.kind for item in remaining} == {
        "kernel package",
        "root image",
    }
    removed, remaining = boot_images.clean(str(image_cache), kernels=True)
    assert (
        {item.kind for item in removed} == {"kernel package", "root image"}
        and remaining == []
        and boot_images.list_all(str(image_cache)) == []
    )
    assert not Path(result.root.path).exists()


def test_a_missing_tool_is_told_before_anything_is_made(image_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> str:
        raise CapabilityError("no mkfs")

    monkeypatch.setattr(boot_images, "mkfs", missing)
    with pytest.raises(CapabilityError, match="no mkfs"):
        build(image_cache)
    assert not (image_cache / "vm").exists()
