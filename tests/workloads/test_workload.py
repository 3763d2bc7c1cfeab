from __future__ import annotations

from types import SimpleNamespace

from pgherd.workloads.workload import client_options


def test_client_options_name_the_socket() -> None:
    target = SimpleNamespace(socket_dir="/s", port=5433, user="postgres")
    assert client_options(target) == ["--host", "/s", "--port", "5433", "--username", "postgres"]
