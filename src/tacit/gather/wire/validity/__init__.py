"""The proof that a report's counts are in range, checked by two parties of whom neither sees the counts."""
