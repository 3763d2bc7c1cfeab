import pytest

from pgherd.host import swap
from pgherd.host.journal import Journal
from pgherd.host.undo_actions import RemoveSwapFile, RemoveZram, UndoContext
from pgherd.model.errors import CapabilityError, UsageError
from pgherd.model.run import Swap

MB = 2**20
ZRAM = Swap(kind="zram", size=64 * MB, algorithm="lz4", memory=16 * MB)
FILE = Swap(kind="file", size=64 * MB, path="/srv")


@pytest.fixture
def journal(fake_swap, tmp_path):
    """(node, journal) of a run."""
    opened = []

    def make(**given):
        node = fake_swap.SwapNode(**given)
        opened.append(Journal.open(node, tmp_path, "run"))
        return node, opened[-1]

    yield make
    for one in opened:
        one.close()


def test_zram_is_made_and_goes_without_touching_what_was_there(journal):
    node, notes = journal()
    node.areas["/dev/sda2"] = ("partition", 99 * MB, 300)
    made = swap.make(node, notes, ZRAM, "/srv")
    assert made == swap.ActiveSwap("/dev/zram1", made.number, 1)
    device = node.zram[1]
    assert (device.size, device.algorithm, device.limit) == (64 * MB, "lz4", 16 * MB)
    assert node.areas["/dev/zram1"][2] == 301, "filled before the existing one"
    assert notes.play() == ["switched off and removed compressed swap /dev/zram1"]
    assert node.areas == {"/dev/sda2": ("partition", 99 * MB, 300)}
    assert list(node.zram) == [0], "the existing unused device belongs to another program"


@pytest.mark.parametrize("page", [4096, 65536])
def test_a_size_is_one_that_no_kernel_rounds(journal, page):
    node, notes = journal(page=page)
    swap.make(node, notes, ZRAM.model_copy(update={"size": 64 * MB + 1}), "/srv")
    assert node.zram[1].size == 64 * MB + 65536
    assert notes.play() == ["switched off and removed compressed swap /dev/zram1"]


def test_a_file_is_made_for_nobodys_eyes_and_goes(journal):
    node, notes = journal()
    made = swap.make(node, notes, FILE, "/srv/else")
    path = f"/srv/pgherd-{notes.id[:8]}.swap"
    assert made.path == path
    assert node.areas[path] == ("file", 64 * MB, 100)
    assert not node.directories, "the given directory is used, not the default one"
    assert notes.play() == [f"switched off and removed swap file {path}"]
    assert not node.areas and not node.files


def test_the_default_directory_of_a_file_is_created(journal):
    node, notes = journal()
    made = swap.make(node, notes, FILE.model_copy(update={"path": None}), "/srv/else")
    assert node.directories == ["/srv/else"] and made.path == f"/srv/else/pgherd-{notes.id[:8]}.swap"


def test_a_file_system_that_cannot_allocate_is_filled(journal):
    node, notes = journal()
    node.broken.add("fallocate")
    swap.make(node, notes, FILE, "/srv")
    assert [argv[0] for argv in node.commands if argv[0] in ("dd", "mkswap", "swapon") and "--version" not in argv] == [
        "dd",
        "mkswap",
        "swapon",
    ]


def test_a_file_on_btrfs_is_not_copied_on_write(journal):
    node, notes = journal(file_system="btrfs")
    swap.make(node, notes, FILE, "/srv")
    names = [argv[0] for argv in node.commands]
    assert names.index("chattr") < names.index("fallocate")


@pytest.mark.parametrize(
    ("broken", "wanted"), [("swapon", ZRAM), ("mkswap", ZRAM), ("disksize", ZRAM), ("mem_limit", ZRAM), ("swapon", FILE)]
)
def test_what_fails_half_way_is_taken_back(journal, broken, wanted):
    node, notes = journal()
    node.broken.add(broken)
    with pytest.raises(CapabilityError, match="cannot be created"):
        swap.make(node, notes, wanted, "/srv")
    assert not node.areas and not node.files and list(node.zram) == [0]
    assert notes.pending() == []


def test_a_device_taken_by_somebody_in_that_moment_is_left_alone(journal):
    node, notes = journal()
    node.taken_meanwhile = True
    made = swap.make(node, notes, ZRAM, "/srv")
    assert made.zram == 2
    notes.play()
    assert list(node.zram) == [0, 1]


def test_none_makes_nothing(journal):
    node, notes = journal(root=False)
    assert swap.make(node, notes, Swap(kind="none"), "/srv") is None
    assert notes.pending() == []


@pytest.mark.parametrize(
    ("given", "wanted", "error", "says"),
    [
        ({"root": False}, ZRAM, CapabilityError, "needs root"),
        ({"root": False}, FILE, CapabilityError, "--swap none"),
        ({"module": False}, ZRAM, CapabilityError, "modprobe zram"),
        ({}, ZRAM.model_copy(update={"algorithm": "zstd"}), CapabilityError, "use one of: lzo-rle, lzo, lz4"),
        ({}, ZRAM.model_copy(update={"size": 4096}), UsageError, "at least 1 MB"),
        ({"file_system": "tmpfs"}, FILE, CapabilityError, "tmpfs, is in memory"),
        ({"file_system": "fuse.sshfs"}, FILE, CapabilityError, "fuse.sshfs"),
        ({"free": 512 * MB}, FILE, UsageError, "has 512 MB free"),
        ({}, FILE.model_copy(update={"path": "/nowhere"}), UsageError, "no directory"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_made(journal, given, wanted, error, says):
    node, notes = journal(**given)
    with pytest.raises(error, match=says):
        swap.make(node, notes, wanted, "/srv")
    assert notes.pending() == [] and not node.areas


def test_a_missing_tool_is_named(journal):
    node, _ = journal()
    node.missing.add("mkswap")
    with pytest.raises(CapabilityError, match="needs mkswap"):
        swap.check(node, FILE)


def test_an_undo_leaves_somebody_elses_device_alone(fake_swap):
    node = fake_swap.SwapNode()
    undo = RemoveZram(device=1, mark="11111111-2222-3333-4444-555555555555", size=64 * MB)
    assert undo.play(UndoContext(node, "journal")) is None, "there is no such device"
    node.zram[1] = other = fake_swap.Device()
    other.size, other.foreign = 64 * MB, b"a file system"
    assert undo.play(UndoContext(node, "journal")) is None and 1 in node.zram
    other.foreign, other.size = b"", 32 * MB
    assert undo.play(UndoContext(node, "journal")) is None and 1 in node.zram
    other.size, other.mark = 64 * MB, undo.mark
    assert undo.play(UndoContext(node, "journal", same_boot=False)) is None and 1 in node.zram
    assert undo.play(UndoContext(node, "journal")) == "removed compressed swap /dev/zram1"
    assert undo.play(UndoContext(node, "journal")) is None, "played twice does nothing"


def test_a_device_that_was_not_formatted_yet_is_removed(fake_swap):
    node = fake_swap.SwapNode()
    undo = RemoveZram(device=1, mark="11111111-2222-3333-4444-555555555555", size=64 * MB)
    node.zram[1] = fake_swap.Device()
    assert undo.play(UndoContext(node, "journal"))
    node.zram[1] = begun = fake_swap.Device()
    begun.size = 64 * MB
    assert undo.play(UndoContext(node, "journal"))
    assert list(node.zram) == [0]


def test_a_swap_file_is_removed_by_its_own_run_only(fake_swap):
    node = fake_swap.SwapNode()
    path = "/srv/pgherd-0123abcd.swap"
    node.files[path] = 4096
    with pytest.raises(OSError, match="does not belong"):
        RemoveSwapFile(path=path).play(UndoContext(node, "ffff0123"))
    assert RemoveSwapFile(path=path).play(UndoContext(node, "0123abcd9999", same_boot=False)) == f"removed swap file {path}"
    assert RemoveSwapFile(path=path).play(UndoContext(node, "0123abcd9999")) is None
    for wrong in ("/srv/data", "/srv/pgherd-0123abcd.swap/x", "pgherd-0123abcd.swap"):
        with pytest.raises(ValueError, match="not"):
            RemoveSwapFile(path=wrong)


def test_swap_that_cannot_be_switched_off_stays_in_the_journal(journal):
    node, notes = journal()
    swap.make(node, notes, ZRAM, "/srv")
    node.broken.add("swapoff")
    (said,) = notes.play()
    assert "not undone" in said and "cannot be switched off" in said
    assert len(notes.pending()) == 1
    node.broken.clear()
    assert notes.play() == ["switched off and removed compressed swap /dev/zram1"]


def test_algorithms_of_a_kernel_without_a_device_are_not_known(fake_swap):
    node = fake_swap.SwapNode()
    assert swap.algorithms(node) == ["lzo-rle", "lzo", "lz4"]
    node.zram.clear()
    assert swap.algorithms(node) == []
