"""What a fine-tuned model is: how it reads examples, what it predicts, and the folder it lives in."""
