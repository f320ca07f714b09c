"""Encodes typed columns as ids of embedding rows: fingerprints, then hashed bins or vocabularies.

encoder        which columns become features, in what order and on which side; saved with the model, frozen
fingerprints   64 bits per value: categories by hash, numbers by bucket, times by hour or weekday
learned_encoding  encoders of a log's own values; a ledger pays for the sensitive ones
vocabulary     how tokens become rows of a table; a vocabulary that is chosen from data is a release
"""
