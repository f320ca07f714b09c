"""What the ad server needs kept of campaigns. Every method is one transaction, on disk when it returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tacit.deliver.campaigns.campaign import AdCampaign


class CampaignReader(Protocol):
    """Campaigns as whoever builds menus, paces or reports reads them."""

    def ad_campaigns(self) -> Sequence[AdCampaign]:
        """All that have not ended, by number."""

    def revision(self) -> int:
        """A number that grows with every change of a campaign or a creative: what has not changed need not be
        read again."""
