"""What ``pgherd doctor`` says of virtual machines: QEMU, a kernel for guests, and whether KVM works or why not."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pgherd.node.protocol import Node

Told = tuple[str, Literal["yes", "partly", "no"], str, str]
"""Name, whether it is able, what it could do, and what would make more possible."""


def guest_ability(node: Node) -> Told:
    """Whether guests could run here. A kernel that is here already is booted by KVM, once; nothing is fetched for this."""
    from pgherd.host import paths
    from pgherd.model.errors import CapabilityError
    from pgherd.runtimes.vm import acceleration, disk_image, initramfs, kernel

    what = "databases in virtual machines"
    missing = []
    for look in (acceleration.program, disk_image.mkfs, initramfs.busybox):
        try:
            look()
        except CapabilityError as error:
            missing.append(str(error))
    if missing:
        return "vm", "no", what, "; ".join(missing)
    cache = str(paths.cache_dir())
    found = kernel.present(cache)
    if found is None:
        return "vm", "partly", what, "'pgherd vm build' fetches a kernel for guests (unpacked into the cache, not installed) and tries KVM"
    try:
        with tempfile.TemporaryDirectory(prefix="pgherd-doctor-") as scratch:
            hypervisor = acceleration.find(node, found, cache, scratch)
    except CapabilityError as error:
        return "vm", "no", what, str(error)
    except OSError as error:
        return "vm", "partly", what, f"whether KVM works cannot be kept: {error}"
    if hypervisor.functional_only:
        return "vm", "partly", f"{what}, by emulation (TCG): functional only, nothing timed there counts", f"KVM: {hypervisor.why}"
    return "vm", "yes", f"{what}, by QEMU {hypervisor.version} with KVM and Linux {found.release} ({found.origin})", ""
