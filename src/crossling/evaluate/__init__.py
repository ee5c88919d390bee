"""Measure any encoder, every layer: sentence retrieval, word alignment, and the page that shows them."""
