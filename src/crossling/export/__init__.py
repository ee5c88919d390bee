"""A run as a folder that Hugging Face's libraries read."""

from crossling.export.folder import export

__all__ = ["export"]
