"""A small market whose file lists its menus, for tests that count on them: the contexts of a trial."""

LISTED_MARKET = """\
# What may be shown where, and who pays. Read again for each epoch: what is changed here counts from the next.
epoch_seconds = 60                 # for which a menu and its token keys are offered (production: 600 to 86400)
report_seconds = 600               # after an epoch's end, in which its impressions can still be reported
epsilon = 1.0                      # what one private choice may spend
smallest_cohort = 5                # reports of a menu that leave the proxy together, at least
reserve_micros = 100               # the least public score (bid x rate) that takes part
attributes = ["city", "topic"]     # names for reading; contexts.toml has their levels

[[campaign]]
number = 1
advertiser = "Bean & Leaf"
budget_micros = 50_000_000         # in all; without the key: no limit

[[campaign]]
number = 2
advertiser = "Long Run Shoes"
budget_micros = 80_000_000

[[campaign]]
number = 3
advertiser = "Two Wheels"

[[campaign]]
number = 4
advertiser = "Tea House"

[[menu]]                           # one for each context that is offered, at its levels
levels = [1, 1]
values = ["North", "Food"]
ads = [                            # bid for a click, and the public chance of one in this context
    { campaign = 1, bid_micros = 400_000, rate = 0.031 },
    { campaign = 4, bid_micros = 350_000, rate = 0.028 },
    { campaign = 2, bid_micros = 600_000, rate = 0.009 },
]

[[menu]]
levels = [1, 1]
values = ["North", "Sport"]
ads = [
    { campaign = 2, bid_micros = 600_000, rate = 0.034 },
    { campaign = 3, bid_micros = 700_000, rate = 0.025 },
    { campaign = 1, bid_micros = 400_000, rate = 0.011 },
]

[[menu]]
levels = [1, 1]
values = ["South", "Food"]
ads = [
    { campaign = 4, bid_micros = 350_000, rate = 0.036 },
    { campaign = 1, bid_micros = 400_000, rate = 0.029 },
]

[[menu]]
levels = [1, 1]
values = ["South", "Sport"]
ads = [
    { campaign = 3, bid_micros = 700_000, rate = 0.030 },
    { campaign = 2, bid_micros = 600_000, rate = 0.027 },
    { campaign = 4, bid_micros = 350_000, rate = 0.008 },
]

[[menu]]                           # for who tells nothing
levels = [2, 2]
values = ["*", "*"]
ads = [
    { campaign = 2, bid_micros = 600_000, rate = 0.018 },
    { campaign = 3, bid_micros = 700_000, rate = 0.015 },
    { campaign = 1, bid_micros = 400_000, rate = 0.019 },
    { campaign = 4, bid_micros = 350_000, rate = 0.017 },
]
"""
