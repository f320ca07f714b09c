"""An epoch as an auditor knows it: one root that both parties signed, its directory, and the menus below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tacit.bill.audit.findings import FindingKind, Findings
from tacit.bill.audit.folder import MENUS, AuditFolder, epoch_file
from tacit.bill.protocol.directory import Directory, DirectoryLeaf, EpochHead
from tacit.bill.protocol.menus import PricedMenu
from tacit.bill.protocol.tokens import TokenPublicKey
from tacit.display import brief
from tacit.errors import BadInput, BillRefused

MOST_MENUS_PARSED = 10_000


@dataclass(frozen=True)
class AuditKeys:
    """The keys that ad server and proxy sign by, which the auditor has from elsewhere than the folder."""

    server: bytes
    proxy: bytes


@dataclass(frozen=True)
class ListedMenu:
    """A menu that stands in its epoch's directory, and the key that signed its tokens."""

    menu: PricedMenu
    token_key: TokenPublicKey


@dataclass
class AuditedEpoch:
    """What is known of an epoch; `signed` where both parties signed the root of this very directory."""

    epoch: int
    signed: bool = False
    leaves: dict[bytes, DirectoryLeaf] = field(default_factory=dict)
    data: dict[bytes, bytes] = field(default_factory=dict)
    _listed: dict[bytes, ListedMenu] = field(default_factory=dict)

    def __repr__(self) -> str:
        return brief(self, epoch=self.epoch, menus=len(self.data), signed=self.signed)

    def menu(self, menu_id: bytes) -> ListedMenu | None:
        """A menu of this epoch; only those that are asked for are taken apart, and few are kept so."""
        found = self._listed.get(menu_id)
        if found is None and menu_id in self.data:
            if len(self._listed) >= MOST_MENUS_PARSED:
                self._listed.clear()
            menu = PricedMenu.from_bytes(self.data[menu_id])
            found = self._listed[menu_id] = ListedMenu(menu, self.leaves[menu_id].token_key)
        return found


def audit_epoch(
    folder: AuditFolder, epoch: int, keys: AuditKeys, roots: dict[int, bytes], findings: Findings
) -> AuditedEpoch:
    """Hold an epoch's head, directory and menus against each other. `roots` has those of epochs before."""
    file = epoch_file(epoch, MENUS)
    found = AuditedEpoch(epoch)
    try:
        with folder.blobs(epoch, MENUS) as blobs:
            rest = iter(blobs)
            head = EpochHead.from_bytes(next(rest, b""))
            _check_head(head, epoch, keys, roots, findings, found)
            _read_directory(head, next(rest, b""), findings, found)
            _read_menus(rest, findings, found)
    except FileNotFoundError:
        pass  # said already, of all files that are missing
    except (BadInput, BillRefused) as refusal:
        findings.add(FindingKind.DAMAGED, file, str(refusal), epoch=epoch)
    lacking = len(found.leaves.keys() - found.data.keys())
    if lacking:
        words = f"expected each menu of the directory, got none for {lacking} of {len(found.leaves)}"
        findings.add(FindingKind.MISSING_MENU, file, words, epoch=epoch)
    return found


def _check_head(
    head: EpochHead,
    epoch: int,
    keys: AuditKeys,
    roots: dict[int, bytes],
    findings: Findings,
    found: AuditedEpoch,
) -> None:
    file = epoch_file(epoch, MENUS)
    try:
        head.check(keys.server, keys.proxy)
        found.signed = True
    except BillRefused:
        words = "expected a head that ad server and proxy signed, got one that they did not"
        findings.add(FindingKind.UNSIGNED_HEAD, file, words, epoch=epoch)
    if head.epoch != epoch:
        words = f"expected the head of epoch {epoch}, got that of epoch {head.epoch}"
        findings.add(FindingKind.MISPLACED_EPOCH, file, words, epoch=epoch)
        found.signed = False
    if roots.setdefault(head.epoch, head.root) != head.root:
        words = f"expected one root of epoch {head.epoch}, got a second one: {head.root.hex()}"
        findings.add(FindingKind.SECOND_ROOT, file, words, epoch=epoch)
        found.signed = False


def _read_directory(head: EpochHead, data: bytes, findings: Findings, found: AuditedEpoch) -> None:
    try:
        directory = Directory.from_bytes(data)  # whose leaves have the root that it says
        same = directory.head.body == head.body
    except BillRefused:
        same = False
    if not same:
        words = "expected the directory with the root that both signed, got another"
        findings.add(FindingKind.OTHER_DIRECTORY, epoch_file(found.epoch, MENUS), words, epoch=found.epoch)
        found.signed = False
        return
    found.leaves |= {leaf.menu_id: leaf for leaf in directory.leaves}


def _read_menus(blobs: Iterator[bytes], findings: Findings, found: AuditedEpoch) -> None:
    file = epoch_file(found.epoch, MENUS)
    for number, data in enumerate(blobs):
        try:
            menu = PricedMenu.from_bytes(data)
        except BillRefused as refusal:
            findings.add(FindingKind.DAMAGED, file, f"menu {number}: {refusal}", epoch=found.epoch)
            continue
        leaf = found.leaves.get(menu.menu_id)
        if leaf is None or menu.epoch != found.epoch or DirectoryLeaf.of(menu, leaf.token_key) != leaf:
            words = f"menu {number}: expected one at its context's place in the directory, got {menu}"
            findings.add(FindingKind.UNLISTED_MENU, file, words, epoch=found.epoch)
        else:
            found.data[menu.menu_id] = data
