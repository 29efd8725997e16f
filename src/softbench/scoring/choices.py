"""Which option a model's log-likelihoods choose: knowledge with no format at all."""

from collections.abc import Callable, Sequence

from softbench.types import ChoiceNorm, ChoiceScore

_NORMED: dict[ChoiceNorm, Callable[[ChoiceScore, str], float]] = {
    "raw": lambda score, text: score.logprob,
    "per_char": lambda score, text: score.logprob / max(1, len(text)),
    "per_byte": lambda score, text: score.logprob / max(1, len(text.encode())),
    "per_token": lambda score, text: score.logprob / max(1, score.num_tokens),
    "pmi": lambda score, text: score.logprob - (score.premise_logprob or 0.0),
}


def choices_correct(
    scores: Sequence[ChoiceScore], continuations: Sequence[str], gold: int | None
) -> dict[ChoiceNorm, bool]:
    """Whether the option with the best log-likelihood is the right one, under each norm; empty without choices.

    `pmi` is there where each option has been scored behind the premise, too.
    """
    if not scores or gold is None:
        return {}
    has_premise = all(score.premise_logprob is not None for score in scores)
    return {
        norm: chosen_option(scores, continuations, norm) == gold for norm in _NORMED if norm != "pmi" or has_premise
    }


def chosen_option(scores: Sequence[ChoiceScore], continuations: Sequence[str], norm: ChoiceNorm) -> int:
    """Index of the best option by log-likelihood under `norm`; the first of equals.

    Lengths leave out the space before a continuation, as lm-evaluation-harness's `acc_norm` and `acc_bytes` do; `pmi`
    is the pointwise mutual information with the question (Holtzman et al. 2021, arXiv 2104.08315).
    """
    value = _NORMED[norm]
    normed = [value(score, text.removeprefix(" ")) for score, text in zip(scores, continuations, strict=True)]
    return normed.index(max(normed))
