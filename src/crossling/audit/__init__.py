"""Rank the corpora of a run by how hard they were to learn."""

from crossling.audit.ranking import audit

__all__ = ["audit"]
