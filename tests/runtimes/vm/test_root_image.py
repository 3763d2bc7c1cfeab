from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path

import pytest

from pgherd.model.errors import PgherdError
from pgherd.node.local import LocalNode
from pgherd.postgres import installations
from pgherd.postgres.installations import Installation
from pgherd.runtimes.vm import disk_image, initramfs, root_image
from pgherd.runtimes.vm.root_image import GuestTree

# The loader finds libraries beside a program by /proc; what is mounted for that goes with the namespace.
NAMESPACE = ["unshare", "--mount", "sh", "-c", 'mount -t proc proc "$1/proc" && exec /usr/sbin/chroot "$@"', "sh"]
OURSELVES = pwd.getpwuid(os.getuid()).pw_name


@pytest.fixture(autouse=True)
def tools() -> None:
    try:
        initramfs.busybox()
        disk_image.mkfs()
    except PgherdError as error:
        pytest.skip(str(error))


def _found() -> list[Installation]:
    return installations.find_all(LocalNode())


@pytest.fixture(scope="module", params=["system", "embedded"])
def installation(request: pytest.FixtureRequest) -> Installation:
    for item in _found():
        if item.kind == request.param:
            return item
    pytest.skip(f"there is no {request.param} PostgreSQL here")


def test_in_the_tree_alone_the_programs_run(tmp_path: Path, installation: Installation) -> None:
    """Changed into the tree as its root, PostgreSQL finds its libraries and shared files, and Python its own."""
    tree = GuestTree(tmp_path / "tree")
    root_image.fill(tree, LocalNode(), installation, "nobody")
    if os.geteuid() != 0:
        pytest.skip("only root can change the root directory")
    if not shutil.which("unshare"):
        pytest.skip("unshare is not installed")

    def inside(*arguments: str) -> str:
        finished = subprocess.run(
            [*NAMESPACE, str(tree.root), *arguments], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
        )
        assert finished.returncode == 0, finished.stderr
        return finished.stdout

    assert installation.version in inside(installation.tool("postgres"), "--version")
    assert installation.version in inside(installation.tool("pgbench"), "--version")
    interpreter = inside("/bin/sh", "-c", f"read -r python <{initramfs.HOME}/interpreter; echo $python").strip()
    assert inside(interpreter, "-I", "-S", "-c", "import json, select, socket, ssl, struct; print(6 * 7)") == "42\n"
    assert inside("/bin/sh", "-c", f"{initramfs.HOME}/bin/uname -s; test -x {initramfs.HOME}/init") == "Linux\n"
    listed = [installation.tool("postgres"), "--describe-config"]
    assert "shared_buffers" in inside("/usr/bin/setpriv", "--reuid", "nobody", "--regid", "65534", "--clear-groups", *listed)
    assert inside("/bin/sh", "-c", "cat /etc/passwd").startswith("root:x:0:0:") and not (tree.root / "usr/include").exists()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """An image of two files, to see when it is made again; returns how to ask for it."""
    source = tmp_path / "source"
    source.write_text("one")

    watched: list[Path] = []

    def fill(tree: GuestTree, *_: object) -> None:
        tree.add(str(source))
        for directory in watched:
            tree.add_all(str(directory), watched=True)

    monkeypatch.setattr(root_image, "fill", fill)
    installation = Installation("/opt/pg/bin", "15.1", 15, "system", "15.1")

    def ensure(**extra):
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        return root_image.ensure(LocalNode(), installation, None, str(tmp_path / "cache"), str(scratch), **extra)

    ensure.source, ensure.watched = source, watched  # type: ignore[attr-defined]
    return ensure


def test_an_image_is_made_once(small) -> None:
    first, second = small(), small()
    assert first.built and not second.built and first.path == second.path and second.account == OURSELVES
    assert small(again=True).built
    assert small(extra=["/etc/hostname"]).path != first.path


def test_an_image_is_made_again_when_a_file_in_it_has_changed(small, tmp_path: Path) -> None:
    first = small()
    before = os.stat(first.path).st_ino
    small.source.write_text("two")
    os.utime(small.source, ns=(1, 1))
    again = small()
    assert again.built and again.path == first.path and os.stat(again.path).st_ino != before
    assert [image.path for image in root_image.list_all(str(tmp_path / "cache"))] == [first.path]
    assert os.listdir(tmp_path / "scratch") == []


def test_an_image_is_made_again_when_a_file_is_new_in_a_directory_of_it(small, tmp_path: Path) -> None:
    directory = tmp_path / "modules"
    directory.mkdir()
    (directory / "old.so").touch()
    os.utime(directory, ns=(1, 1))
    small.watched.append(directory)
    assert small().built and not small().built
    (directory / "new.so").touch()
    assert small().built


def test_an_image_of_an_earlier_version_is_listed_and_made_again(small, tmp_path: Path) -> None:
    first = small()
    manifest = Path(first.path).parent / "image.json"
    manifest.write_text(manifest.read_text().replace(root_image.SCHEMA, "pgherd/root-image/1"))
    assert [image.path for image in root_image.list_all(str(tmp_path / "cache"))] == [first.path]
    assert small().built


@pytest.mark.skipif(os.geteuid() != 0, reason="QEMU runs as another user only for root")
def test_the_user_of_qemu_may_enter_the_directory_of_an_image_with_any_umask(small, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        image = Path(small().path)
    finally:
        os.umask(before)
    for path in (image.parent, image.parent.parent, tmp_path / "cache"):
        assert path.stat().st_mode & 0o001, path


@pytest.mark.parametrize("damage", [lambda home: (home / "root.ext4").unlink(), lambda home: (home / "image.json").write_text("{")])
def test_a_damaged_image_is_made_again(small, damage) -> None:
    first = small()
    damage(Path(first.path).parent)
    assert small().built


def test_the_manifest_names_every_source(small) -> None:
    image = small()
    manifest = json.loads((Path(image.path).parent / "image.json").read_text())
    assert [source[0] for source in manifest["sources"]] == [str(small.source)]


def test_a_missing_tool_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_image.shutil, "which", lambda name, path=None: None)
    with pytest.raises(PgherdError, match="setpriv is missing"):
        root_image._tool("setpriv")
