"""Every mechanism of the house as a case to audit: what it claims, and how each can be weaker than its claim.

for case in all_cases():
    assert case.verdict(Entropy()).holds, case.name
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tacit.privacy.audit.case import AuditCase

CATALOGUES = (
    "tacit.privacy.audit.catalogue",
    "tacit.privacy.choice.audit",
    "tacit.privacy.choice.audit_floors",
    "tacit.train.labels.audit",
    "tacit.train.statistic.audit",
    "tacit.train.audit",
    "tacit.torch.audit",
    "tacit.gather.audit",
    "tacit.cleanroom.audit",
    "tacit.deliver.audit",
)
"""Modules with a `cases()`; a part that brings mechanisms adds its own here."""


def all_cases() -> list[AuditCase]:
    """The cases of all catalogues. Working out what each claims takes some seconds."""
    return [case for name in CATALOGUES for case in importlib.import_module(name).cases()]
