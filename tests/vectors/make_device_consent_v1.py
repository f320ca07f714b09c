"""Makes `device_consent_v1.json`: signals of consent, and what every device must decide of them.

    PYTHONPATH=. .venv/bin/python tests/vectors/make_device_consent_v1.py

Strings are written by `tests/support/consent_strings.py` from their public specifications, decided by
`tacit.deliver.consent`. A case has the signals that are said, by their names in JavaScript, and the verdict's
name; it is personal exactly if that is ALLOWED. Strings beyond 65,536 characters are too long to stand here.
The same file comes out every time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tacit.deliver.consent.signals import ConsentSignals, decide_consent
from tests.support.consent_strings import characters, fibonacci, gpp_string, number, tc_string, us_national

VENDOR = 755
NAMES = {
    "gdpr": "gdpr", "tc_string": "tcString", "gpp": "gpp", "gpp_sid": "gppSid", "us_privacy": "usPrivacy",
    "coppa": "coppa", "lmt": "lmt", "dnt": "dnt", "gpc": "gpc", "atts": "atts",
}  # fmt: skip
AGREED = tc_string()
CORE = AGREED.split(".")[0]
NEEDED = (1, 2, 3, 4, 7)
EXAMPLE = "COvFyGBOvFyGBAbAAAENAPCAAOAAAAAAAAAAAEEUACCKAAA"  # of the TCF's own document
EMPTY = "CPXxRfAPXxRfAAfKABENB-CgAAAAAAAAAAYgAAAAAAAA"  # and of the GPP's
Case = tuple[str, dict[str, Any], int | None]


def eu(name: str, text: Any, vendor: int | None = VENDOR) -> Case:
    return f"tcf, {name}", {"gdpr": 1, "tc_string": text}, vendor


def tcf_cases() -> Iterator[Case]:
    both: dict[str, Any] = {"vendors": [3, 9, 700, 755, 756, 757, 2000], "vendor_interests": [1, 755]}
    for ranges in (False, True):
        said = "ranges" if ranges else "bits"
        yield eu(f"all agreed, {said}", tc_string(**both, ranges=ranges))
        yield eu(f"all agreed and disclosed, {said}", tc_string(**both, disclosed=range(1, 800), ranges=ranges))
        yield eu(f"not disclosed, {said}", tc_string(**both, disclosed=[1, 754, 756], ranges=ranges))
        yield eu(f"nothing disclosed, {said}", tc_string(**both, disclosed=[], ranges=ranges))
        yield eu(f"another vendor, {said}", tc_string(vendors=[754, 756], ranges=ranges))
        yield eu(f"no vendors, {said}", tc_string(vendors=[], ranges=ranges))
        yield eu(f"vendor 1, {said}", tc_string(vendors=[1], disclosed=None, ranges=ranges), 1)
        last = tc_string(vendors=[65_535], disclosed=[65_535], ranges=ranges)
        yield eu(f"the last vendor, {said}", last, 65_535)
        yield eu(f"one before the last vendor, {said}", last, 65_534)
        for vendor in (699, 700, 755, 756, 757, 758, 2000, 2001):
            yield eu(f"vendor {vendor}, {said}", tc_string(**both, disclosed=None, ranges=ranges), vendor)
        for purpose in NEEDED:
            others = [each for each in range(1, 25) if each != purpose]
            yield eu(f"without purpose {purpose}, {said}", tc_string(purposes=others, ranges=ranges))
            based = tc_string(purposes=others, interests=range(1, 25), vendor_interests=[755], ranges=ranges)
            yield eu(f"with interest in purpose {purpose}, {said}", based)
            unheard = tc_string(purposes=others, interests=range(1, 25), vendor_interests=[754], ranges=ranges)
            yield eu(f"with another's interest in purpose {purpose}, {said}", unheard)
        for kind in (0, 1, 2):
            for purpose in (*NEEDED, 5):
                based = tc_string(
                    interests=[2, 7], vendor_interests=[755], restrictions=[(purpose, kind, [5, 754, 755])],
                    ranges=ranges,
                )  # fmt: skip
                yield eu(f"restriction {kind} of purpose {purpose}, {said}", based)
    yield eu("restrictions of others", tc_string(restrictions=[(1, 0, [754]), (4, 2, [756, 757])]))
    several = [(2, 1, [755]), (2, 2, [755])]
    yield eu("two restrictions", tc_string(interests=[2], vendor_interests=[755], restrictions=several))
    yield eu("purpose one not asked", tc_string(purpose_one_treatment=True))
    yield eu("not disclosed is not said", tc_string(disclosed=None))
    yield eu("the framework's example", EXAMPLE, 2)
    yield eu("nothing agreed", EMPTY)
    yield eu("no vendor", AGREED, None)
    yield eu("no vendor and nothing to read", "garbage", None)
    yield eu(
        "with other segments", f"{AGREED}.{characters(number(3, 3) + '0' * 40)}.{characters('010' + '0' * 30)}"
    )
    yield eu("created and changed at once", tc_string(created=7, updated=7))
    yield eu("with padding", f"{CORE}AAAAAAA")


def broken_tcf_cases() -> Iterator[Case]:
    far = number(1, 3) + number(5, 16) + "1" + number(1, 12) + "1" + number(4, 16)
    for name, text in {
        "missing": None,
        "empty": "",
        "a dot": ".",
        "a letter": "A",
        "words": "not a string",
        "a number": 5,
        "a list": [AGREED],
        "a sign of another base64": f"+{AGREED[1:]}",
        "a slash": f"{CORE}/",
        "equals": f"{CORE}=",
        "a space": f"{AGREED} ",
        "a line's end": f"{AGREED}\n",
        "a letter beyond ASCII": f"{CORE}é",
        "cut off": CORE[:-4],
        "cut off by one": CORE[:-1],
        "cut off in its vendors": tc_string(vendors=[2000])[:60],
        "goes on": f"{CORE}B",
        "version 1": tc_string(version=1),
        "version 3": tc_string(version=3),
        "changed before it was made": tc_string(created=9, updated=8),
        "a segment without letters": f"{AGREED}.",
        "the same segment twice": f"{AGREED}.{AGREED.split('.')[1]}",
        "segment 0": f"{CORE}.{characters(number(0, 3) + number(0, 17))}",
        "segment 4": f"{CORE}.{characters(number(4, 3) + number(0, 17))}",
        "a segment that goes on": f"{AGREED}B",
        "a segment that is cut off": AGREED[:-3],
        "a range beyond the largest id": f"{CORE}.{characters(far + number(6, 16))}",
        "a range that falls": f"{CORE}.{characters(far + number(3, 16))}",
        "a range from 0": f"{CORE}.{characters(number(1, 3) + number(5, 16) + '1' + number(1, 12) + '0' * 17)}",
        "a restriction of purpose 0": tc_string(restrictions=[(0, 1, [1])]),
        "a restriction of kind 3": tc_string(restrictions=[(2, 3, [1])]),
        "a restriction of vendor 0": tc_string(restrictions=[(2, 0, [0])]),
    }.items():
        yield eu(f"broken: {name}", text)


def gpp_cases() -> Iterator[Case]:
    said = {2: AGREED, 6: "1YNN", 7: us_national()}
    for name, sections in {
        "2": {2: AGREED},
        "2 without purpose 4": {2: tc_string(purposes=[1, 2, 3, 5, 6, 7])},
        "2 that is broken": {2: "garbage"},
        "6": {6: "1YNN"},
        "6 with an opt-out": {6: "1YYN"},
        "6 that does not apply": {6: "1---"},
        "6 that is broken": {6: "1YN"},
        "7": {7: us_national()},
        "7 of version 2": {7: us_national(version=2)},
        "2, 6 and 7": said,
        "7 and Canada": {5: EMPTY, 7: us_national()},
        "a state": {8: "BAAAAAAA"},
        "many": dict.fromkeys(range(1, 61), "x"),
    }.items():
        text, ids = gpp_string(sections), tuple(sections)
        for sid in dict.fromkeys((None, ids, (-1,), (), (2,), (7,))):
            listed = "unsaid" if sid is None else ",".join(map(str, sid)) or "none"
            yield f"gpp of {name}, applying {listed}", {"gpp": text, "gpp_sid": sid}, VENDOR
    yield "gpp, gdpr 0", {"gdpr": 0, "gpp": gpp_string({2: "garbage"}), "gpp_sid": (-1,)}, VENDOR
    yield "gpp, gdpr 1 with section 2", {"gdpr": 1, "gpp": gpp_string(said), "gpp_sid": (-1,)}, VENDOR
    yield "gpp, gdpr 1 without section 2", {"gdpr": 1, "gpp": gpp_string({6: "1YNN"}), "gpp_sid": (6,)}, VENDOR
    no = tc_string(purposes=[])
    yield "gpp, both strings and one no", {"tc_string": no, "gpp": gpp_string(said), "gpp_sid": (2,)}, VENDOR
    yield "gpp, both strings", {"tc_string": AGREED, "gpp": gpp_string(said), "gpp_sid": (2, 7)}, VENDOR
    yield "gpp, only ids", {"gpp_sid": (7,)}, VENDOR
    yield "gpp, only the EU's id", {"gpp_sid": (2,)}, VENDOR
    yield "gpp, id 0", {"gpp": gpp_string({7: us_national()}), "gpp_sid": (0, 7)}, VENDOR
    grouped = characters(number(3, 6) + number(1, 6) + number(1, 12) + "1" + fibonacci(6) + fibonacci(1))
    yield "gpp, ids as a group", {"gpp": f"{grouped}~1YNN~{us_national()}"}, VENDOR


def broken_gpp_cases() -> Iterator[Case]:
    head = number(3, 6) + number(1, 6)
    wide = head + number(1, 12) + "1" + fibonacci(1)
    for name, text in {
        "empty": "",
        "garbage": "garbage",
        "a number": 5,
        "a section missing": "DBABMA",
        "an empty section": "DBABMA~",
        "a section more": f"DBABMA~{EMPTY}~1YNN",
        "a section fewer": "DBACNYA~x",
        "of type 2": "CBABMA~x",
        "of version 2": "DCABMA~x",
        "cut off": "DB~x",
        "numbers that never end": "DBABAAAAAAAAA~x",
        "an id of 33 bits": f"{characters(head + number(1, 12) + '0' + '0' * 31 + '11')}~x",
        "ones alone": f"DBABj{'_' * 40}~x",
        "257 sections": "~".join([characters(wide + fibonacci(256)), *"x" * 257]),
        "what goes on": f"{characters(head + number(0, 12) + '000001')}",
    }.items():
        yield f"gpp, broken: {name}", {"gdpr": 0, "gpp": text, "gpp_sid": (-1,)}, VENDOR
    for name, text in {
        "no sections": "DBAA",
        "an id of 32 bits": f"{characters(head + number(1, 12) + '0' + '0' * 30 + '11')}~x",
        "256 sections": "~".join([characters(wide + fibonacci(255)), *"x" * 256]),
    }.items():
        yield f"gpp, at its limit: {name}", {"gdpr": 0, "gpp": text, "gpp_sid": (-1,)}, VENDOR


def us_cases() -> Iterator[Case]:
    for text in ("1YNN", "1YNY", "1YN-", "1YYN", "1NNN", "1NYN", "1---", "1--N", "1Y-N", "1-N-", "1-Y-"):
        yield f"us privacy {text}", {"us_privacy": text}, VENDOR
    for broken in ("", "1YN", "2YNN", "1ynn", "1YNX", "1YNNN", "yes", 1, "1YN\n"):
        yield f"us privacy, broken: {broken!r}", {"us_privacy": broken}, VENDOR
    yield "us privacy that does not apply, and gdpr 0", {"us_privacy": "1---", "gdpr": 0}, VENDOR
    for version in (1, 2):
        for fields in (
            {"gpc": False}, {"gpc": True}, {"opt_outs": (0, 0, 2), "notices": (1, 0, 0, 1)},
            {"opt_outs": (1, 2, 2)}, {"opt_outs": (2, 1, 2)}, {"opt_outs": (2, 2, 1)}, {"opt_outs": (2, 2, 0)},
            {"notices": (1, 1, 1, 2)}, {"notices": (1, 1, 1, 0)}, {"notices": (2, 1, 1, 1)},
            {"notices": (0, 1, 1, 1)}, {"notices": (1, 2, 1, 1)}, {"children": (0, 2)}, {"children": (1,)},
            {"children": (0, 0, 1)}, {"personal_data": 1}, {"personal_data": 2}, {"mspa": (1, 1, 1)},
            {"mspa": (1, 1, 2)}, {"notices": (3, 1, 1, 1)}, {"mspa": (2, 0, 3)},
        ):  # fmt: skip
            text = us_national(version=version, **fields)
            yield f"us national {version}, {fields}", {"gpp": gpp_string({7: text})}, VENDOR
    for name, text in {
        "version 0": us_national(version=0),
        "version 3": us_national(version=3),
        "cut off": us_national()[:-2],
        "goes on": f"{us_national()}B",
        "padded": f"{us_national()}AA",
        "two signals": f"{us_national(gpc=False)}.YA",
        "a signal of another kind": f"{us_national()}.{characters('000')}",
        "an empty signal": f"{us_national()}.",
        "a signal that goes on": f"{us_national()}.{characters('010' + '001')}",
        "a padded signal": f"{us_national()}.{characters('010' + '0' * 9)}",
    }.items():
        yield f"us national, {name}", {"gpp": gpp_string({7: text})}, VENDOR


def flag_cases() -> Iterator[Case]:
    yield "nothing said", {}, VENDOR
    agreed = {"gdpr": 1, "tc_string": AGREED}
    for name in ("coppa", "lmt", "dnt", "gpc"):
        for value in (0, 1, 2, -1, "0", "1", "", "no", False, True):
            yield f"{name} {value!r}", {**agreed, name: value}, VENDOR
    for value in (0, 1, 2, 3, 4, "3"):
        yield f"atts {value!r}", {**agreed, "atts": value}, VENDOR
    for value in (0, 1, 2, "0", "1", False, True):
        yield f"gdpr {value!r} alone", {"gdpr": value}, VENDOR
        yield f"gdpr {value!r} and a string", {"gdpr": value, "tc_string": AGREED}, VENDOR
        yield f"gdpr {value!r} and a no", {"gdpr": value, "tc_string": EMPTY}, VENDOR
        yield f"gdpr {value!r} and garbage", {"gdpr": value, "tc_string": "garbage"}, VENDOR
    yield "a string alone", {"tc_string": AGREED}, VENDOR
    yield "flags alone", {"coppa": 0, "lmt": 0, "dnt": 0, "gpc": 0}, VENDOR
    yield "a child before all", {"coppa": 1, "lmt": 1, "gpc": 1, "gdpr": 1, "tc_string": EMPTY}, VENDOR
    yield "limited before opted out", {"lmt": 1, "gpc": 1, "us_privacy": "1YYN"}, VENDOR
    yield "what cannot be read before all", {"coppa": 1, "gdpr": 1, "tc_string": "garbage"}, VENDOR
    yield "no vendor where none is needed", {"gdpr": 0}, None


def records() -> dict[str, Any]:
    parts = (tcf_cases, broken_tcf_cases, gpp_cases, broken_gpp_cases, us_cases, flag_cases)
    cases = []
    for name, signals, vendor in (case for part in parts for case in part()):
        decided = decide_consent(ConsentSignals(**signals), vendor=vendor)
        said = {NAMES[key]: value for key, value in signals.items() if value is not None}
        cases.append({"name": name, "signals": {**said, "vendor": vendor}, "why": decided.verdict.name})
    return {"version": 1, "bad_vendors": [0, -1, 65_536, 1.5, "755", True], "cases": cases}


def main() -> None:
    spelled = json.dumps(records(), indent=1)
    Path(__file__).with_name("device_consent_v1.json").write_text(spelled + "\n")


if __name__ == "__main__":
    main()
