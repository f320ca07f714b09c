"""What to spend on a request and how, decided from public data alone, before any private score is read.

prior     what the private scores may be, given the public ones, as scenarios
ladder    what randomized response on the public best would gain at each epsilon
plan      one request: the law to choose by, what it spends, what it should gain, what nothing can exceed
planner   plans kept by what is public in a request
budget    a period: where a device's epsilon is best spent, and what that promises
blocks    the same for blocks of auctions, as choice rules of a market
device    one request on a device: look up its worth, pay, plan
wallet    the device's own book of what it has spent
"""
