"""Whole-numbered noise with exact laws and exact samplers.

`discrete_laplace`, `discrete_gaussian`  the laws that one party adds to a count
`skellam`, `polya`, `shares`             laws that many parties add in shares, and what servers make up for
`symmetric`, `enclosures`                how a sampler stays exact: proved digits, and more of them if need be
"""
