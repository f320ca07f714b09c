"""Stage 4: the server sends a menu of candidates at public prices, and the device chooses among them privately.

protocol  what server and device both know, all public: cuts of contexts, menus, prices, forecasts, plans
server    click rates from counts, values of ads, which ads to send for a disclosed context, logs of choices
device    exact context and history, private scores, wallet, the reported choice and the one that stays local
auction   many requests at once: blocks, prices, choice rules, metrics, markets, bidders' incentives

`server` and `device` share only `protocol`; `auction`, which stands for a server and many devices, may use
all three.
"""
