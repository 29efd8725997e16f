"""Numbers from records, each a pure function: see estimate."""

from softbench.stats.estimate import format_gap, groups_of, knowledge_bounds, macro_average, metrics_of

__all__ = ["format_gap", "groups_of", "knowledge_bounds", "macro_average", "metrics_of"]
