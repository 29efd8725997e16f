"""Fair scores for language models: format-following and knowledge as two numbers, by soft-prompt tuning."""

from softbench.api import evaluate, run, tune

__version__ = "0.1.0"
__all__ = ["evaluate", "run", "tune"]
