"""The console: what goes on in an ad server, for those who run it and for its advertisers, in a browser.

part          its routes
site          its files, as `web` has them
views         what its views show, by what a key may see
privacy       cohorts, ledger, rounds and versions, which are for operators
batches       charges by epoch, and sizes of cohorts, from the latest batches
alerts        what to know of and do, decided from all of it
verification  the auditor's check of all invoices, run here
"""
