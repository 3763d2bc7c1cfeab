from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pgherd.ui.peers import endpoint, find_owner, owner_of_peer

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0000000000000000 100 0 0 10 0
   1: 0100007F:A1B2 0100007F:223D 06 00000000:00000000 00:00000000 00000000     0        0 0 1 0000000000000000 20 4 30 10 -1
   2: 0100007F:A1B3 0100007F:223D 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0000000000000000 20 4 30 10 -1
   3: 0100007F:223D 0100007F:A1B3 01 00000000:00000000 00:00000000 00000000    33        0 3 1 0000000000000000 20 4 30 10 -1
"""


@pytest.mark.skipif(__import__("sys").byteorder != "little", reason="the table above is of a little-endian machine")
def test_the_client_s_end_is_found():
    assert endpoint("127.0.0.1", 0x223D) == "0100007F:223D"
    assert find_owner(TABLE, endpoint("127.0.0.1", 0xA1B3), endpoint("127.0.0.1", 0x223D)) == 1000
    assert find_owner(TABLE, endpoint("127.0.0.1", 0xA1B2), endpoint("127.0.0.1", 0x223D)) is None  # it waits to be forgotten
    assert find_owner(TABLE, endpoint("127.0.0.1", 1), endpoint("127.0.0.1", 0x223D)) is None
    assert find_owner("", "x", "y") is None


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_real_connection_is_ours(address):
    if not Path("/proc/net/tcp").exists():
        pytest.skip("no /proc/net/tcp here")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as server, socket.socket(family) as client:
        try:
            server.bind((address, 0))
        except OSError:
            pytest.skip(f"{address} is not there")
        server.listen()
        client.connect(server.getsockname())
        accepted, peer = server.accept()
        with accepted:
            scope = {"client": list(peer[:2]), "server": list(accepted.getsockname()[:2])}
            assert owner_of_peer(scope) == os.geteuid()


@pytest.mark.parametrize("scope", [{}, {"client": None, "server": None}, {"client": ("testclient", 1), "server": ("x", 2)}])
def test_what_is_no_connection_has_no_owner(scope):
    assert owner_of_peer(scope) is None


def test_other_hosts_have_none_here():
    assert owner_of_peer({"client": ("192.0.2.7", 1), "server": ("192.0.2.8", 2)}) is None
