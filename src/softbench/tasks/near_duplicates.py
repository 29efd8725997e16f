"""Counts questions that resemble one another: leaks that a hash of the whole text does not see."""

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from softbench.types import Sample

if TYPE_CHECKING:
    from scipy import sparse

THRESHOLD = 0.8
WORDS = 3
ROWS_AT_ONCE = 512


def count_near_duplicates(test: Sequence[Sample], tune: Sequence[Sample], threshold: float = THRESHOLD) -> int:
    """How many of `test` share at least `threshold` of their runs of three words with some sample of `tune` (Jaccard).

    Question and options count, the options in any order. Exact: each pair is compared, through a sparse product,
    a few hundred test samples at a time.
    """
    vocabulary: dict[str, int] = {}
    columns = [[vocabulary.setdefault(run, len(vocabulary)) for run in runs_of_words(sample)] for sample in tune]
    transposed = _indicator(columns, len(vocabulary)).T.tocsr()
    sizes_tune = np.array([len(row) for row in columns])
    found = 0
    for start in range(0, len(test), ROWS_AT_ONCE):
        runs = [runs_of_words(sample) for sample in test[start : start + ROWS_AT_ONCE]]
        # Runs that no tuning sample has can't be shared; they count in a sample's size alone.
        known = [[vocabulary[run] for run in row if run in vocabulary] for row in runs]
        shared = (_indicator(known, len(vocabulary)) @ transposed).tocoo()
        union = np.array([len(row) for row in runs])[shared.row] + sizes_tune[shared.col] - shared.data
        found += len(np.unique(shared.row[shared.data >= threshold * union]))
    return found


def _indicator(columns: Sequence[Sequence[int]], width: int) -> "sparse.csr_matrix":
    """Which run of words is in which sample: 0 or 1, of shape (samples, runs)."""
    from scipy import sparse  # costs half a second: only those who load data pay it

    indices = np.array([column for row in columns for column in row], dtype=np.int64)
    ends = np.cumsum([0, *(len(row) for row in columns)])
    return sparse.csr_matrix(
        (np.ones(len(indices), dtype=np.int32), indices, ends), shape=(len(columns), max(1, width))
    )


def runs_of_words(sample: Sample) -> list[str]:
    """The distinct runs of three words of a sample's fields and of each option; a shorter text is one run."""
    runs: dict[str, None] = {}
    for text in (*sample.fields.values(), *sample.choices):
        plain = unicodedata.normalize("NFKC", str(text)).casefold()
        words = "".join(char if char.isalnum() else " " for char in plain).split()
        for start in range(max(1, len(words) - WORDS + 1)):
            runs[" ".join(words[start : start + WORDS])] = None
    return list(runs)
