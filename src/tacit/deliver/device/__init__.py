"""The device: the best ad for the exact context and the person's own history, chosen so that little is told.

agent         START HERE: `AdDevice`, which fetches menus, chooses, shows, reports and settles
settings      what its person allows: consent, what is disclosed, limits, which statistics it joins
parties       whom it believes, and its way to them
context       the device's own nodes, the one that it disclosed, and its person's clicks
rates         its own click rates by a model that runs there
wallet        what the device may spend in a window, has spent, and where to spend it
account       the same on two counts: to proxy and ad server together, and to the server alone
journal       the states of an impression, each kept before the device acts on it
menu_book     menus that were found in a directory that both parties signed, with their plans
offers        heads, menus and tokens: fetched, checked, kept
packs         the ads of a menu; frequency caps and exclusions, kept within the private choice
choice        the choice that is reported: private scores, and one of the menu's ads with differential privacy
outcomes      what it shows, and what became of its reports
fleet         thousands of devices in one process, which share what is public
shown_log     what it showed, what was clicked and what led to a conversion, kept for rounds that count it
ratio_report  in which bin one of its ratios private / public lies, for a round that counts them
local_choice  the choice that is never reported: exact, and among cached ads too
"""
