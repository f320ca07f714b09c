"""Revisions of billing's tables, a folder per party, run in their order by `store.schema_revisions`.

`ads`    the ad server's
`proxy`  the proxy's

Expand, then contract. A revision says by `compatible_from` which is the oldest revision whose release still
works on the tables that it leaves (without it: none but its own): several processes share a database, and go
to the next release one by one. So a revision adds tables, columns that may be empty or have a default, and
indexes; what it replaces stays, and is still written, until no release that needs it is left. A later revision
takes that away: it names itself or a recent one, and is refused while another process has the database open.

A revision that was released never changes: what comes later is a file of its own, and names the one before it.
"""
