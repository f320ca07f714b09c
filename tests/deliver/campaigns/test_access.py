"""Access keys: spelled once, kept as a digest, held for as long as they say; what each role may do."""

from __future__ import annotations

import pytest

from tacit.deliver.campaigns.access import Access, AccessKey, AccessRole, key_id_of, make_key
from tacit.entropy import Simulation
from tacit.errors import BadInput

NOW = 1_800_000_000


def draw(count: int) -> bytes:
    return bytes(range(count))


def test_a_key_is_told_by_its_spelling_and_kept_without_it() -> None:
    spelled, key = make_key(AccessRole.OPERATOR, None, Simulation(1).bytes, now=NOW)
    assert key_id_of(spelled) == key.key_id
    assert key.is_spelled(spelled)
    assert not key.is_spelled(spelled[:-1] + ("0" if spelled[-1] != "0" else "1"))
    secret = spelled.rsplit("_", 1)[1]
    assert secret not in repr(key) + str(key.as_json())
    assert bytes.fromhex(secret) not in key.digest


@pytest.mark.parametrize(
    "spelled", ["", "tacit_", "tacit_00_11", "Bearer x", "tacit_" + "g" * 16 + "_" + "0" * 64]
)
def test_another_spelling_has_no_id(spelled: str) -> None:
    assert key_id_of(spelled) is None


def test_a_key_holds_until_it_ends_or_is_revoked() -> None:
    _, key = make_key(AccessRole.VIEWER, None, draw, now=NOW, ends=NOW + 10)
    assert key.holds_at(NOW + 9)
    assert not key.holds_at(NOW + 10)
    assert not AccessKey("k", AccessRole.VIEWER, None, NOW, revoked=NOW + 5).holds_at(NOW)
    with pytest.raises(BadInput, match="ends: expected a second after now"):
        make_key(AccessRole.VIEWER, None, draw, now=NOW, ends=NOW)


@pytest.mark.parametrize(("role", "advertiser"), [("operator", "A"), ("advertiser", None), ("boss", None)])
def test_a_role_of_one_advertiser_needs_one(role: str, advertiser: str | None) -> None:
    with pytest.raises(BadInput, match=r"advertiser: expected|role to be one of"):
        AccessKey("k", role, advertiser, NOW)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("role", "sees", "changes"),
    [
        # own, another's, nobody's
        (AccessRole.OPERATOR, (True, True, True), (True, True, True)),
        (AccessRole.VIEWER, (True, True, True), (False, False, False)),
        (AccessRole.ADVERTISER, (True, False, False), (True, False, False)),
        (AccessRole.ADVERTISER_VIEWER, (True, False, False), (False, False, False)),
    ],
)
def test_what_each_role_may_do(role: AccessRole, sees: tuple[bool, ...], changes: tuple[bool, ...]) -> None:
    access = Access("k", role, "A" if role.of_one else None)
    assert tuple(access.may_read(each) for each in ("A", "B", None)) == sees
    assert tuple(access.may_change(each) for each in ("A", "B", None)) == changes
