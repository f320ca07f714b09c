"""The server: it is given sealed seeds by the proxy, meets no device, and publishes noisy sums."""
