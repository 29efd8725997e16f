"""Numbers from records, each a pure function: see estimate."""

from softbench.stats.estimate import format_gap, knowledge_bounds, metrics_of

__all__ = ["format_gap", "knowledge_bounds", "metrics_of"]
