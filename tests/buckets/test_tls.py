"""A store behind a private authority: SSL_CERT_FILE makes it known to every connection of a driver."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from streams.buckets.base import Bucket
from streams.buckets.minio import MinioBucket
from streams.buckets.obstore import ObstoreBucket
from streams.buckets.remote import Keys
from streams.errors import WrongEndpoint

from .stub import Stub, found, serving


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    is_authority, now = subject == issuer, datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(_name(subject)).issuer_name(_name(issuer))
    made = made.public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(is_authority, None), critical=True)
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    return made.sign(signer, hashes.SHA256())


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """The certificate file of an authority, and the context of a server that it vouches for."""
    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    pem = serialization.Encoding.PEM
    (tmp_path / "ca.pem").write_bytes(_certificate("authority", root, "authority", root).public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    leaf = _certificate("localhost", key, "authority", root).public_bytes(pem)
    (tmp_path / "leaf.pem").write_bytes(leaf + private)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "leaf.pem")
    return tmp_path / "ca.pem", context


@pytest.fixture
def stub(authority: tuple[Path, ssl.SSLContext]) -> Iterator[Stub]:
    with serving(authority[1]) as stub:
        yield stub


def opened(kind: type[MinioBucket] | type[ObstoreBucket], stub: Stub) -> Bucket:
    return kind("bucket", "root", endpoint=stub.url, keys=lambda: Keys("a", "b"))


@pytest.mark.parametrize("kind", [MinioBucket, ObstoreBucket])
def test_an_authority_in_ssl_cert_file_is_trusted(kind, stub, authority, monkeypatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority[0]))
    bucket = opened(kind, stub)
    stub.answers = [found(b""), found(b"data")]
    bucket.put("a", b"x", if_absent=True)
    assert bucket.get("a").data == b"data"
    bucket.close()


@pytest.mark.parametrize("kind", [MinioBucket, ObstoreBucket])
def test_an_authority_that_nobody_named_is_not(kind, stub, monkeypatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    bucket = opened(kind, stub)
    for call in (lambda: bucket.put("a", b"x"), lambda: bucket.get("a")):
        with pytest.raises(WrongEndpoint, match=r"certificate of localhost:\d+ cannot be verified"):
            call()
    bucket.close()
