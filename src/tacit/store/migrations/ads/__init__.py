"""Revisions of the ad server's tables.

`revision_1`  epochs, menus, entries, campaigns, batches, charges, invoices and their lines
"""
