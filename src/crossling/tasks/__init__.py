"""Benchmark tasks: data sets and their readers, examples, metrics, score rows and stored predictions."""
