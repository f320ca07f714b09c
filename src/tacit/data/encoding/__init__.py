"""Encodes typed columns as ids of embedding rows: fingerprints, then hashed bins or vocabularies."""
