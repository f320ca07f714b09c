"""Derive every invoice again from an exported folder, without private keys, and say what does not hold."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tacit import expect, files
from tacit.bill.audit.charges import PROVEN, STATED, STATEMENT, AuditTally, audit_charges
from tacit.bill.audit.epochs import AuditKeys, audit_epoch
from tacit.bill.audit.findings import FindingKind, Findings, VerificationReport
from tacit.bill.audit.folder import (
    BATCHES,
    CAMPAIGNS,
    CHARGES,
    INVOICE_LINES,
    INVOICES,
    MANIFEST,
    MENUS,
    AuditFolder,
    epoch_file,
)
from tacit.bill.audit.invoices import StatedInvoices
from tacit.bill.protocol.batches import MOST_REPORTS, STATEMENT_BYTES, BatchStatement, Receipt
from tacit.bill.protocol.encoding import expect_size, refuse_malformed
from tacit.errors import BadInput, BillRefused
from tacit.progress import patient_bar
from tacit.sealing import KEY_BYTES

MOST_RECEIPT_BYTES = MOST_REPORTS + 256


def verify_folder(
    folder: Path,
    server_public: bytes,
    proxy_public: bytes,
    *,
    statements: Path | None = None,
    receipts: Path | None = None,
) -> VerificationReport:
    """Check an exported folder against the keys that ad server and proxy sign by; nothing secret is needed.

    statements  the proxy's own batch statements, one behind the other, as its service gives them for an epoch:
                with them, batches that the ad server left out are found

    receipts    what the ad server signed for those batches, as the proxy's service gives it: with them, charges
                are found that it denies to the auditor and had confirmed to the proxy

    Guarantee:  where the report holds, every charge on every invoice is of one report that the proxy signed in
                a batch, whose token the ad server signed for a menu that both parties put under one root; it is
                charged once, for the entry that its device committed to, at that entry's price. Every report
                that the ad server's receipt accepted is charged or held, and invoices add up to the micro.
    Neighbours: none: nothing here is private but which impressions there were, which the folder lists.
    Assumes:    the public keys are the parties' own, and Ed25519, SHA-256 and RSA-PSS hold. What no folder can
                show is listed in `findings.LIMITS`: made-up devices and dropped reports above all.
    Source:     RFC 9474 (tokens that anybody can verify), RFC 9162 (the tree of menus); Laro et al. 2023,
                appendix B.

    BadInput where there is no such folder, or `statements` are not what the proxy signed. Memory does not grow
    with the number of charges: of an epoch, its menus and the places of its batches are held at a time.
    """
    keys = AuditKeys(
        expect_size("server_public", server_public, KEY_BYTES),
        expect_size("proxy_public", proxy_public, KEY_BYTES),
    )
    opened, findings = AuditFolder.open(folder), Findings()
    tally = AuditTally(findings)
    try:
        given = None if statements is None else _read_statements(statements, keys, tally)
        if receipts is not None:
            tally.receipts = _read_receipts(receipts, keys)
        _check_files(opened, findings)
        _tell_restores(opened, findings)
        stated = StatedInvoices(opened, tally)
        roots: dict[int, bytes] = {}
        with patient_bar("verifying", opened.reports, "reports") as count:
            for epoch in opened.epochs:
                known = audit_epoch(opened, epoch, keys, roots, findings)
                tally.menus += len(known.data)
                audit_charges(opened, known, keys, tally, count)
        tally.find_repetitions()
        later = 0 if given is None else _compare_statements(tally)
        _find_left_out(tally)
        invoices = stated.compare()
    finally:
        tally.close()
    return VerificationReport(
        epochs=len(opened.epochs),
        menus=tally.menus,
        batches=tally.batches,
        reports=tally.reports,
        charged=tally.charged,
        nothing=tally.nothing,
        uninvoiced=dict(sorted(tally.uninvoiced.items())),
        held=dict(sorted(tally.held.items())),
        rejected=dict(sorted(tally.rejected.items())),
        invoices=invoices,
        findings=tuple(findings.kept),
        counts=dict(findings.counts),
        statements=given,
        receipts=None if receipts is None else len(tally.receipts),
        later=later,
    )


def _check_files(folder: AuditFolder, findings: Findings) -> None:
    """Every file is there and as the manifest has it, and there are no others."""
    needed = {CAMPAIGNS, INVOICES, INVOICE_LINES}
    needed |= {epoch_file(epoch, kind) for epoch in folder.epochs for kind in (MENUS, BATCHES, CHARGES)}
    for name in sorted(needed | folder.files.keys()):
        listed, place = folder.files.get(name), folder.path / name
        if not place.is_file():
            findings.add(FindingKind.MISSING_FILE, name, "expected a file, got none")
        elif listed is None:
            findings.add(FindingKind.UNLISTED_FILE, name, "expected a file of the manifest, got another")
        elif place.stat().st_size != listed.size or files.file_digest(place) != listed.sha256:
            words = f"expected {listed.size} bytes with the manifest's digest, got others"
            findings.add(FindingKind.CHANGED_FILE, name, words)
    for name in folder.unlisted():
        if name not in needed:
            findings.add(FindingKind.UNLISTED_FILE, name, "expected a file of the manifest, got another")


def _tell_restores(folder: AuditFolder, findings: Findings) -> None:
    """What the ad server says itself that it has lost."""
    for each in folder.restores:
        words = (
            f"expected a store that was never put back, got one that was at {each.at}: at least "
            f"{each.lost_batches} batches of epochs up to {each.last_epoch} are gone with their charges, and "
            f"invoices up to {each.last_invoice} may be"
        )
        findings.add(FindingKind.STORE_PUT_BACK, MANIFEST, words)


def _find_left_out(tally: AuditTally) -> None:
    """Receipts that the proxy was given, of batches that the folder lacks."""
    for batch in sorted(tally.receipts.keys() - tally.receipted):
        words = "expected the batch of a receipt that the ad server signed, got none"
        tally.findings.add(FindingKind.BATCH_LEFT_OUT, MANIFEST, words, batch=batch)


def _read_statements(path: Path, keys: AuditKeys, tally: AuditTally) -> int:
    """Keep what the proxy says that it released; how many statements that is."""
    count = 0
    with expect.path("statements", path).open("rb") as file:
        while data := file.read(STATEMENT_BYTES):
            try:
                statement = BatchStatement.from_bytes(data)
                statement.check(keys.proxy)
            except BillRefused as refused:
                raise BadInput(
                    f"{path}: expected statements that the proxy signed, {STATEMENT_BYTES} bytes each, got "
                    f"another at byte {count * STATEMENT_BYTES}: {refused}"
                ) from None
            row = statement.batch_id, STATED, hashlib.sha256(data).digest(), statement.epoch, statement.reports
            tally.statements.add(STATEMENT.pack(*row))
            count += 1
    return count


def _read_receipts(path: Path, keys: AuditKeys) -> dict[bytes, bytes]:
    """Digests of the receipts that the proxy was given, by batch."""
    found: dict[bytes, bytes] = {}
    with expect.path("receipts", path).open("rb") as file:
        while head := file.read(4):
            size = int.from_bytes(head, "big")
            try:
                if len(head) < 4 or size > MOST_RECEIPT_BYTES:
                    refuse_malformed("expected a length of 4 bytes and a receipt behind it")
                data = file.read(size)
                receipt = Receipt.from_bytes(data)
                receipt.check(keys.server)
            except BillRefused as refused:
                raise BadInput(
                    f"{path}: expected receipts that the ad server signed, got another as number "
                    f"{len(found) + 1}: {refused}"
                ) from None
            found[receipt.batch_id] = hashlib.sha256(data).digest()
    return found


def _compare_statements(tally: AuditTally) -> int:
    """Say which batches the folder lacks or has otherwise; how many the statements do not have yet."""
    later = 0
    for alike in tally.statements.groups():
        rows = [STATEMENT.unpack(row) for row in alike]
        ours = [row for row in rows if row[1] == PROVEN]
        theirs = [row for row in rows if row[1] == STATED]
        if not theirs:
            later += 1
            continue
        batch, _, digest, epoch, reports = theirs[0]
        file = epoch_file(epoch, BATCHES)
        if not ours:
            words = f"expected a batch of {reports} reports that the proxy signed, got none"
            tally.findings.add(FindingKind.BATCH_LEFT_OUT, file, words, epoch=epoch, batch=batch)
        elif any(row[2] != digest for row in (*ours, *theirs)):
            words = "expected one statement of a batch, got another from the proxy itself"
            tally.findings.add(FindingKind.OTHER_STATEMENT, file, words, epoch=epoch, batch=batch)
    return later
