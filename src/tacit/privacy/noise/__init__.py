"""Integer noise with exact laws and exact samplers.

`distributions`  discrete Laplace and Gaussian for one party; Skellam and Polya for shares of several
`shares`         noise that many parties add in shares, and what servers make up for
`exact_sampler`  how a sampler stays exact: proved digits, and more of them if need be
"""
