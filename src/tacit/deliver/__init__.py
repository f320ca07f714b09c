"""Stage 4: the server offers a few candidates at public prices, and the device chooses among them privately."""
