"""Billing: exact charges from public prices.

charges       from `Impressions` to `Charges`: a `Charge` per impression, whole micros, with its `ChargeReason`
charges_file  the same as a file, written as impressions come
accounts      what advertisers owe, in words: invoices item by item, campaigns' accounts, budgets
audit         a folder for the auditor, and every invoice derived from it again, without any key
protocol      what crosses between devices, proxy and ad server: menus, blind tokens, sealed reports, batches
proxy         checks and holds reports, shuffles and forwards them
server        the ad server: offers menus with tokens, charges batches, closes invoices
in_process    both parties in one process, linked by the bytes that a network would carry

`proxy` and `server` share only `protocol`.
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.bill.accounts import (
        Accounts,
        CampaignAccount,
        InvoiceItem,
        itemise_invoice,
        read_accounts,
        set_budget,
        show_micros,
    )
    from tacit.bill.audit.export import ExportedFolder, export_folder
    from tacit.bill.audit.findings import AuditedInvoice, Finding, VerificationReport
    from tacit.bill.audit.verification import verify_folder
    from tacit.bill.charges import Charge, ChargeReason, Charges, charge
    from tacit.bill.charges_file import CampaignBill, ChargesFile, write_charges
    from tacit.bill.in_process import BillingParties
    from tacit.bill.protocol.menus import MenuEntry, PricedMenu
    from tacit.bill.server.party import EpochTimes
    from tacit.bill.server.store import Campaign
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "accounts": "Accounts CampaignAccount InvoiceItem itemise_invoice read_accounts set_budget "
            "show_micros",
            "audit.export": "ExportedFolder export_folder",
            "audit.findings": "AuditedInvoice Finding VerificationReport",
            "audit.verification": "verify_folder",
            "charges": "Charge ChargeReason Charges charge",
            "charges_file": "CampaignBill ChargesFile write_charges",
            "in_process": "BillingParties",
            "protocol.menus": "MenuEntry PricedMenu",
            "server.party": "EpochTimes",
            "server.store": "Campaign",
        },
    )

__all__ = [
    "Accounts", "AuditedInvoice", "BillingParties", "Campaign", "CampaignAccount", "CampaignBill", "Charge",
    "ChargeReason", "Charges", "ChargesFile", "EpochTimes", "ExportedFolder", "Finding", "InvoiceItem",
    "MenuEntry", "PricedMenu", "VerificationReport", "charge", "export_folder", "itemise_invoice",
    "read_accounts", "set_budget", "show_micros", "verify_folder", "write_charges",
]  # fmt: skip
