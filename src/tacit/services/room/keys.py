"""Keys and certificates of a collaboration: an authority that both parties trust, and one folder per party.

    authority/   authority.crt, authority.key   put away: its key can sign a certificate in either party's name
    room/        room.crt, room.key             TLS: who the room is
                 room.signing                   Ed25519: signs agreements, and the audit log's receipts
                 room.secret                    flips labels and seeds noise; can undo both
                 token.key                      makes tokens of record ids; both parties hold it
                 authority.crt, parties.toml    public
    platform/    platform.crt, platform.key, platform.signing, token.key, authority.crt, parties.toml
                 platform.mask                  hides record ids in a private intersection

Certificates are ECDSA on P-256, because gRPC's TLS (BoringSSL) offers no Ed25519 in its handshake. The room's
certificate is good for a server only and the platform's for a client only: neither can stand in for the other.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit import expect
from tacit.cleanroom.protocol import signatures
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.files import write_new_files
from tacit.services.signatures import SECRET_BYTES

DAYS = 365
CLOCK_SKEW = datetime.timedelta(minutes=5)
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*")
# What the library raises where a certificate or key is not whole, or of a kind that it does not have.
CERTIFICATE_FAULTS = (
    *(ValueError, TypeError, UnsupportedAlgorithm),
    *(x509.InvalidVersion, x509.DuplicateExtension, x509.ExtensionNotFound, x509.UnsupportedGeneralNameType),
)
_HERE = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class CertifiedKey:
    """A certificate and its private key, in PEM. The key is nobody else's."""

    certificate: bytes
    private_key: bytes = field(repr=False)


def check_party_name(key: str, name: object) -> str:
    """A name as certificates can hold it: that of a host, in small letters, and not that of this machine."""
    if not isinstance(name, str) or len(name) > 64 or not _NAME.fullmatch(name) or name in _HERE:
        raise BadInput(
            f"{key}: expected a name like platform.example (small letters, digits, -, .), got {name!r}"
        )
    return name


class CertificateAuthority:
    """Signs the parties' certificates. Whoever has its key can make one in anybody's name."""

    def __init__(self, name: str, *, now: int, days: int = DAYS) -> None:
        expect.whole("days", days, at_least=1)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._begins = datetime.datetime.fromtimestamp(now, datetime.UTC) - CLOCK_SKEW
        self._ends = self._begins + datetime.timedelta(days=days)
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signing_only = _key_usage(certificates=True)
        made = self._sign_certificate(
            self._name, self._key, [(x509.BasicConstraints(True, 0), True), (signing_only, True)]
        )
        self.own = CertifiedKey(made, _pem(self._key))

    def room(self, name: str) -> CertifiedKey:
        """For a server of this name, also when it is called by this machine's own names."""
        here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        return self._party(name, [x509.DNSName(name), *here], ExtendedKeyUsageOID.SERVER_AUTH)

    def platform(self, name: str) -> CertifiedKey:
        """For a client of this name."""
        return self._party(name, [x509.DNSName(name)], ExtendedKeyUsageOID.CLIENT_AUTH)

    def _party(self, name: str, names: list[x509.GeneralName], use: x509.ObjectIdentifier) -> CertifiedKey:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, check_party_name("name", name))])
        extensions: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(False, None), True),
            (_key_usage(certificates=False), True),
            (x509.ExtendedKeyUsage([use]), False),
            (x509.SubjectAlternativeName(names), False),
        ]
        return CertifiedKey(self._sign_certificate(subject, key, extensions), _pem(key))

    def _sign_certificate(
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


@contextmanager
def _refusing_doubtful() -> Iterator[None]:
    """What the library takes with a warning for now, such as a serial number below 1, is refused here."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", CryptographyDeprecationWarning)
        try:
            yield
        except CryptographyDeprecationWarning as doubt:
            raise ValueError(str(doubt)) from None


def name_on_certificate(key: str, certificate: bytes) -> str:
    """The party's name that a certificate holds; refuses what is none, or names nobody."""
    try:
        with _refusing_doubtful():
            read = x509.load_pem_x509_certificate(certificate)
        common = [str(each.value) for each in read.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except CERTIFICATE_FAULTS:
        raise BadInput(f"{key}: expected a party's certificate in PEM, got another text") from None
    if len(common) != 1 or common[0] not in names.get_values_for_type(x509.DNSName):
        raise BadInput(f"{key}: expected a certificate with the party's name, got one without")
    return common[0]


def check_key_pair(certificate: bytes, private_key: bytes, authority: bytes) -> None:
    """Refuse what no handshake can succeed with: another certificate's key, or one of another authority."""
    key = _private_key(private_key)
    chain = _certificates("tls.certificate", certificate)  # the party's own comes first
    trusted = _certificates("tls.authority", authority)
    if _public_key(chain[0]) != key:
        raise BadInput("tls.private_key: expected the key of tls.certificate, got that of another certificate")
    if not any(_is_issued(each, by) for each in chain for by in trusted):
        raise BadInput("tls.certificate: expected one that tls.authority signed, got one that it did not")


def _private_key(pem: bytes) -> object:
    """The public half of a private key in PEM."""
    try:
        return serialization.load_pem_private_key(pem, password=None).public_key()
    except CERTIFICATE_FAULTS:  # what is in the file must not be repeated
        raise BadInput(
            "tls.private_key: expected a private key in PEM, without a password, got another text"
        ) from None


def _certificates(key: str, pem: bytes) -> list[x509.Certificate]:
    try:
        with _refusing_doubtful():
            return x509.load_pem_x509_certificates(pem)
    except CERTIFICATE_FAULTS:
        raise BadInput(f"{key}: expected a certificate in PEM, got another text") from None


def _public_key(certificate: x509.Certificate) -> object:
    try:
        return certificate.public_key()
    except CERTIFICATE_FAULTS:
        raise BadInput("tls.certificate: expected one with a key that can be read, got another") from None


def _is_issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (*CERTIFICATE_FAULTS, InvalidSignature):
        return False
    return True


MOST_DAYS = 36_500

PARTIES = """\
# Public: the parties' names, as on their certificates, and the keys that their signatures are checked with.
platform = "{platform}"
room = "{room}"
platform_key = "{platform_key}"
room_key = "{room_key}"
"""

MEANINGS = {
    "authority.crt": "public; both check each other's certificates with it",
    "authority.key": "put away or destroyed: whoever has it can pose as either party",
    "room.crt": "public; shown to the platform",
    "room.key": "the room's alone",
    "room.signing": "the room's alone: signs agreements and receipts",
    "room.secret": "the room's alone, kept for good: whoever has it can undo flips and noise",
    "platform.crt": "public; shown to the room",
    "platform.key": "the platform's alone",
    "platform.signing": "the platform's alone: signs agreements",
    "platform.mask": "the platform's alone, kept for good: hides its record ids in a private intersection",
    "token.key": "both parties': makes tokens of record ids; nobody else's",
    "parties.toml": "public: names and public keys",
}


@dataclass(frozen=True)
class KeyFile:
    """One file that was made, whose it is, and what may happen to it."""

    path: Path
    holder: str
    means: str
    private: bool


def write_keys(
    folder: Path, *, platform: str, room: str, now: int, entropy: Entropy, days: int = DAYS
) -> list[KeyFile]:
    """Make all of them; refuses a folder in which one of them is already, before it writes any."""
    if check_party_name("--platform", platform) == check_party_name("--room", room):
        raise BadInput(f"--platform and --room: expected two names, got {room} for both")
    if expect.whole("--days", days, at_least=1) > MOST_DAYS:
        raise BadInput(f"--days: expected at most {MOST_DAYS}, got {days}")
    authority = CertificateAuthority(f"tacit trial of {platform} and {room}", now=now, days=days)
    certified = {"room": authority.room(room), "platform": authority.platform(platform)}
    signing_secrets = {party: entropy.bytes(signatures.KEY_BYTES) for party in certified}
    public = {
        f"{party}_key": signatures.public_key(signatures.private_key(secret))
        for party, secret in signing_secrets.items()
    }
    shared_secrets = {"token.key": _hex(entropy.bytes(SECRET_BYTES))}
    told = PARTIES.format(platform=platform, room=room, **public).encode()
    files: dict[str, tuple[bytes, bool]] = {
        "authority/authority.crt": (authority.own.certificate, False),
        "authority/authority.key": (authority.own.private_key, True),
        "room/room.secret": (_hex(entropy.bytes(SECRET_BYTES)), True),
        "platform/platform.mask": (_hex(entropy.bytes(SECRET_BYTES)), True),
    }
    for party, each in certified.items():
        files[f"{party}/{party}.crt"] = (each.certificate, False)
        files[f"{party}/{party}.key"] = (each.private_key, True)
        files[f"{party}/{party}.signing"] = (_hex(signing_secrets[party]), True)
        files[f"{party}/token.key"] = (shared_secrets["token.key"], True)
        files[f"{party}/authority.crt"] = (authority.own.certificate, False)
        files[f"{party}/parties.toml"] = (told, False)
    files = dict(sorted(files.items()))
    write_new_files(folder, files)
    return [
        KeyFile(folder / name, name.partition("/")[0], MEANINGS[Path(name).name], private)
        for name, (_, private) in files.items()
    ]


def _hex(secret: bytes) -> bytes:
    return secret.hex().encode() + b"\n"
