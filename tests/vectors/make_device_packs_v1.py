"""Makes `device_packs_v1.json`: packs of ads that devices must read, and those that they must refuse.

    PYTHONPATH=. .venv/bin/python tests/vectors/make_device_packs_v1.py

Bytes are spelled in hex, the content of ads in base64. All keys are fixed: the same file comes out every time.
Entries of `bad_packs` must be refused with the verdict that they name. Most of them are signed by the ad
server: what is wrong is what they say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tacit.bill.protocol.encoding import BillVerdict
from tacit.deliver.protocol.packs import (
    LONGEST_PACK,
    PACK_LABEL,
    FrequencyCap,
    MenuPack,
    PackedCampaign,
    PackedCreative,
)
from tests.support import billing_messages as made

MENU_ID = bytes(range(32))
TEXT = PackedCreative(3, "text/plain", "Tea <b>& more", "Freshly picked", "https://tea.example/?a=1&b=ü")
IMAGE = PackedCreative(2**53 - 1, "image/png", "", "", "https://a.example/", 300, 250, bytes(range(256)))
EMPTY = PackedCreative(0, "text/html", "\ud7ff😀", "\x00", "https://b.example/x", 1, 1, b"")
CAPS = (FrequencyCap(1, 1), FrequencyCap(65_535, 2**32 - 1))
GOOD = {
    "of_no_campaign": MenuPack(MENU_ID, ()),
    "of_nothing_said": MenuPack(MENU_ID, (PackedCampaign(0), PackedCampaign(2**53 - 1))),
    "of_ads": MenuPack(
        MENU_ID,
        (
            PackedCampaign(12, CAPS, ("IAB8", "IAB8-5"), (TEXT, IMAGE)),
            PackedCampaign(7, CAPS[:1], (), (EMPTY,)),
        ),
    ),
}


def sent(said: Any, label: bytes = PACK_LABEL) -> bytes:
    """A pack of any text, or of any record, that the ad server signed."""
    text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
    return json.dumps({"pack": text, "signature": made.SERVER.sign(label, text.encode()).hex()}).encode()


def changed_packs() -> dict[str, bytes]:
    """Signed packs, each with one thing in it that no device takes."""

    def with_campaign(**changed: Any) -> bytes:
        return sent({"menu": MENU_ID.hex(), "campaigns": [{**PackedCampaign(1).as_json(), **changed}]})

    def with_ad(**changed: Any) -> bytes:
        return with_campaign(creatives=[{**TEXT.as_json(), **changed}])

    def with_cap(impressions: Any, seconds: Any) -> bytes:
        return with_campaign(caps=[{"impressions": impressions, "seconds": seconds}])

    def without(name: str) -> bytes:
        campaign = PackedCampaign(1).as_json()
        del campaign[name]
        return sent({"menu": MENU_ID.hex(), "campaigns": [campaign]})

    return {
        "no_json_within": sent("{"),
        "a_list_within": sent([]),
        "nothing_within": sent("null"),
        "no_campaigns": sent({"menu": MENU_ID.hex()}),
        "campaigns_of_a_number": sent({"menu": MENU_ID.hex(), "campaigns": 3}),
        "no_menu": sent({"campaigns": []}),
        "menu_no_hex": sent({"menu": "menu", "campaigns": []}),
        "campaign_of_a_text": sent({"menu": MENU_ID.hex(), "campaigns": ["1"]}),
        "without_number": without("number"),
        "without_caps": without("caps"),
        "without_categories": without("categories"),
        "without_creatives": without("creatives"),
        "campaign_a_text": with_campaign(number="1"),
        "campaign_a_fraction": with_campaign(number=1.5),
        "campaign_true": with_campaign(number=True),
        "cap_of_none": with_cap(0, 60),
        "cap_too_large": with_cap(65_536, 60),
        "cap_a_fraction": with_cap(1.5, 60),
        "cap_a_text": with_cap("1", 60),
        "cap_of_no_time": with_cap(1, 0),
        "cap_of_all_time": with_cap(1, 2**32),
        "cap_negative": with_cap(-1, 60),
        "ad_true": with_ad(number=True),
        "ad_of_no_number": with_ad(number=None),
        "address_in_clear": with_ad(address="http://tea.example/"),
        "address_a_script": with_ad(address="javascript:alert(1)"),
        "address_with_a_blank": with_ad(address=" https://tea.example/"),
        "address_none": with_ad(address=None),
        "address_of_nobody": with_ad(address="https://"),
        "address_with_a_name": with_ad(address="https://tea.example@other.example/"),
        "address_with_a_password": with_ad(address="https://tea:example@other.example/"),
        "content_no_base64": with_ad(content="a"),
        "content_with_a_break": with_ad(content="AAAA\nAAAA"),
        "content_for_addresses": with_ad(content="ab_-"),
        "content_a_number": with_ad(content=5),
    }


def bad_packs() -> dict[str, dict[str, str]]:
    good = GOOD["of_ads"].signed(made.SERVER.sign)
    said = json.loads(good)
    other = MenuPack(bytes(32), ())
    refused = {
        BillVerdict.MALFORMED: {
            "empty": b"",
            "no_json": good[:-1],
            "bytes_after": good + b"x",
            "no_utf8": good.replace("ü".encode(), b"\xfc"),
            "a_list": b"[]",
            "null": b"null",
            "a_number": b"7",
            "no_pack": json.dumps({"signature": said["signature"]}).encode(),
            "no_signature": json.dumps({"pack": said["pack"]}).encode(),
            "pack_no_text": json.dumps({**said, "pack": {}}).encode(),
            "signature_no_hex": json.dumps({**said, "signature": "x" * 128}).encode(),
            "half_a_character": good.replace(b"Freshly", b"\\ud800"),
            **changed_packs(),
        },
        BillVerdict.UNAUTHENTICATED: {
            "text_changed": good.replace(b"Freshly", b"freshly"),
            "signed_by_proxy": GOOD["of_ads"].signed(made.PROXY.sign),
            "signed_for_another_purpose": sent(said["pack"], b"tacit/epoch/1"),
            "signature_short": json.dumps({**said, "signature": said["signature"][:-2]}).encode(),
            "signature_none": json.dumps({**said, "signature": ""}).encode(),
        },
        BillVerdict.UNKNOWN_MENU: {
            "other_menu": other.signed(made.SERVER.sign),
            "menu_short": sent({"menu": MENU_ID.hex()[:-2], "campaigns": []}),
        },
    }
    return {
        f"bad_{name}": {"bytes": data.hex(), "verdict": verdict.name}
        for verdict, cases in refused.items()
        for name, data in cases.items()
    }


def records() -> dict[str, Any]:
    return {
        "version": 1,
        "server_signing": made.SERVER.public.hex(),
        "menu_id": MENU_ID.hex(),
        "longest": LONGEST_PACK,
        "packs": {
            name: {
                "campaigns": [each.as_json() for each in pack.campaigns],
                "bytes": pack.signed(made.SERVER.sign).hex(),
            }
            for name, pack in GOOD.items()
        },
        "bad_packs": bad_packs(),
    }


def main() -> None:
    spelled = json.dumps(records(), indent=1)
    Path(__file__).with_name("device_packs_v1.json").write_text(spelled + "\n")


if __name__ == "__main__":
    main()
