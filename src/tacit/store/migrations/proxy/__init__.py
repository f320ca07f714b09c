"""Revisions of the proxy's tables.

`revision_1`  directories, menus, reports that wait, batches, nonces of reports that have left
"""
