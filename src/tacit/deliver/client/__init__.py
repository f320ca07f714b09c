"""The device: the best ad for the exact context and the person's own history, chosen so that little is told.

here      where the device is: its own nodes, and the one that it disclosed
history   the person's own clicks, and the rates that they make of the server's
cache     ads kept on the device
scores    what each ad that was sent is worth: publicly, and by all that the device knows
private   the choice that is reported: among the ads that were sent, with differential privacy
local     the choice that is never reported: exact, and among cached ads too
"""
