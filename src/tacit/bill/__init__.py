"""Stage 5: exact charges from public prices."""
