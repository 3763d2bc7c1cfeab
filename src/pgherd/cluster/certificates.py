"""Private certificate authority for one cluster, and a certificate for each member.

A holder of such a certificate can run code on every host, which is the purpose of a cluster. Without one, the TLS
handshake fails. Keys are in files of mode 0600, and are sent to hosts by SSH only.
"""

from __future__ import annotations

import datetime
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

DAYS = 365
"""Validity of a certificate in days. Clusters do not run that long."""

AUTHORITY, MEMBER = "authority.pem", "member.pem"
"""Files of the authority's certificate, and of a member's certificate with its key."""


@dataclass(frozen=True)
class Authority:
    """Certificate and key of the authority, as PEM text."""

    certificate: str
    key: str

    def issue(self, member: str) -> str:
        """Return a new key and its certificate as one PEM text. The name is for people; it is not compared with an
        address.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.x509.oid import ExtendedKeyUsageOID

        authority = x509.load_pem_x509_certificate(self.certificate.encode())
        signer = serialization.load_pem_private_key(self.key.encode(), password=None)
        key = _new_key()
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = (
            _builder(_name(member), authority.subject, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(uses, critical=False)
        )
        return _pem(builder, signer) + _key_pem(key)  # type: ignore[arg-type]  # the key of ``authority``


def authority(cluster: str) -> Authority:
    """Return the authority of a new cluster, with its key."""
    from cryptography import x509

    key = _new_key()
    name = _name(f"pgherd cluster {cluster}")
    builder = _builder(name, name, key).add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return Authority(_pem(builder, key), _key_pem(key))


def write_private(path: Path, text: str) -> None:
    """Write a file that is readable only by its owner from the start."""
    path.unlink(missing_ok=True)
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)


def _new_key() -> ec.EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))  # clocks of hosts differ
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )


def _pem(builder: x509.CertificateBuilder, signer: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization

    plain = serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain).decode()
