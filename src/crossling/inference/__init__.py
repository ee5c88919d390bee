"""Use an encoder: encode sentences, align words, mine bitext, in memory and on files."""
