"""Which option a model's log-likelihoods choose: knowledge with no format at all."""

from collections.abc import Callable, Sequence

from softbench.types import ChoiceNorm, ChoiceScore

_LENGTH: dict[ChoiceNorm, Callable[[ChoiceScore, str], int]] = {
    "raw": lambda score, text: 1,
    "per_char": lambda score, text: len(text),
    "per_byte": lambda score, text: len(text.encode()),
    "per_token": lambda score, text: score.num_tokens,
}


def choices_correct(
    scores: Sequence[ChoiceScore], continuations: Sequence[str], gold: int | None
) -> dict[ChoiceNorm, bool]:
    """Whether the option with the best log-likelihood is the right one, under each norm; empty without choices."""
    if not scores or gold is None:
        return {}
    return {norm: chosen_option(scores, continuations, norm) == gold for norm in _LENGTH}


def chosen_option(scores: Sequence[ChoiceScore], continuations: Sequence[str], norm: ChoiceNorm) -> int:
    """Index of the best option by log-likelihood over the length that `norm` names; the first of equals.

    Lengths leave out the space before a continuation, as lm-evaluation-harness's `acc_norm` and `acc_bytes` do.
    """
    length = _LENGTH[norm]
    normed = [
        score.logprob / max(1, length(score, text.removeprefix(" ")))
        for score, text in zip(scores, continuations, strict=True)
    ]
    return normed.index(max(normed))
