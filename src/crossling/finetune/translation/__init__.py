"""Translators, trained on the same engine: a model and parallel text become an MT folder."""
