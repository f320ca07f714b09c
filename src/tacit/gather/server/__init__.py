"""The server: it is given sealed seeds by the proxy, meets no device, and publishes noisy sums.

`party`  jobs in, one result per round out
`store`  the Protocol of what the server needs kept
"""
