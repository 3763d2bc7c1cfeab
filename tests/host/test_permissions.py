"""The advice follows from the user, the container and the user namespace."""

import pytest

from pgherd.host import permissions
from pgherd.node.local import LocalNode

RUN = "/sys/kernel/mm/ksm/run"
ALL = "         0          0 4294967295\n"


class Host(LocalNode):
    def __init__(self, uid: int, environ: str = "", ids: str = ALL) -> None:
        super().__init__()
        status = f"Name:\tpgherd\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
        self.files = {"/proc/self/status": status, "/proc/1/environ": environ, "/proc/self/uid_map": ids}

    def read(self, path: str) -> bytes:
        return self.files[path].encode()

    def exists(self, path: str) -> bool:
        return False


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        (Host(1000), "run pgherd as root"),
        (Host(1000, "container=docker\0"), "run pgherd as root"),
        (Host(0, "PATH=/bin\0container=podman\0"), "--privileged"),
        (Host(0, "PATH=/bin\0KUBERNETES_SERVICE_HOST=10.96.0.1\0"), "--privileged"),
        (Host(0, ids="0 100000 65536\n"), "run pgherd as root of the host"),
        (Host(0), "mount /sys writable as root (mount -o remount,rw,bind /sys)"),
    ],
)
def test_what_lets_a_file_of_the_kernel_be_written(host: Host, remedy: str) -> None:
    assert remedy in permissions.remedy_to_write(host, RUN)


def test_a_user_who_is_not_known_is_not_root() -> None:
    host = Host(0)
    host.files["/proc/self/status"] = "Name:\tpgherd\n"
    assert permissions.effective_uid(host) == -1
    assert permissions.remedy_to_write(host, RUN) == "run pgherd as root"
