"""The proxy: it takes devices' uploads, and sees masked vectors and sealed seeds."""
