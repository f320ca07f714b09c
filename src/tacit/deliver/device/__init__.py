"""The device: the best ad for the exact context and the person's own history, chosen so that little is told.

context       the device's own nodes, the one that it disclosed, and its person's clicks
wallet        what the device may spend in a window, has spent, and where to spend it
choice        the choice that is reported: private scores, and one of the menu's ads with differential privacy
ratio_report  in which bin one of its ratios private / public lies, for a round that counts them
local_choice  the choice that is never reported: exact, and among cached ads too
"""
