"""Certificates, judged by Python's own TLS."""

from __future__ import annotations

import socket
import ssl
import stat
import threading

import pytest

from pgherd.cluster import certificates


@pytest.fixture
def members(tmp_path):
    """Directory → authority and member of one cluster; ``stranger`` has a member of another."""
    ours, other = certificates.authority("one"), certificates.authority("one")
    for name, issuer in (("driver", ours), ("host", ours), ("stranger", other)):
        (tmp_path / name).mkdir()
        certificates.write_private(tmp_path / name / certificates.AUTHORITY, ours.certificate)
        certificates.write_private(tmp_path / name / certificates.MEMBER, issuer.issue(name))
    return tmp_path


def _context(directory, purpose):
    default_context = ssl.create_default_context(purpose, cafile=str(directory / certificates.AUTHORITY))
    default_context.load_cert_chain(str(directory / certificates.MEMBER))
    default_context.check_hostname, default_context.verify_mode = False, ssl.CERT_REQUIRED
    return default_context


def _meet(server, client) -> str:
    """Both sides of one connection; what the server learns of its peer."""
    near, far = socket.socketpair()
    messages = []

    def serve() -> None:
        try:
            with _context(server, ssl.Purpose.CLIENT_AUTH).wrap_socket(far, server_side=True) as connection:
                messages.append(dict(part[0] for part in connection.getpeercert()["subject"])["commonName"])
                connection.sendall(b"x")
        except (ssl.SSLError, OSError) as error:
            messages.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with _context(client, ssl.Purpose.SERVER_AUTH).wrap_socket(near) as connection:
            assert connection.recv(1) == b"x"
    finally:
        thread.join()
    return messages[0]


def test_members_know_each_other_and_nobody_else(members):
    assert _meet(members / "host", members / "driver") == "driver"
    with pytest.raises((ssl.SSLError, OSError, AssertionError)):
        _meet(members / "host", members / "stranger")
    with pytest.raises((ssl.SSLError, OSError)):
        _meet(members / "stranger", members / "driver")


def test_keys_are_private(members):
    path = members / "host" / certificates.MEMBER
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and "PRIVATE KEY" in path.read_text()
    assert "PRIVATE KEY" not in (members / "host" / certificates.AUTHORITY).read_text()


def test_a_member_is_no_authority(members):
    from cryptography import x509

    member = x509.load_pem_x509_certificate((members / "host" / certificates.MEMBER).read_bytes())
    assert not member.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (member.not_valid_after_utc - member.not_valid_before_utc).days == certificates.DAYS + 1
