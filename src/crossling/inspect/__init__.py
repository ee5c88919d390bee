"""What a recipe would do with some shards, without training: who is drawn how often, how large it is, what it costs."""

from crossling.inspect.inspection import inspect

__all__ = ["inspect"]
