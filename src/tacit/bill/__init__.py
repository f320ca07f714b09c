"""Billing: exact charges from public prices.

charges       from `Impressions` to `Charges`: a `Charge` per impression, whole micros, with its `ChargeReason`
charges_file  the same as a file, written as impressions come
protocol      what crosses between devices, proxy and ad server: menus, blind tokens, sealed reports, batches
proxy         checks and holds reports, shuffles and forwards them
server        the ad server: offers menus with tokens, charges batches, closes invoices

`proxy` and `server` share only `protocol`.
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.bill.charges import Charge, ChargeReason, Charges, charge
    from tacit.bill.charges_file import CampaignBill, ChargesFile, write_charges
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "charges": "Charge ChargeReason Charges charge",
            "charges_file": "CampaignBill ChargesFile write_charges",
        },
    )

__all__ = ["CampaignBill", "Charge", "ChargeReason", "Charges", "ChargesFile", "charge", "write_charges"]
