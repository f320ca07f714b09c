"""Certificates of a collaboration: an authority that both trust, and one certificate a party, by its name.

ECDSA on P-256, because gRPC's TLS (BoringSSL) offers no Ed25519 in its handshake. The room's certificate is
good for a server only and the platform's for a client only: neither can stand in for the other.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit import expect
from tacit.errors import BadInput

DAYS = 365
CLOCK_SKEW = datetime.timedelta(minutes=5)
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
# What the library raises where a certificate or key is not whole, or of a kind that it does not have.
FAULTS = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.DuplicateExtension, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType),
)
_HERE = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Certified:
    """A certificate and its private key, in PEM. The key is nobody else's."""

    certificate: bytes
    private_key: bytes = field(repr=False)


def party_name(key: str, name: object) -> str:
    """A name as certificates can hold it: that of a host, in small letters, and not that of this machine."""
    if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name) or name in _HERE:
        raise BadInput(
            f"{key}: expected a name like platform.example (small letters, digits, -, .), got {name!r}"
        )
    return name


class Authority:
    """Signs the parties' certificates. Whoever has its key can make one in anybody's name."""

    def __init__(self, name: str, *, now: int, days: int = DAYS) -> None:
        expect.whole("days", days, at_least=1)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._begins = datetime.datetime.fromtimestamp(now, datetime.UTC) - CLOCK_SKEW
        self._ends = self._begins + datetime.timedelta(days=days)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signing_only = _key_usage(certificates=True)
        made = self._signed(
            self._name, self._key, [(x509.BasicConstraints(True, 0), True), (signing_only, True)]
        )
        self.own = Certified(made, _pem(self._key))

    def room(self, name: str) -> Certified:
        """For a server of this name, also when it is called by this machine's own names."""
        here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return self._party(name, [x509.DNSName(name), *here], ExtendedKeyUsageOID.SERVER_AUTH)

    def platform(self, name: str) -> Certified:
        """For a client of this name."""
        return self._party(name, [x509.DNSName(name)], ExtendedKeyUsageOID.CLIENT_AUTH)

    def _party(self, name: str, names: list[x509.GeneralName], use: x509.ObjectIdentifier) -> Certified:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party_name("name", name))])
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(False, None), True),
            (_key_usage(certificates=False), True),
            (x509.ExtendedKeyUsage([use]), False),
            (x509.SubjectAlternativeName(names), False),
        ]
        return Certified(self._signed(subject, key, extensions), _pem(key))

    def _signed(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        extensions: list[tuple[x509.ExtensionType, bool]],
    ) -> bytes:
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(self._begins)
            .not_valid_after(self._ends)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(authority, critical=False)
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _key_usage(*, certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    kind = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, kind, serialization.NoEncryption())


def name_on(key: str, certificate: bytes) -> str:
    """The party's name that a certificate holds; refuses what is none, or names nobody."""
    try:
        read = x509.load_pem_x509_certificate(certificate)
        common = [str(each.value) for each in read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except FAULTS:
        raise BadInput(f"{key}: expected a party's certificate in PEM, got another text") from None
    if len(common) != 1 or common[0] not in names.get_values_for_type(x509.DNSName):
        raise BadInput(f"{key}: expected a certificate with the party's name, got one without")
    return common[0]


def check_pair(certificate: bytes, private_key: bytes, authority: bytes) -> None:
    """Refuse what no handshake can succeed with: another certificate's key, or one of another authority."""
    key = _private_key(private_key)
    chain = _certificates("tls.certificate", certificate)  # the party's own comes first
    trusted = _certificates("tls.authority", authority)
    if _public_key(chain[0]) != key:
        raise BadInput("tls.private_key: expected the key of tls.certificate, got that of another certificate")
    if not any(_is_issued(each, by) for each in chain for by in trusted):
        raise BadInput("tls.certificate: expected one that tls.authority signed, got one that it did not")


def _private_key(pem: bytes) -> object:
    """Its public half."""
    try:
        return serialization.load_pem_private_key(pem, password=None).public_key()
    except FAULTS:  # what is in the file must not be repeated
        raise BadInput(
            "tls.private_key: expected a private key in PEM, without a password, got another text"
        ) from None


def _certificates(key: str, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except FAULTS:
        raise BadInput(f"{key}: expected a certificate in PEM, got another text") from None


def _public_key(certificate: x509.Certificate) -> object:
    try:
        return certificate.public_key()
    except FAULTS:
        raise BadInput("tls.certificate: expected one with a key that can be read, got another") from None


def _is_issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (*FAULTS, InvalidSignature):
        return False
    return True
