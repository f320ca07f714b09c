"""tacit: advertising that learns what works, chooses well and bills exactly, without learning about people."""

__version__ = "0.1.0"

__all__ = ["__version__"]
