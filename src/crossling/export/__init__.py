"""Export of runs as folders for Hugging Face transformers and Sentence Transformers."""

from crossling.export.export_folder import export

__all__ = ["export"]
