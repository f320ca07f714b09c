"""Opening a party's parts and preparing its shares: the heavy work of a job, pure, so it may run elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tacit.errors import Refused
from tacit.gather.wire.forms import Form, Prepared
from tacit.gather.wire.refusals import Refusal
from tacit.gather.wire.rounds import binding
from tacit.gather.wire.sealing import Role, SealingKey

Entries = Sequence[tuple[bytes, bytes]]
"""(report id, sealed part) of each report."""

Opening = Callable[[SealingKey, Role, Form, Entries, bytes, bytes], Prepared]
"""`open_parts`, or the same work done by other processes."""


def open_parts(
    key: SealingKey, role: Role, form: Form, entries: Entries, digest: bytes, check_key: bytes
) -> Prepared:
    """The party's shares of these reports. A part sealed to another key, role, round or id is UNOPENABLE."""
    plains, bindings, opened = [], [], []
    for place, (report_id, sealed) in enumerate(entries):
        bound = binding(digest, report_id)
        try:
            plain = key.open(sealed, role=role, binding=bound)
        except Refused:
            continue
        plains.append(plain)
        bindings.append(bound)
        opened.append(place)
    prepared = form.prepare(role, plains, bindings, check_key)
    if len(opened) == len(entries) and not prepared.refused.any():
        return prepared
    shares = np.zeros((len(entries), *prepared.shares.shape[1:]), prepared.shares.dtype)  # (reports, cells)
    shares[opened] = prepared.shares
    refused = np.full(len(entries), Refusal.UNOPENABLE, np.uint8)
    refused[opened] = prepared.refused
    messages = [bytes(form.message_bytes)] * len(entries)  # of one size, whatever the report
    for place, message, code in zip(opened, prepared.messages, prepared.refused, strict=True):
        if code == Refusal.ACCEPTED:
            messages[place] = message
    return Prepared(shares, messages, refused)
