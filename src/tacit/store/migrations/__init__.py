"""Revisions of billing's tables, a folder per party, run in their order by `store.schema_revisions`.

`ads`    the ad server's
`proxy`  the proxy's

A revision that was released never changes: what comes later is a file of its own, and names the one before it.
"""
