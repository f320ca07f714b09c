"""Revisions of the ad server's tables.

`revision_1`  epochs, menus, entries, campaigns, batches, charges, invoices and their lines
`revision_2`  campaigns as advertisers hand them in, access keys, changes, limits, notices, versions
`revision_3`  tokens that were reported, and what days cost campaigns
`revision_4`  nonces of operators' commands; when a store was put back
"""
