"""Score encoders and fine-tuned models: retrieval, bitext mining, word alignment, significance, training probes."""
