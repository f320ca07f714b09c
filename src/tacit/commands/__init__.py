"""One module per command: `add_parser` states its grammar, `run` does it and returns the exit code."""
