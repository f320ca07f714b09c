"""The ad server's part of billing: it signs tokens blindly, offers menus, charges batches, closes invoices.

`token_keys`  the private half of a menu's key, and raw RSA by OpenSSL
`party`       START HERE: `AdServer`, from requests to offers and from batches to receipts
`store`       what it needs kept, as Protocols
"""
