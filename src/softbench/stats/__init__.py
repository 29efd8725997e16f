"""Numbers from records, each a pure function: metrics (estimate), comparisons, agreement of rankings, training runs."""

from softbench.stats.bootstrap import bootstrap
from softbench.stats.compare import Comparison, compare, holm, mcnemar, samples_needed
from softbench.stats.estimate import (
    METRICS,
    accuracy,
    accuracy_given_format,
    answer_mass,
    chance,
    chance_corrected,
    choice_accuracy,
    clustered_stderrs,
    f1,
    format_following,
    format_gap,
    groups_of,
    knowledge_bounds,
    lenient_accuracy,
    letter_shares,
    macro_average,
    metrics_of,
    top_token_accuracy,
)
from softbench.stats.rank import AGREEMENTS, agreement_difference, agreement_of
from softbench.stats.track import Track, track
from softbench.stats.variance import Spread, clustered_stderr, spread_over_seeds

__all__ = [
    "AGREEMENTS",
    "METRICS",
    "Comparison",
    "Spread",
    "Track",
    "accuracy",
    "accuracy_given_format",
    "agreement_difference",
    "agreement_of",
    "answer_mass",
    "bootstrap",
    "chance",
    "chance_corrected",
    "choice_accuracy",
    "clustered_stderr",
    "clustered_stderrs",
    "compare",
    "f1",
    "format_following",
    "format_gap",
    "groups_of",
    "holm",
    "knowledge_bounds",
    "lenient_accuracy",
    "letter_shares",
    "macro_average",
    "mcnemar",
    "metrics_of",
    "samples_needed",
    "spread_over_seeds",
    "top_token_accuracy",
    "track",
]
