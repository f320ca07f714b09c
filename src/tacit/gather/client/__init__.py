"""A device's side: `contributions` chooses events, `answering` counts them, `reporting` uploads them."""
