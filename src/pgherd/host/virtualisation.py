"""Which hypervisor runs this machine, if any, as far as the machine can tell.

The rules are those of systemd-detect-virt (systemd, src/basic/virt.c): firmware strings first, since they tell products
built on one hypervisor apart; a firmware string counts only where the CPU does not say that no hypervisor is there.
"""

from __future__ import annotations

from pgherd.host.cgroup_layout import text_of
from pgherd.node.protocol import Node

_DMI = "/sys/class/dmi/id"
_DMI_FILES = ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")
_VENDORS = (
    ("KVM", "KVM"),
    ("OpenStack", "KVM (OpenStack)"),
    ("KubeVirt", "KVM (KubeVirt)"),
    ("Amazon EC2", "Amazon EC2"),
    ("Google Compute Engine", "Google Compute Engine (KVM)"),
    ("AHV", "Nutanix AHV"),
    ("Nutanix", "Nutanix AHV"),
    ("QEMU", "QEMU"),
    ("VMware", "VMware"),
    ("VMW", "VMware"),
    ("innotek GmbH", "VirtualBox"),
    ("VirtualBox", "VirtualBox"),
    ("Xen", "Xen"),
    ("Bochs", "Bochs"),
    ("Parallels", "Parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "Microsoft Hyper-V"),
    ("Virtual Machine", "Microsoft Hyper-V"),
    ("Apple Virtualization", "Apple Virtualization"),
)
_CLOCKS = (("kvm-clock", "KVM"), ("hyperv", "Microsoft Hyper-V"), ("xen", "Xen"))


def detect(node: Node, hypervisor_flag: bool | None) -> str | None:
    """Name of the hypervisor; None on bare metal, as far as can be seen.

    ``hypervisor_flag`` is what the CPU says (pgherd.host.cpus.Processors.hypervisor).
    """
    if text_of(node, "/sys/hypervisor/type") == "xen":
        # Xen's first domain is the machine's own system, with the hardware in its hands.
        return "Xen (control domain)" if "control_d" in text_of(node, "/proc/xen/capabilities") else "Xen"
    if hypervisor_flag is False:
        return None
    firmware = [text_of(node, f"{_DMI}/{file}") for file in _DMI_FILES]
    if firmware[0].endswith(".metal"):  # Amazon's bare-metal machines carry the same vendor string
        return None
    for needle, name in _VENDORS:
        if any(text.startswith(needle) for text in firmware):
            return name
    if node.exists("/proc/device-tree/hypervisor/compatible"):
        return text_of(node, "/proc/device-tree/hypervisor/compatible").rstrip("\0") or "unknown hypervisor"
    clocks = text_of(node, "/sys/devices/system/clocksource/clocksource0/available_clocksource")
    for needle, name in _CLOCKS:
        if needle in clocks:
            return name
    return "unknown hypervisor" if hypervisor_flag else None
