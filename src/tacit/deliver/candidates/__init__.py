"""The server's part: which few ads to send to somebody who disclosed no more than a node of the hierarchy.

payments    what ads pay for a click, everywhere or by advertisers' bids on contexts
values      what each ad is worth in each context below the disclosed node
selection   k ads by greedy choice, with a bound on what any k could reach; as few as reach a revenue
updates     the same as statistics, ads and contexts change, without beginning again
constraints the coarsest disclosure that reaches a revenue, and k by network load

Source: Hardt and Nath, Privacy-aware personalization for mobile advertising, CCS 2012, sections 3.2 and 3.3.
"""
