"""Fair scores for language models: format-following and knowledge as two numbers, by soft-prompt tuning."""

__version__ = "0.1.0"
