"""What advertisers hand in: campaigns with their bids, schedules, budgets and caps, and the ads themselves.

campaign   `AdCampaign`: who pays what for which event, where, when, and up to how much
creatives  the ads themselves: texts, images, fragments of HTML, checked before they are kept
images     what an image is, by its own bytes
packs      the ads of a menu's campaigns as devices get them, within a size
files      campaigns in TOML and CSV
access     keys and roles: who may see and change what
store      what is kept of advertisers and campaigns, and what is asked of a store of them
versions   statistics and models that rates are made of, one of a kind in use

Nothing here is private: the ad server alone knows it, and menus show it to everybody who asks.
"""
