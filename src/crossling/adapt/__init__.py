"""Adapt an encoder to new languages: from files as people have them to a better model, with scores before and after."""

from crossling.adapt.adapt import adapt as adapt
