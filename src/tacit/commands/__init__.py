"""One module per command: `add_parser` states its grammar, `run` does it and returns the exit code.

A command parses, calls the library and prints. What somebody would want from Python too (what is read, decided,
measured or kept, and the records and words that tell of it) belongs to the library.
"""
