"""What a model knows, without any answer format: which value of an attribute it finds likeliest behind a statement.

The statement is the first wording of pre-training, which every recipe has, up to the value. A fact is known where the
right value has the highest log-likelihood among all values of the attribute; guessing knows one in NUM_VALUES. The
margin (nats) is by how much the right value is ahead of the best other one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from softbench.models import LoadedModel
from studies.laboratory.tasks import Fact
from studies.laboratory.world import NUM_VALUES

FACTS_AT_ONCE = 32


@dataclass(frozen=True)
class Known:
    """Whether a model knows a fact, and by what margin."""

    fact: Fact
    right: bool
    margin: float


def knowledge(loaded: LoadedModel, facts: Sequence[Fact]) -> list[Known]:
    """What the model knows of each fact."""
    known = []
    for start in range(0, len(facts), FACTS_AT_ONCE):
        some = facts[start : start + FACTS_AT_ONCE]
        for fact, scores in zip(some, _log_likelihoods(loaded, some), strict=True):
            place = fact.attribute.values.index(fact.answer)
            margin = scores[place] - max(score for other, score in enumerate(scores) if other != place)
            known.append(Known(fact, margin > 0, margin))
    return known


@torch.inference_mode()
def _log_likelihoods(loaded: LoadedModel, facts: Sequence[Fact]) -> list[list[float]]:
    """The log-likelihood (nats) of each value of each fact's attribute, and of the full stop behind it."""
    start = [] if loaded.bos_id is None else [loaded.bos_id]
    rows: list[tuple[list[int], list[int]]] = []
    for fact in facts:
        before, after = fact.attribute.statements[0].split("{value}")
        opening = start + _encode(loaded, " " + before.format(name=fact.person.name).rstrip())
        rows += [(opening, _encode(loaded, f" {value}{after}")) for value in fact.attribute.values]
    width = max(len(opening) + len(value) for opening, value in rows)
    ids = torch.full((len(rows), width), loaded.eos_ids[0])
    counted = torch.zeros((len(rows), width), dtype=torch.bool)
    for place, (opening, value) in enumerate(rows):
        ids[place, : len(opening) + len(value)] = torch.tensor(opening + value)
        counted[place, len(opening) : len(opening) + len(value)] = True
    # What stands behind a row's end can't change what comes before it: padding needs no mask.
    logprobs = loaded.model(input_ids=ids[:, :-1]).logits.float().log_softmax(-1)
    of_tokens = logprobs.gather(-1, ids[:, 1:, None])[..., 0]
    scores: list[float] = (of_tokens * counted[:, 1:]).sum(-1).tolist()
    return [scores[first : first + NUM_VALUES] for first in range(0, len(scores), NUM_VALUES)]


def _encode(loaded: LoadedModel, text: str) -> list[int]:
    ids: list[int] = loaded.tokenizer(text, add_special_tokens=False).input_ids
    return ids
