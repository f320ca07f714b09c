"""The auditor's part of billing: a folder that the ad server exports, and what follows from it without any key.

`folder`        START HERE: the files of such a folder, and reading them with doubt
`export`        writes one from what the ad server keeps: `export_folder`, which gives an `ExportedFolder`
`verification`  derives every invoice again: `verify_folder`, which gives a `VerificationReport`
`epochs`        an epoch's head, directory and menus, held against each other
`charges`       an epoch's batches and charges, held against tokens, commitments, prices and receipts
`invoices`      what the charges prove, held against what invoices state
`findings`      each `Finding` that does not hold, with its place; each `AuditedInvoice`; what no folder shows
`spilled_rows`  rows compared by key in little memory
"""
