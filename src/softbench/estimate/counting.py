"""An engine and tuners that count what real ones would read and write, and compute nothing.

Behind the pipeline's own plan, methods and prompts they make an estimate of a run: what prompts begin with is read
once, a question's options are branches of one row, as the transformers engine has it.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from softbench.types import (
    Adapter,
    ChatTemplate,
    ChoiceScore,
    ChoiceScores,
    Completion,
    Keeper,
    LoraSettings,
    ModelInfo,
    OnStep,
    Prompt,
    SoftPrompt,
    TuneRequest,
    TuneResult,
)

Tokens = Sequence[Hashable]
CHARACTERS = 4
"""Characters of English that a token stands for, where no tokenizer is at hand."""
# How many tokens at the end of what prompts share may be merged with what follows.
_BOUNDARY = 2
_SCORE = -12.345678901234567  # as long in a record as a real one


@dataclass(frozen=True, slots=True)
class Reader:
    """How a model cuts texts into tokens: `num_start` of them before each text (BOS), `chat` its template, if asked.

    `exact` is false where no tokenizer is at hand. Readers of equal `name` count alike.
    """

    name: str
    encode: Callable[[Sequence[str]], Sequence[Tokens]]
    num_start: int
    chat: ChatTemplate | None
    exact: bool


def by_characters(texts: Sequence[str]) -> list[Tokens]:
    """Each text in pieces of CHARACTERS."""
    return [[text[start : start + CHARACTERS] for start in range(0, len(text), CHARACTERS)] for text in texts]


class CountingEngine:
    """An Engine whose answers are the targets.

    Each prompt stands for `weight` of them. `read` are tokens that pass through the model as prompts, `written` those
    of completions at their longest, `looked_at` the places whose logits are wanted, `longest` the tokens of the longest
    row.
    """

    def __init__(self, reader: Reader, info: ModelInfo, weight: float) -> None:
        self.read = 0.0
        self.written = 0.0
        self.looked_at = 0.0
        self.longest = 0
        self._reader = reader
        self._info = info
        self._weight = weight
        self._lengths: dict[str, int] = {}
        self._prefixes: set[tuple[Tokens, int]] = set()

    @property
    def info(self) -> ModelInfo:
        """What identifies the model."""
        return self._info

    @property
    def tokens_read(self) -> int:
        """Tokens that would have gone through the model so far."""
        return round(self.read + self.written)

    @property
    def prompt_tokens(self) -> float:
        """Tokens of all prompts, each by itself and whole, without BOS and soft prompt."""
        return self._weight * sum(self._lengths.values())

    def generate(
        self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None, max_new_tokens: int, stop: Sequence[str]
    ) -> list[Completion]:
        """Count each prompt and a completion of `max_new_tokens`."""
        completions = []
        contexts = self._reader.encode([prompt.text for prompt in prompts])
        shared = self._shared(prompts, contexts, [len(context) - 1 for context in contexts], soft_prompt)
        for prompt, context, num_shared in zip(prompts, contexts, shared, strict=True):
            self._note(prompt, len(context), len(context) + max_new_tokens, soft_prompt)
            self.read += self._weight * (len(context) - num_shared)
            self.written += self._weight * max_new_tokens
            self.looked_at += self._weight * max_new_tokens
            completions.append(Completion(prompt.target, "stop", len(context), max_new_tokens))
        return completions

    def score_choices(self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None) -> list[ChoiceScores]:
        """Count each prompt with its continuations as a tree whose branches part where their tokens do."""
        asked = [prompt for prompt in prompts if prompt.continuations]
        contexts = self._reader.encode([prompt.text for prompt in asked])
        wholes = iter(self._reader.encode([prompt.text + one for prompt in asked for one in prompt.continuations]))
        trunks, widths, most = [], [], []
        for prompt, context in zip(asked, contexts, strict=True):
            paths = [next(wholes) for _ in prompt.continuations]
            begins = [num_same(context, path) for path in paths]
            shortest = min(map(len, paths))
            same = min(shortest - 1, *(num_same(paths[0], path) for path in paths))
            trunks.append(paths[0][:same])
            widths.append(same + sum(len(path) - same - 1 for path in paths))
            most.append(min(same, *begins) - 1)
            self._note(prompt, len(context), max(map(len, paths)), soft_prompt)
            self.looked_at += self._weight * sum(len(path) - begin for path, begin in zip(paths, begins, strict=True))
        shared = self._shared(asked, trunks, most, soft_prompt)
        self.read += self._weight * (sum(widths) - sum(shared))
        return [
            ChoiceScores(tuple(ChoiceScore(_SCORE, 1, False) for _ in prompt.continuations), -_SCORE / 100, " The")
            for prompt in prompts
        ]

    def _note(self, prompt: Prompt, length: int, longest: int, soft_prompt: SoftPrompt | None) -> None:
        self._lengths[prompt.sample_id] = length
        self.longest = max(self.longest, longest + self._reader.num_start + _height(soft_prompt))

    def _shared(
        self,
        prompts: Sequence[Prompt],
        contexts: Sequence[Tokens],
        most: Sequence[int],
        soft_prompt: SoftPrompt | None,
    ) -> list[int]:
        """How many tokens of each context come from a prefix, `most` at most; each prefix counts once as read."""
        texts = list(dict.fromkeys(prompt.text[: prompt.num_shared] for prompt in prompts))
        encoded = dict(zip(texts, self._reader.encode(texts), strict=True))
        found = []
        for prompt, context, limit in zip(prompts, contexts, most, strict=True):
            beginning = encoded[prompt.text[: prompt.num_shared]][:-_BOUNDARY]
            num_shared = max(0, min(num_same(beginning, context), limit))
            prefix = (tuple(beginning[:num_shared]), _height(soft_prompt))
            if prefix not in self._prefixes:
                self._prefixes.add(prefix)
                self.read += num_shared + self._reader.num_start + _height(soft_prompt)
            found.append(num_shared)
        return found


class CountingTuner:
    """A Tuner, and by `adapt` an AdapterTuner: `num_tokens` of examples, and places that are `learned`.

    A step's samples are taken to be of the mean length, which over whole passes of the tuning split they are.
    `longest` are the tokens of the longest example, soft prompt and BOS included.
    """

    def __init__(self, reader: Reader) -> None:
        self.num_tokens = 0.0
        self.learned = 0.0
        self.longest = 0
        self._reader = reader

    def __call__(
        self, requests: Sequence[TuneRequest], on_step: OnStep, keeper: Keeper | None = None
    ) -> list[TuneResult]:
        """Count all steps of each request; its vectors are noughts, of hidden size 1."""
        return [self._tuned(request) for request in requests]

    def adapt(
        self,
        prompts: Sequence[Prompt],
        settings: LoraSettings,
        seed: int,
        on_step: OnStep,
        keeper: Keeper | None = None,
    ) -> Adapter:
        """Count all steps; the adapter is empty."""
        num_samples = settings.steps * settings.batch_size
        return Adapter({}, settings, (), self._count(prompts, num_samples, 0), 0.0)

    def _tuned(self, request: TuneRequest) -> TuneResult:
        settings = request.settings
        num_samples = settings.steps * settings.batch_size
        num_tokens = self._count(request.prompts, num_samples, settings.num_virtual_tokens)
        vectors = np.zeros((settings.num_virtual_tokens, 1), np.float32)
        return TuneResult(SoftPrompt(vectors, {}), (0.0,) * settings.steps, num_samples, num_tokens, 0.0)

    def _count(self, prompts: Sequence[Prompt], num_samples: int, height: int) -> int:
        contexts = self._reader.encode([prompt.text for prompt in prompts])
        wholes = self._reader.encode([prompt.text + prompt.target for prompt in prompts])
        # The end token closes each example, and is learned.
        lengths = [len(whole) + 1 for whole in wholes]
        targets = [
            length - num_same(context, whole) for context, whole, length in zip(contexts, wholes, lengths, strict=True)
        ]
        num_tokens = num_samples * sum(lengths) / len(lengths)
        self.num_tokens += num_tokens
        self.learned += num_samples * sum(targets) / len(targets)
        self.longest = max(self.longest, *(length + height + self._reader.num_start for length in lengths))
        return round(num_tokens)


def num_same(one: Tokens, other: Tokens) -> int:
    """How many tokens both begin with."""
    shorter = min(len(one), len(other))
    return next((place for place in range(shorter) if one[place] != other[place]), shorter)


def _height(soft_prompt: SoftPrompt | None) -> int:
    return 0 if soft_prompt is None else len(soft_prompt.vectors)
