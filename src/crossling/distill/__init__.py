"""Distillation of any sentence encoder into a small student for the languages of the user."""
