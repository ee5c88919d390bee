"""Fine-tuning of sentence vectors on pairs, triplets or scored pairs of the user."""
