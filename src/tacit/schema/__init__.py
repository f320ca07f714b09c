"""Shared nouns, frozen: what the rooms hand to each other."""
