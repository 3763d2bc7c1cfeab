"""Boot scripts of a guest: the initramfs, and process 1 of the root image.

The initramfs has busybox, kernel modules in load order, and a script that mounts the root image (cpio, format newc; Linux,
Documentation/driver-api/early-userspace/buffer-format.rst). It is not compressed, because its memory is freed when the guest switches to
the root image, and because an emulated processor unpacks slowly. ``INIT`` then mounts disks, sets up network and cgroups, and starts the
agent.
"""

from __future__ import annotations

import shutil
import stat
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from pgherd.model.errors import CapabilityError
from pgherd.runtimes.vm.kernel import Kernel, read_module

_PROGRAM_INTERPRETER = 3

APPLETS = ("sh", "mount", "umount", "insmod", "mkdir", "cat", "echo", "sleep", "switch_root", "chroot", "poweroff")
"""Busybox programs for scripts of an initramfs."""

Entry = tuple[str, int, bytes]
"""Name, mode with the file type, and contents (a link's target)."""

_INITRAMFS_SCRIPT = """#!/bin/sh
# Process 1 of the guest until its root image is there.
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
stop() { echo "pgherd: $*"; poweroff -f; }
for module in $(cat /modules/order); do insmod /modules/$module.ko || echo "pgherd: module $module cannot be loaded"; done
asked=
for word in $(cat /proc/cmdline); do case $word in pgherd.root=*) asked=${word#*=} ;; esac; done
root=
tries=0
while [ -z "$root" ] && [ $tries -lt 100 ]; do
    for block in /sys/block/vd*; do
        [ "$(cat $block/serial 2>/dev/null)" != "$asked" ] || root=/dev/${block##*/}
    done
    [ -n "$root" ] || { tries=$((tries + 1)); sleep 0.05; }
done
[ -n "$root" ] || stop "there is no disk $asked"
mount -t ext4 -o ro $root /lower || stop "the root image cannot be mounted"
mount -t tmpfs -o mode=755 memory /upper && mkdir /upper/files /upper/work || stop "no memory for the root file system"
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root /root || stop "the root file system cannot be made"
umount /dev; umount /sys; umount /proc
exec switch_root /root /usr/lib/pgherd/init
"""


def archive(
    kernel: Kernel,
    modules: Sequence[str],
    *,
    init: str = _INITRAMFS_SCRIPT,
    directories: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return the archive. ``init`` is the script that the kernel starts. ``files`` are further files by name.

    Raises:
        CapabilityError: there is no busybox that runs without libraries.
    """
    names = ["bin", "modules", "proc", "sys", "dev", "lower", "upper", "root", *directories]
    entries: list[Entry] = [(name, stat.S_IFDIR | 0o755, b"") for name in names]
    entries.append(("bin/busybox", stat.S_IFREG | 0o755, Path(busybox()).read_bytes()))
    entries += [(f"bin/{name}", stat.S_IFLNK | 0o777, b"busybox") for name in APPLETS]
    order = kernel.load_order(modules)
    stems = [path.name.partition(".ko")[0] for path in order]
    entries += [(f"modules/{stem}.ko", stat.S_IFREG | 0o644, read_module(path)) for stem, path in zip(stems, order, strict=True)]
    entries.append(("modules/order", stat.S_IFREG | 0o644, "".join(f"{stem}\n" for stem in stems).encode()))
    entries += [(name, stat.S_IFREG | 0o644, data) for name, data in (files or {}).items()]
    entries.append(("init", stat.S_IFREG | 0o755, init.encode()))
    return cpio(entries)


def busybox() -> str:
    """Return the path of a busybox that needs no libraries. Raises CapabilityError where there is none."""
    path = shutil.which("busybox")
    if path is None:
        raise CapabilityError("busybox is missing (the first program of each guest); install busybox-static (Fedora: busybox)")
    if not is_static(Path(path).read_bytes()):
        raise CapabilityError(f"{path} needs shared libraries, which a guest's initramfs lacks; install busybox-static")
    return path


def cpio(entries: Sequence[Entry]) -> bytes:
    """Return an archive of these entries in their order. Directories must precede their contents. All entries belong to root."""
    return b"".join(_entry(number, *entry) for number, entry in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1))


def _entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    path = name.encode() + b"\0"
    # inode, mode, uid, gid, links, time, size, device (4), length of the name, checksum (none)
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
    head += b"\0" * (-len(head) % 4)
    return head + data + b"\0" * (-len(data) % 4)


AGENT_PORT = "pgherd.agent"
"""Name of the virtio-serial port between the node on the host and the agent in the guest."""
HOME = "/usr/lib/pgherd"
"""Directory of pgherd's files in the root image."""
AGENT = "agent"
"""Name of the agent's program, a compiled module in ``HOME``. The modules that it imports are in the same directory."""
ADDRESS = "10.0.2.15"
"""Guest's address in QEMU's user network."""
GATEWAY = "10.0.2.2"
"""Host's address in it."""
READY = "pgherd: the guest has come up"
"""Line on the console before the agent starts."""

INIT = f"""#!/bin/sh
# Process 1 of the guest. It powers the guest off when the agent ends.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{HOME}/bin LC_ALL=C TZ=UTC HOME=/root TERM=vt100
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
stop() {{ echo "pgherd: $*"; sync; poweroff -f; }}
mkdir -p /dev/shm /dev/pts
mount -t tmpfs -o mode=1777 shm /dev/shm; mount -t devpts -o mode=620,ptmxmode=666 pts /dev/pts
mount -t cgroup2 cgroup /sys/fs/cgroup
ulimit -n 1048576 # open files: the kernel's first process has 1,024, too few for pgbench with as many clients
ln -sf /proc/self/fd /dev/fd; ln -sf /proc/self/mounts /etc/mtab

disk() {{ # SERIAL PATH
    for block in /sys/block/vd*; do
        serial=
        read -r serial <$block/serial # a process for each would take a minute with 40 disks on an emulated processor
        if [ "$serial" = "$1" ]; then
            mkdir -p "$2" && mount -t ext4 /dev/${{block##*/}} "$2" && return
        fi
    done
    stop "disk $1 cannot be mounted at $2"
}}
shell=
for word in $(cat /proc/cmdline); do
    value=${{word#*=}}
    case $word in
    pgherd.name=*) hostname "$value" ;;
    pgherd.disk=*) disk "${{value%%:*}}" "${{value#*:}}" ;;
    pgherd.shell=*) shell=$value ;;
    esac
done

ip link set lo up
if ip link set eth0 up 2>/dev/null; then
    ip addr add {ADDRESS}/24 dev eth0
    ip route add default via {GATEWAY}
fi

tries=0
while [ ! -e /dev/virtio-ports/{AGENT_PORT} ] && [ $tries -lt 200 ]; do
    mkdir -p /dev/virtio-ports
    for port in /sys/class/virtio-ports/*; do
        [ ! -s $port/name ] || ln -sf "../${{port##*/}}" "/dev/virtio-ports/$(cat $port/name)"
    done
    [ -e /dev/virtio-ports/{AGENT_PORT} ] || {{ tries=$((tries + 1)); sleep 0.05; }}
done

if [ -n "$shell" ]; then
    (while :; do setsid cttyhack /bin/sh -i </dev/$shell >/dev/$shell 2>&1; sleep 1; done) &
fi
read -r python <{HOME}/interpreter
echo "{READY}"
# On OOM the kernel must kill a server, which is reported, and not the agent, which reports it.
(echo -1000 >/proc/self/oom_score_adj; exec "$python" -E -s -S {HOME}/{AGENT}.pyc /dev/virtio-ports/{AGENT_PORT})
stop "the agent ended with exit code $?"
"""


def is_static(elf: bytes) -> bool:
    """Return whether a 64-bit ELF program has no program interpreter (elf(5): PT_INTERP), and so needs no shared libraries."""
    if len(elf) < 64 or elf[:5] != b"\x7fELF\x02":
        return False
    begin, size, count = struct.unpack_from("<Q", elf, 32)[0], *struct.unpack_from("<HH", elf, 54)
    kinds = [struct.unpack_from("<I", elf, begin + number * size)[0] for number in range(count)]
    return _PROGRAM_INTERPRETER not in kinds
