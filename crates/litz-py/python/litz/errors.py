"""What can go wrong, as exceptions."""

from ._litz import CacheError, InternalError, InvalidError, LitzError, RunError, UnsupportedError

__all__ = ["CacheError", "InternalError", "InvalidError", "LitzError", "NotConverted", "RunError", "UnsupportedError"]


class NotConverted(UnsupportedError):
    """A graph of PyTorch's has what no text of Litz can say; PyTorch runs such a graph."""
