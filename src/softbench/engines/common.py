"""What engines on real models do alike: where options part, what generated tokens say and end, what is refused."""

import functools
import math
from collections.abc import Sequence, Sized
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from softbench.errors import ModelError, SoftPromptError
from softbench.models import LoadedModel
from softbench.rows import check_length, encode_pairs
from softbench.types import ChoiceScores, FinishReason, Prompt, SoftPrompt

# How many of the prompt's last tokens are decoded with a completion: enough for any tokenizer's spacing rules.
TAIL = 4


@dataclass(frozen=True, slots=True)
class Tree:
    """A prompt with its continuations: the tokens that all of them begin with, then each one's own, at least one.

    `begins` are the places (from the trunk's first token) from which a continuation's tokens are scored. Counted by a
    row's columns, the trunk comes first, then the branches without their last tokens, which nothing follows.
    """

    trunk: list[int]
    branches: list[list[int]]
    begins: list[int]

    @property
    def read_branches(self) -> list[list[int]]:
        """What a model reads of the branches: all but their last tokens."""
        return [branch[:-1] for branch in self.branches]

    @property
    def width(self) -> int:
        """Tokens of its row."""
        return len(self.trunk) + sum(len(branch) - 1 for branch in self.branches)

    @property
    def num_scored(self) -> int:
        """Places whose logits are looked at, at most."""
        return sum(
            len(self.trunk) - begin + len(branch) for branch, begin in zip(self.branches, self.begins, strict=True)
        )

    def column(self, option: int, place: int) -> int:
        """The column of the token at `place` of an option's path."""
        inside = place - len(self.trunk)
        if inside < 0:
            return place
        return len(self.trunk) + sum(len(branch) - 1 for branch in self.branches[:option]) + inside

    def without(self, count: int) -> "Tree":
        """The tree without its first `count` tokens."""
        return Tree(self.trunk[count:], self.branches, [begin - count for begin in self.begins])


def trees_of(model: LoadedModel, prompts: Sequence[Prompt], num_virtual: int, num_new: int = 0) -> list[Tree]:
    """Each prompt's continuations as paths that part where their tokens do.

    Raises PromptTooLong where one does not fit with soft prompt and `num_new` tokens behind it.
    """
    wanted = [(prompt.text, continuation) for prompt in prompts for continuation in prompt.continuations]
    pairs = iter(encode_pairs(model, wanted))
    trees = []
    for prompt in prompts:
        parted = [next(pairs) for _ in prompt.continuations]
        paths = [context + rest for context, rest in parted]
        check_length(model, prompt.sample_id, max(map(len, paths)), num_virtual, num_new)
        shortest = min(map(len, paths))
        same = next((place for place in range(shortest) if len({path[place] for path in paths}) > 1), shortest)
        same = min(same, shortest - 1)
        trees.append(Tree(paths[0][:same], [path[same:] for path in paths], [len(context) for context, _ in parted]))
    return trees


def ending(
    model: LoadedModel, tail: list[int], made: list[int], stop: Sequence[str]
) -> tuple[str, FinishReason] | None:
    """The text and why it ended, if the last token of `made` ended it; `tail` are the last tokens before it."""
    if made[-1] in model.eos_ids:
        return added_text(model, tail, made[:-1]), "eos"
    if not stop:
        return None
    # A stop string that the last token completes lies within as many tokens as it has characters (bytes, at worst).
    reach = 4 * max(map(len, stop))
    recent = made[-reach:]
    if not any(
        one in added_text(model, tail if len(recent) == len(made) else made[:-reach][-TAIL:], recent) for one in stop
    ):
        return None
    text = added_text(model, tail, made)
    found = [place for place in (text.find(one) for one in stop) if place >= 0]
    return (text[: min(found)], "stop") if found else None


def added_text(model: LoadedModel, tail: list[int], made: list[int]) -> str:
    """The text that `made` adds after `tail`: decoded alone, some tokenizers would drop its first space.

    Special tokens are no text, as other tools have it too.
    """
    decode = functools.partial(model.tokenizer.decode, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    before: str = decode(tail)
    whole: str = decode(tail + made)
    return whole[len(before) :]


def checked_scores(model: LoadedModel, scores: ChoiceScores, prompt: Prompt) -> ChoiceScores:
    """`scores` as they are. Raises ModelError where one is no number."""
    for score in scores.options:
        if not math.isfinite(score.logprob):
            raise ModelError(
                f"{model.info.name}: log-likelihood {score.logprob} on sample {prompt.sample_id!r}; try --dtype float32"
            )
    return scores


def height(vectors: Sized | None) -> int:
    """How many vectors the soft prompt has; 0 without one."""
    return 0 if vectors is None else len(vectors)


def vectors_of(model: LoadedModel, soft_prompt: SoftPrompt) -> NDArray[np.float32]:
    """The soft prompt's vectors (num_virtual_tokens, hidden). Raises SoftPromptError where they don't fit the model."""
    if soft_prompt.vectors.ndim != 2 or soft_prompt.vectors.shape[1] != model.info.hidden_size:
        raise SoftPromptError(
            f"a soft prompt of shape {soft_prompt.vectors.shape} came, and {model.info.name} takes "
            f"(num_virtual_tokens, {model.info.hidden_size}); tune one for this model"
        )
    return soft_prompt.vectors
