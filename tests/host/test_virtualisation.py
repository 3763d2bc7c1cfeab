from __future__ import annotations

from pathlib import Path

import pytest

from pgherd.host import virtualisation

DMI = "/sys/class/dmi/id"
CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"


@pytest.mark.parametrize(
    ("flag", "files", "expected"),
    [
        (True, {f"{DMI}/sys_vendor": "QEMU\n", f"{DMI}/product_name": "Standard PC (Q35 + ICH9, 2009)\n"}, "QEMU"),
        (True, {f"{DMI}/sys_vendor": "VMware, Inc.\n", f"{DMI}/product_name": "VMware Virtual Platform\n"}, "VMware"),
        (True, {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "m5.large\n"}, "Amazon EC2"),
        (True, {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "m5.metal\n"}, None),
        (False, {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "i3.metal\n"}, None),
        (None, {f"{DMI}/sys_vendor": "Amazon EC2\n", f"{DMI}/product_name": "m6g.large\n"}, "Amazon EC2"),
        (True, {f"{DMI}/sys_vendor": "Microsoft Corporation\n", f"{DMI}/product_name": "Virtual Machine\n"}, "Microsoft Hyper-V"),
        (True, {f"{DMI}/sys_vendor": "Nutanix\n", f"{DMI}/product_name": "AHV\n"}, "Nutanix AHV"),
        (True, {f"{DMI}/sys_vendor": "Google\n", f"{DMI}/product_name": "Google Compute Engine\n"}, "Google Compute Engine (KVM)"),
        (True, {"/sys/hypervisor/type": "xen\n"}, "Xen"),
        (False, {"/sys/hypervisor/type": "xen\n", "/proc/xen/capabilities": "control_d\n"}, "Xen (control domain)"),
        (False, {f"{DMI}/sys_vendor": "Dell Inc.\n", f"{DMI}/product_name": "PowerEdge R740\n", CLOCKS: "tsc hpet acpi_pm \n"}, None),
        (True, {CLOCKS: "tsc kvm-clock \n"}, "KVM"),
        (True, {CLOCKS: "tsc hyperv_clocksource_tsc_page \n"}, "Microsoft Hyper-V"),
        (True, {}, "unknown hypervisor"),
        (None, {}, None),
    ],
)
def test_detect(tmp_path: Path, fake, flag: bool | None, files: dict[str, str], expected: str | None) -> None:
    assert virtualisation.detect(fake.FakeNode(tmp_path, files), flag) == expected
