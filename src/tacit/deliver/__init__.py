"""Stage 4: the server offers a few candidates at public prices, and the device chooses among them privately.

disclosure   what a person says of a context: a level, or a block of a cut that leaves enough open
estimates    click-through rates along the hierarchy of contexts, from exact or noisy counts
candidates   the server: a few ads for a disclosed node
sent         what it answers
client       the device: the best of them for the exact context and the person's own history
planning     what a private choice is worth, and what it may spend
auction      many requests at once: candidates, prices, choices, metrics, markets
"""
