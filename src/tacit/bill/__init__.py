"""Billing: exact charges from public prices.

`charges`  from `Impressions` to `Charges`: a `Charge` per impression, in whole micros, with its `ChargeReason`
"""

from typing import TYPE_CHECKING

from tacit.exports import front_door

if TYPE_CHECKING:
    from tacit.bill.charges import Charge, ChargeReason, Charges, charge
else:
    __getattr__, __dir__ = front_door(
        __name__,
        {
            "charges": "Charge ChargeReason Charges charge",
        },
    )

__all__ = ["Charge", "ChargeReason", "Charges", "charge"]
