"""What advertisers hand in: campaigns with their bids, schedules, budgets and caps, and the ads themselves.

campaign   `AdCampaign`: who pays what for which event, where, when, and up to how much
store      what is asked of a store of campaigns

Nothing here is private: the ad server alone knows it, and menus show it to everybody who asks.
"""
