from __future__ import annotations

import subprocess

from pgherd.runtimes.vm import guest_init, qemu
from pgherd.runtimes.vm.qemu import Disk, Guest


def test_the_script_is_one_that_a_shell_accepts() -> None:
    subprocess.run(["sh", "-n"], input=guest_init.INIT.encode(), check=True)


def test_the_words_that_the_kernel_is_told_are_understood() -> None:
    """The loop over the kernel's command line, taken out of the script, with its commands as echoes."""
    begin, end = guest_init.INIT.index("shell=\n"), guest_init.INIT.index("ip link set lo up")
    loop = guest_init.INIT[begin:end].replace("$(cat /proc/cmdline)", "$WORDS")
    guest = Guest(
        "db01", "/k", "/i", "/r", (Disk("data", "/x", "/srv/data"), Disk("wal", "/y", "/srv/w:al"), Disk("spare", "/z")), shell=True
    )
    script = f'hostname() {{ echo "name $1"; }}\ndisk() {{ echo "disk $1 at $2"; }}\n{loop}\necho "shell $shell"'
    done = subprocess.run(["sh", "-c", script], env={"WORDS": qemu.kernel_words(guest)}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["name db01", "disk data at /srv/data", "disk wal at /srv/w:al", "shell ttyS0"]
