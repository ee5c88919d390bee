"""Which corpora to look at first: what a run found hard, or too easy, of all that it was trained on."""

from crossling.audit.ranking import audit

__all__ = ["audit"]
