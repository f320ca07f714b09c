"""The ad server's part of billing: it signs tokens blindly, offers menus, charges batches, closes invoices.

`token_keys`     the private half of a menu's key, and raw RSA by OpenSSL
`party`          START HERE: `AdServer`, from requests to offers and from batches to receipts
`token_counter`  tokens that may be signed, counted before they are
`notices`        impressions that exchanges tell of: signed notices, each taken once
`store`          what it needs kept, as Protocols
"""
