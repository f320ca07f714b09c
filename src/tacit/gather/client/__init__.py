"""A device's side: `contributions` chooses events and counts them, `reporter` uploads the counts."""
