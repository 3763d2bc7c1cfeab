import pytest

from pgherd.metrics.guest_machine import EMULATED, SAMPLER
from pgherd.metrics.sampler import GuestView, View
from pgherd.runtimes.vm.qemu import Guest, Places, arguments
from pgherd.study.emulation import MARK


@pytest.mark.parametrize(("accelerator", "found"), [("tcg", 1.0), ("kvm", 0.0)])
def test_the_accelerator_is_told_by_the_command_line(accelerator, found):
    argv = arguments("qemu-system-x86_64", Guest("db01", "/k", "/i", "/r", accelerator=accelerator), Places("/m", "/a", "/c", "/l", "/s"))
    (source,) = SAMPLER.sources(View(guests=[GuestView("db01", 4711, 2**29)]))
    assert source.where == "/proc/4711/cmdline"
    assert list(SAMPLER.parse("\0".join([*argv, ""]), source)) == [("guest:db01", {MARK: found})]
    assert EMULATED == MARK, "what studies look at"


def test_another_command_line_is_an_error():
    (source,) = SAMPLER.sources(View(guests=[GuestView("db01", 4711, 2**29)]))
    with pytest.raises(ValueError, match="is no command line of QEMU"):
        list(SAMPLER.parse("sleep\x0060\0", source))
