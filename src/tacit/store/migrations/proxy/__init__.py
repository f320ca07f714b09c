"""Revisions of the proxy's tables.

`revision_1`  directories, epochs that were forgotten, menus, reports that wait, batches, and the nonces of
              reports that have left
`revision_2`  when a store was put back
"""
