"""Fine-tuning on the pre-trainer's engine: an encoder and a task become a TUNED folder."""
