"""Keys and certificates of a collaboration: who they name, what they are good for, and who can read them."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tacit.cleanroom.protocol import signatures
from tacit.entropy import Entropy
from tacit.errors import BadInput
from tacit.services.room import keys
from tacit.services.room.keys import CertificateAuthority, check_party_name, name_on_certificate
from tacit.services.settings import read_secret_file
from tests.support.room_network import NOW, all_keys


def read(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def test_each_certificate_has_its_name_and_its_use() -> None:
    authority = CertificateAuthority("trial", now=NOW)
    room, platform = read(authority.room("shop").certificate), read(authority.platform("ads").certificate)
    names = x509.SubjectAlternativeName
    here = room.extensions.get_extension_for_class(names).value
    assert here.get_values_for_type(x509.DNSName) == ["shop", "localhost"]
    assert [str(each) for each in here.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    there = platform.extensions.get_extension_for_class(names).value
    assert list(there) == [x509.DNSName("ads")]
    for each, use in ((room, ExtendedKeyUsageOID.SERVER_AUTH), (platform, ExtendedKeyUsageOID.CLIENT_AUTH)):
        assert list(each.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [use]
        assert not each.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        assert isinstance(each.public_key(), ec.EllipticCurvePublicKey)
        each.verify_directly_issued_by(read(authority.own.certificate))


def test_a_strict_verifier_accepts_the_chain_and_no_other() -> None:
    """RFC 5280 as `cryptography` reads it; gRPC's own reading is in the tests of the network."""
    authority, other = CertificateAuthority("trial", now=NOW), CertificateAuthority("trial", now=NOW)
    room = read(authority.room("shop").certificate)

    def verifier(trusted: CertificateAuthority, name: str) -> object:
        policy = PolicyBuilder().store(Store([read(trusted.own.certificate)]))
        return policy.build_server_verifier(x509.DNSName(name)).verify(room, [])

    assert verifier(authority, "shop")
    for trusted, name in ((other, "shop"), (authority, "ads")):
        with pytest.raises(VerificationError):
            verifier(trusted, name)


def test_certificates_begin_a_little_early_and_end() -> None:
    made = read(CertificateAuthority("trial", now=NOW, days=30).own.certificate)
    assert NOW - 600 < made.not_valid_before_utc.timestamp() < NOW
    assert NOW + 29 * 86_400 < made.not_valid_after_utc.timestamp() <= NOW + 30 * 86_400


def test_two_of_everything_are_different() -> None:
    authority = CertificateAuthority("trial", now=NOW)
    assert authority.room("shop").private_key != authority.room("shop").private_key
    assert (
        read(authority.room("a").certificate).serial_number
        != read(authority.room("a").certificate).serial_number
    )


@pytest.mark.parametrize(
    "name", ["", "Platform", "a b", "a_b", "localhost", "127.0.0.1", "-a", "a" * 65, 7, None]
)
def test_names_that_no_certificate_should_have(name: object) -> None:
    with pytest.raises(BadInput, match="--platform: expected a name"):
        check_party_name("--platform", name)


def test_the_name_is_read_back_and_what_has_none_is_refused() -> None:
    authority = CertificateAuthority("trial", now=NOW)
    assert name_on_certificate("tls.certificate", authority.room("shop").certificate) == "shop"
    for wrong in (b"", b"nonsense", authority.own.certificate, authority.room("shop").private_key):
        with pytest.raises(BadInput, match=r"tls\.certificate: expected a"):
            name_on_certificate("tls.certificate", wrong)


def test_a_serial_number_below_one_is_refused_without_a_warning() -> None:
    """The library takes one with a warning for now: a damaged file must be refused in one line."""
    whole = read(CertificateAuthority("trial", now=NOW).room("shop").certificate)
    encoded = bytearray(whole.public_bytes(serialization.Encoding.DER))
    place = encoded.index(b"\xa0\x03\x02\x01\x02\x02") + 7  # version 3, then the number's length
    encoded[place] |= 0x80
    damaged = ssl.DER_cert_to_PEM_cert(bytes(encoded)).encode()
    with pytest.raises(BadInput, match="expected a party's certificate in PEM, got another text"):
        name_on_certificate("tls.certificate", damaged)


def test_every_private_file_is_its_owners_alone(tmp_path: Path) -> None:
    made = all_keys(tmp_path / "trial")
    private = {each.path.name for each in made if each.private}
    assert private == {
        "authority.key", "room.key", "room.signing", "room.secret", "platform.key", "platform.signing",
        "platform.mask", "token.key",
    }  # fmt: skip
    for each in made:
        mode = stat.S_IMODE(each.path.stat().st_mode)
        assert mode == (0o600 if each.private else 0o644), each.path


def test_each_party_has_its_own_and_nothing_of_the_other(tmp_path: Path) -> None:
    """The secrets of one party occur nowhere in the other's folder, whatever the files are called."""
    all_keys(tmp_path)
    for one, other in (("room", "platform"), ("platform", "room")):
        shared = {
            (tmp_path / one / name).read_bytes() for name in ("token.key", "authority.crt", "parties.toml")
        }
        ours = {path.read_bytes() for path in (tmp_path / one).iterdir()} - shared
        theirs = b"".join(path.read_bytes() for path in (tmp_path / other).iterdir())
        assert len(ours) == 4
        assert not [each for each in ours if each.strip() in theirs]
    authority = (tmp_path / "authority/authority.key").read_bytes()
    assert all(
        authority != path.read_bytes() for path in tmp_path.glob("*/*") if path.parent.name != "authority"
    )


def test_public_keys_are_those_of_the_signing_keys(tmp_path: Path) -> None:
    all_keys(tmp_path)
    told = (tmp_path / "room/parties.toml").read_text()
    for party in ("room", "platform"):
        secret = read_secret_file("signing", tmp_path / party / f"{party}.signing")
        assert f'{party}_key = "{signatures.public_key(signatures.private_key(secret))}"' in told
        assert secret.hex() not in told


def test_keys_are_never_written_over(tmp_path: Path) -> None:
    all_keys(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("*/*")}
    with pytest.raises(BadInput, match="never written over"):
        all_keys(tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.glob("*/*")}


def test_one_name_for_both_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="expected two names"):
        keys.write_keys(tmp_path, platform="same", room="same", now=NOW, entropy=Entropy())
    assert not list(tmp_path.iterdir())
