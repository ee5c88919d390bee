"""Translation: parallel text, and models that translate, as folders that Hugging Face's libraries read."""
