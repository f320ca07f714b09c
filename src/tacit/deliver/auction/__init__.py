"""Auctions: what is offered and at what price is public; only the choice reads private scores.

candidates   blocks of ragged auctions, public and private columns apart
logs         the same from a generated market or a Parquet log, block by block
rules        price rules, reserve, cutoff, abstaining: all public
offers       rank, price and cut a block, from its public columns alone
noisy_price  prices with noise on private data, for comparison only
choices      greedy, non-personalised, top-m randomized response, noisy maxima
metrics      clicks, surplus, revenue and welfare, with standard errors
market       all of it over a stream of blocks
"""
