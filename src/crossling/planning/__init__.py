"""Plan a pre-training run without training: sampling, size, memory, time, and the best choice for a budget."""

from crossling.planning.run_plan import plan

__all__ = ["plan"]
