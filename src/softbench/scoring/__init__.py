"""From what a model said to a verdict: see parse (completions) and choices (log-likelihoods)."""
