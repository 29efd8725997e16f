"""The engine on Hugging Face transformers: greedy decoding with its own loop, and log-likelihoods of continuations.

The loop is our own because `generate(inputs_embeds=...)` leaves some architectures out, and because PEFT's path through
it gives wrong tokens after the first (peft issue 1391).
"""

import functools
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from softbench.errors import ModelError, SoftPromptError
from softbench.models import LoadedModel
from softbench.rows import check_length, encode_contexts, encode_pairs, lay_out, logits_at, target_places
from softbench.types import ChoiceScore, Completion, FinishReason, ModelInfo, Prompt, SoftPrompt

# How many of the prompt's last tokens are decoded with a completion: enough for any tokenizer's spacing rules.
_TAIL = 4


class TransformersEngine:
    """An Engine around a LoadedModel; `batch_size` rows go through the model together, longest rows first."""

    def __init__(self, model: LoadedModel, batch_size: int) -> None:
        self._model = model
        self._batch_size = batch_size
        self._tokens_read = 0

    @property
    def info(self) -> ModelInfo:
        """What identifies the model."""
        return self._model.info

    @property
    def tokens_read(self) -> int:
        """Tokens that went through the model so far, padding left out."""
        return self._tokens_read

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None, max_new_tokens: int, stop: Sequence[str]
    ) -> list[Completion]:
        """Complete each prompt greedily; see Engine.generate."""
        vectors = self._vectors(soft_prompt)
        contexts = encode_contexts(self._model, [prompt.text for prompt in prompts])
        for prompt, context in zip(prompts, contexts, strict=True):
            check_length(self._model, prompt.sample_id, len(context), _rows(vectors), max_new_tokens)
        completions: list[Completion | None] = [None] * len(prompts)
        for indices in self._batches([len(context) for context in contexts]):
            batch = self._decode([contexts[index] for index in indices], vectors, max_new_tokens, stop)
            for index, completion in zip(indices, batch, strict=True):
                completions[index] = completion
        return [completion for completion in completions if completion is not None]

    @torch.inference_mode()
    def score_choices(self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None) -> list[tuple[ChoiceScore, ...]]:
        """Log-likelihoods of every prompt's continuations; see Engine.score_choices."""
        vectors = self._vectors(soft_prompt)
        wanted = [(prompt, continuation) for prompt in prompts for continuation in prompt.continuations]
        pairs = encode_pairs(self._model, [(prompt.text, continuation) for prompt, continuation in wanted])
        for (prompt, _), (context, continuation) in zip(wanted, pairs, strict=True):
            check_length(self._model, prompt.sample_id, len(context) + len(continuation), _rows(vectors), 0)
        scores: list[ChoiceScore] = [ChoiceScore(0.0, 0, True)] * len(pairs)
        for indices in self._batches([len(context) + len(continuation) for context, continuation in pairs]):
            for index, score in zip(indices, self._score([pairs[index] for index in indices], vectors), strict=True):
                if not math.isfinite(score.logprob):
                    sample = wanted[index][0].sample_id
                    raise ModelError(
                        f"{self.info.name}: log-likelihood {score.logprob} on sample {sample!r}; try --dtype float32"
                    )
                scores[index] = score
        remaining = iter(scores)
        return [tuple(next(remaining) for _ in prompt.continuations) for prompt in prompts]

    def _decode(
        self, contexts: Sequence[list[int]], vectors: Tensor | None, max_new_tokens: int, stop: Sequence[str]
    ) -> list[Completion]:
        """Decode one batch with a key-value cache; a row that has ended goes on, unread, until the last one ends."""
        model = self._model
        batch = lay_out(model, contexts, vectors, padding="left")
        mask, positions = batch.mask, batch.position_ids
        every_row = torch.arange(len(contexts), device=mask.device)
        inputs = {"inputs_embeds": batch.embeds}
        tails = [context[-_TAIL:] for context in contexts]
        made: list[list[int]] = [[] for _ in contexts]
        ended: list[tuple[str, FinishReason] | None] = [None] * len(contexts)
        self._tokens_read += int(mask.sum())
        for _ in range(max_new_tokens):
            last = torch.full_like(every_row, positions.shape[1] - 1)
            logits, output = logits_at(
                model,
                every_row,
                last,
                attention_mask=mask,
                position_ids=positions,
                use_cache=True,
                **inputs,
            )
            tokens = logits.argmax(dim=-1)  # (batch,)
            for row, token in enumerate(tokens.tolist()):
                if ended[row] is None:
                    made[row].append(token)
                    ended[row] = self._end(tails[row], made[row], stop)
            if all(ended):
                break
            self._tokens_read += ended.count(None)
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            positions = positions[:, -1:] + 1
            inputs = {"input_ids": tokens[:, None], model.cache_argument: output[model.cache_argument]}
        return [
            Completion(
                *(ended[row] or (self._text(tails[row], made[row]), "length")),
                num_prompt_tokens=len(contexts[row]),
                num_tokens=len(made[row]),
            )
            for row in range(len(contexts))
        ]

    def _end(self, tail: list[int], made: list[int], stop: Sequence[str]) -> tuple[str, FinishReason] | None:
        """The text and why it ended, if the last token of `made` ended it."""
        if made[-1] in self._model.eos_ids:
            return self._text(tail, made[:-1]), "eos"
        if not stop:
            return None
        text = self._text(tail, made)
        found = [place for place in (text.find(one) for one in stop) if place >= 0]
        return (text[: min(found)], "stop") if found else None

    def _text(self, tail: list[int], made: list[int]) -> str:
        """The text that `made` adds after `tail`: decoded alone, some tokenizers would drop its first space.

        Special tokens are no text, as other tools have it too.
        """
        decode = functools.partial(
            self._model.tokenizer.decode, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        before: str = decode(tail)
        whole: str = decode(tail + made)
        return whole[len(before) :]

    def _score(self, pairs: Sequence[tuple[list[int], list[int]]], vectors: Tensor | None) -> list[ChoiceScore]:
        batch = lay_out(self._model, [context + rest for context, rest in pairs], vectors, padding="right")
        self._tokens_read += int(batch.mask.sum())
        spans = [(len(context), len(context) + len(rest)) for context, rest in pairs]
        wanted = torch.tensor([token for _, rest in pairs for token in rest], device=self._model.device)
        if not len(wanted):
            return [ChoiceScore(0.0, 0, True)] * len(pairs)
        rows, columns = target_places(batch, spans)
        logits, _ = logits_at(self._model, rows, columns, inputs_embeds=batch.embeds, use_cache=False)
        logprobs = logits.gather(1, wanted[:, None])[:, 0] - logits.logsumexp(dim=-1)  # (tokens of all rows,)
        greedy = logits.argmax(dim=-1) == wanted
        parts = [len(rest) for _, rest in pairs]
        return [
            ChoiceScore(float(part.double().sum()), len(part), bool(hit.all()))
            for part, hit in zip(logprobs.split(parts), greedy.split(parts), strict=True)
        ]

    def _vectors(self, soft_prompt: SoftPrompt | None) -> Tensor | None:
        if soft_prompt is None:
            return None
        if soft_prompt.vectors.ndim != 2 or soft_prompt.vectors.shape[1] != self.info.hidden_size:
            raise SoftPromptError(
                f"a soft prompt of shape {soft_prompt.vectors.shape} came, and {self.info.name} takes "
                f"(num_virtual_tokens, {self.info.hidden_size}); tune one for this model"
            )
        return torch.from_numpy(soft_prompt.vectors).to(self._model.device)

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Indices in batches, longest rows first, so that one that does not fit memory fails at the start."""
        order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
        for start in range(0, len(order), self._batch_size):
            yield order[start : start + self._batch_size]


def _rows(vectors: Tensor | None) -> int:
    return 0 if vectors is None else len(vectors)
