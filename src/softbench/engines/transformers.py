"""The engine on Hugging Face transformers: greedy decoding with its own loop, and log-likelihoods of continuations.

What prompts begin with is read once (see sharing), a question's options are branches of one row, and rows that have
ended make room for new ones. The decode loop is our own because `generate(inputs_embeds=...)` leaves some architectures
out, and because PEFT's path through it gives wrong tokens after the first (peft issue 1391).
"""

import functools
import hashlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor

from softbench.engines.common import TAIL, Tree, added_text, checked_scores, ending, height, trees_of, vectors_of
from softbench.errors import ModelError
from softbench.memory import is_out_of_memory, total_memory
from softbench.models import LoadedModel
from softbench.rows import (
    NO_NUMBER,
    check_length,
    encode,
    encode_contexts,
    lay_out,
    likeliest_tokens,
    logits_at,
    totals_and_likeliest,
)
from softbench.sharing import Prefix, RowCache, can_share, nodes_of, read_prefix
from softbench.types import ChoiceScore, ChoiceScores, Completion, FinishReason, ModelInfo, Prompt, SoftPrompt

# How many tokens at the end of what prompts share may be merged with what follows.
_BOUNDARY = 2
# What one pass may hold: tokens of all its rows, and logits of all places that are looked at (256 of 262k tokens).
_MAX_TOKENS = 16_384
_MAX_LOGITS = 1 << 26
_PREFIXES_KEPT = 2
# Rows at least so long against the longest are read with it; and others, too, up to so many tokens.
_ALIKE, _WORTH_A_PASS = 0.8, 512
# The share of all memory, one in so many, that keys and values of completions may take.
_CACHE_SHARE = 6

LOG = logging.getLogger("softbench")
Item = TypeVar("Item")
Result = TypeVar("Result")
Ids = tuple[int, ...]


@dataclass(slots=True)
class _Row:
    """A completion in the making: of which prompt, its tokens, those made so far, and what ended it."""

    index: int
    sample_id: str
    context: list[int]
    made: list[int] = field(default_factory=list)
    ended: tuple[str, FinishReason] | None = None

    @property
    def tail(self) -> list[int]:
        """The context's last tokens."""
        return self.context[-TAIL:]


class TransformersEngine:
    """An Engine around a LoadedModel; up to `batch_size` rows go through the model together, longest rows first.

    Where memory does not suffice for that, fewer do from then on. `shares=False` has every row read whole, as a model
    that can't share a prefix does.
    """

    def __init__(self, model: LoadedModel, batch_size: int, shares: bool = True) -> None:
        self._model = model
        self._batch_size = batch_size
        self._tokens_read = 0
        self._prefixes: dict[str, Prefix] = {}
        self._without_bos: TransformersEngine | None = None
        self._shares = shares and can_share(model)
        if self._shares:
            LOG.info("%s: what prompts begin with is read once", model.info.name)
        elif shares:
            LOG.warning("%s can't share a prefix between rows: each is read whole, which takes longer", model.info.name)

    @property
    def info(self) -> ModelInfo:
        """What identifies the model."""
        return self._model.info

    @property
    def tokens_read(self) -> int:
        """Tokens that went through the model so far, padding left out."""
        return self._tokens_read + (self._without_bos.tokens_read if self._without_bos else 0)

    def _behind(self, soft_prompt: SoftPrompt | None) -> "TransformersEngine":
        """The engine whose rows begin as the soft prompt wants it: without BOS where its vectors hold that."""
        if soft_prompt is None or not soft_prompt.holds_bos or self._model.bos_id is None:
            return self
        if self._without_bos is None:
            self._without_bos = TransformersEngine(replace(self._model, bos_id=None), self._batch_size)
        return self._without_bos

    @torch.inference_mode()
    def generate(
        self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None, max_new_tokens: int, stop: Sequence[str]
    ) -> list[Completion]:
        """Complete each prompt greedily; see Engine.generate."""
        if (engine := self._behind(soft_prompt)) is not self:
            return engine.generate(prompts, soft_prompt, max_new_tokens, stop)
        vectors = self._vectors(soft_prompt)
        contexts = encode_contexts(self._model, [prompt.text for prompt in prompts])
        for prompt, context in zip(prompts, contexts, strict=True):
            check_length(self._model, prompt.sample_id, len(context), height(vectors), max_new_tokens)
        completions: dict[int, Completion] = {}
        for ids, indices in self._by_prefix(prompts, contexts, [len(context) - 1 for context in contexts]).items():
            indices.sort(key=lambda index: -len(contexts[index]))
            rows = [_Row(index, prompts[index].sample_id, contexts[index]) for index in indices]
            if ids is None:
                self._in_batches(
                    rows,
                    [(len(row.context), 1) for row in rows],
                    functools.partial(self._complete_plain, vectors, max_new_tokens, stop),
                )
            else:
                self._complete(rows, self._prefix(ids, vectors), len(ids), max_new_tokens, stop)
            for row in rows:
                text, reason = row.ended or (added_text(self._model, row.tail, row.made), "length")
                completions[row.index] = Completion(text, reason, len(row.context), len(row.made))
        return [completions[index] for index in range(len(prompts))]

    @torch.inference_mode()
    def score_choices(self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None) -> list[ChoiceScores]:
        """Log-likelihoods of every prompt's continuations; see Engine.score_choices."""
        if (engine := self._behind(soft_prompt)) is not self:
            return engine.score_choices(prompts, soft_prompt)
        vectors = self._vectors(soft_prompt)
        scores = [ChoiceScores()] * len(prompts)
        places = [place for place, prompt in enumerate(prompts) if prompt.continuations]
        asked = [prompts[place] for place in places]
        trees = trees_of(self._model, asked, height(vectors))
        most = [min(len(tree.trunk), *tree.begins) - 1 for tree in trees]
        for ids, indices in self._by_prefix(asked, [tree.trunk for tree in trees], most).items():
            behind = [trees[index] if ids is None else trees[index].without(len(ids)) for index in indices]
            order = sorted(range(len(behind)), key=lambda one: -behind[one].width)
            behind = [behind[one] for one in order]
            score = (
                functools.partial(self._score_plain, vectors)
                if ids is None
                else functools.partial(self._score, self._prefix(ids, vectors))
            )
            found = self._in_batches(behind, [(tree.width, tree.num_scored) for tree in behind], score)
            for one, of_tree in zip(order, found, strict=True):
                index = indices[one]
                scores[places[index]] = checked_scores(self._model, of_tree, asked[index])
        return scores

    def _by_prefix(
        self, prompts: Sequence[Prompt], contexts: Sequence[Sequence[int]], most: Sequence[int]
    ) -> dict[Ids | None, list[int]]:
        """Prompts by the first tokens that they share, `most` of each at most; None where rows are read whole."""
        texts = dict.fromkeys(prompt.text[: prompt.num_shared] for prompt in prompts)
        # The last tokens of a beginning depend on what comes next: without them, all prompts have the same.
        encoded = {text: ids[:-_BOUNDARY] for text, ids in zip(texts, encode(self._model, list(texts)), strict=True)}
        groups: dict[Ids | None, list[int]] = {}
        for index, (prompt, context, limit) in enumerate(zip(prompts, contexts, most, strict=True)):
            ids, same = encoded[prompt.text[: prompt.num_shared]], 0
            while same < min(len(ids), limit) and ids[same] == context[same]:
                same += 1
            groups.setdefault(tuple(ids[:same]) if self._shares and limit >= 0 else None, []).append(index)
        return groups

    def _prefix(self, ids: Ids, vectors: Tensor | None) -> Prefix:
        """Keys and values of BOS, soft prompt and `ids`; read anew only if they are not among the last ones."""
        name = hashlib.sha256(repr(ids).encode())
        if vectors is not None:
            name.update(vectors.cpu().numpy().tobytes())
        prefix = self._prefixes.pop(name.hexdigest(), None)
        if prefix is None:
            prefix = read_prefix(self._model, ids, vectors)
            self._tokens_read += prefix.length
        self._prefixes[name.hexdigest()] = prefix
        for old in list(self._prefixes)[:-_PREFIXES_KEPT]:
            del self._prefixes[old]
        return prefix

    def _complete(
        self, rows: Sequence[_Row], prefix: Prefix, num_shared: int, max_new_tokens: int, stop: Sequence[str]
    ) -> None:
        """Complete all rows, a batch of them at a time; rows that have ended leave, and others come in."""
        slots = prefix.length + max(len(row.context) for row in rows) - num_shared + max_new_tokens
        waiting, live = list(rows), list[_Row]()
        most = self._most_rows(slots)
        cache: RowCache | None = None
        joined: RowCache | None = None
        tokens = torch.zeros(0, dtype=torch.long, device=self._model.device)
        while waiting or live:
            try:
                if waiting and len(live) <= most * 3 // 4:
                    widths = [len(row.context) - num_shared for row in waiting[: most - len(live)]]
                    new = waiting[: _together(widths, _MAX_TOKENS)]
                    if cache is None:
                        cache = RowCache(self._model, prefix, min(most, len(waiting)), slots)
                    joined = RowCache(self._model, prefix, len(new), prefix.length + max(widths))
                    first = self._first_tokens(joined, new, num_shared)
                    cache.join(joined)
                    del waiting[: len(new)]
                    live += new
                    tokens = torch.cat([tokens, first])
                    self._note(new, first, stop)
                else:
                    assert cache is not None  # whoever lives has come in
                    tokens = likeliest_tokens(cache.step(tokens))
                    self._tokens_read += len(live)
                    self._note(live, tokens, stop)
            except (RuntimeError, MemoryError) as error:
                self._shrink(error, most)
                most = self._batch_size
                for row in live:
                    row.made.clear()
                    row.ended = None
                waiting, live, cache, joined, tokens = [*live, *waiting], [], None, None, tokens[:0]
                continue
            going = [place for place, row in enumerate(live) if row.ended is None and len(row.made) < max_new_tokens]
            if len(going) < len(live):
                # The last rows move to where rows have ended, and the others stay.
                last = iter(place for place in reversed(going) if place >= len(going))
                kept = [place if place in going else next(last) for place in range(len(going))]
                live = [live[place] for place in kept]
                tokens = tokens[torch.tensor(kept, dtype=torch.long, device=tokens.device)]
                if cache is not None:
                    cache.keep(kept)
            if not live:
                cache = None

    def _most_rows(self, slots: int) -> int:
        """How many rows of `slots` tokens may be completed together: their keys and values must leave room for more."""
        text = self._model.model.config.get_text_config()
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        a_row: int = 2 * text.num_hidden_layers * heads * width * self._model.model.dtype.itemsize * slots
        return max(1, min(self._batch_size, total_memory(self._model.device) // _CACHE_SHARE // a_row))

    def _first_tokens(self, cache: RowCache, rows: Sequence[_Row], num_shared: int) -> Tensor:
        """Read what the rows do not share; the likeliest token behind each."""
        texts = [row.context[num_shared:] for row in rows]
        nodes = nodes_of(self._model, [(text, ()) for text in texts], cache.prefix_length)
        self._tokens_read += sum(map(len, texts))
        every = torch.arange(len(rows), device=self._model.device)
        last = torch.tensor([len(text) - 1 for text in texts], device=self._model.device)
        return likeliest_tokens(cache.read(nodes, every, last))

    def _complete_plain(
        self, vectors: Tensor | None, max_new_tokens: int, stop: Sequence[str], rows: Sequence[_Row]
    ) -> list[None]:
        """Complete one batch with the model's own cache and masks, left-padded; ended rows go on, unread."""
        model = self._model
        batch = lay_out(model, [row.context for row in rows], vectors, padding="left")
        mask, positions = batch.mask, batch.position_ids
        every_row = torch.arange(len(rows), device=mask.device)
        inputs = {"inputs_embeds": batch.embeds}
        self._tokens_read += int(mask.sum())
        for row in rows:
            row.made.clear()
        for _ in range(max_new_tokens):
            last = torch.full_like(every_row, positions.shape[1] - 1)
            logits, output = logits_at(
                model, every_row, last, attention_mask=mask, position_ids=positions, use_cache=True, **inputs
            )
            tokens = likeliest_tokens(logits)  # (batch,)
            self._note(rows, tokens, stop)
            going = sum(row.ended is None for row in rows)
            if not going:
                break
            self._tokens_read += going
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], dim=1)
            positions = positions[:, -1:] + 1
            # An ended row may have come to no number, which is no token.
            inputs = {"input_ids": tokens.clamp(min=0)[:, None], model.cache_argument: output[model.cache_argument]}
        return [None] * len(rows)

    def _note(self, rows: Sequence[_Row], tokens: Tensor, stop: Sequence[str]) -> None:
        """Give each row that has not ended its next token, and see whether that ends it."""
        for row, token in zip(rows, tokens.tolist(), strict=True):
            if row.ended is None:
                if token == NO_NUMBER:
                    raise ModelError(
                        f"{self.info.name}: logits that are no numbers (nan or infinite) on sample {row.sample_id!r}; "
                        "try --dtype float32"
                    )
                row.made.append(token)
                row.ended = ending(self._model, row.tail, row.made, stop)

    def _score(self, prefix: Prefix, trees: Sequence[Tree]) -> list[ChoiceScores]:
        """Scores of a batch of trees behind `prefix`, each a row."""
        nodes = nodes_of(self._model, [(tree.trunk, tree.read_branches) for tree in trees], prefix.length)
        self._tokens_read += sum(tree.width for tree in trees)
        cache = RowCache(self._model, prefix, len(trees), prefix.length + nodes.ids.shape[1])
        return self._read_off(
            trees,
            lambda row, option, place: (row, trees[row].column(option, place)),
            functools.partial(cache.read, nodes),
        )

    def _score_plain(self, vectors: Tensor | None, trees: Sequence[Tree]) -> list[ChoiceScores]:
        """Scores of a batch of trees, each continuation a row of its own with all that comes before it."""
        paths = [tree.trunk + branch for tree in trees for branch in tree.branches]
        firsts = [sum(len(tree.branches) for tree in trees[:row]) for row in range(len(trees))]
        batch = lay_out(self._model, paths, vectors, padding="right")
        self._tokens_read += int(batch.mask.sum())
        start = int(batch.starts[0])  # nothing is padded on the left

        def logits(rows: Tensor, columns: Tensor) -> Tensor:
            return logits_at(self._model, rows, columns, inputs_embeds=batch.embeds, use_cache=False)[0]

        return self._read_off(trees, lambda row, option, place: (firsts[row] + option, start + place), logits)

    def _read_off(
        self,
        trees: Sequence[Tree],
        where: Callable[[int, int, int], tuple[int, int]],
        logits_of: Callable[[Tensor, Tensor], Tensor],
    ) -> list[ChoiceScores]:
        """Scores from logits: `where` a token of an option's path lies, and the logits at such places."""
        device = self._model.device
        seen: dict[tuple[int, int], int] = {}  # a place that several options pass is looked at once

        def look(row: int, option: int, place: int) -> int:
            return seen.setdefault(where(row, option, place - 1), len(seen))

        wanted: list[tuple[int, int]] = []
        counts: list[list[int]] = []
        forks: list[int] = []
        for row, tree in enumerate(trees):
            fork = len(tree.trunk)
            counts.append([])
            for option, (branch, begin) in enumerate(zip(tree.branches, tree.begins, strict=True)):
                path = tree.trunk[begin:] + branch if begin <= fork else branch[begin - fork :]
                wanted += [(look(row, option, begin + place), token) for place, token in enumerate(path)]
                counts[-1].append(len(path))
            forks.append(look(row, 0, fork))
        rows, columns = zip(*seen, strict=True)
        logits = logits_of(torch.tensor(rows, device=device), torch.tensor(columns, device=device))  # (places, vocab)
        totals, likeliest = totals_and_likeliest(logits)
        at, token = (torch.tensor(one, device=device) for one in zip(*wanted, strict=True))
        logprobs = (logits[at, token].float() - totals[at]).tolist()
        greedy = (likeliest[at] == token).tolist()
        remaining = iter(zip(logprobs, greedy, strict=True))
        scores = []
        for tree, of_tree, fork in zip(trees, counts, forks, strict=True):
            options = []
            for count in of_tree:
                part = [next(remaining) for _ in range(count)]
                options.append(ChoiceScore(math.fsum(one for one, _ in part), count, all(hit for _, hit in part)))
            if len(options) < 2:
                scores.append(ChoiceScores(tuple(options)))
                continue
            nexts = [branch[0] for branch in tree.branches]
            distinct = torch.tensor(sorted(set(nexts)), device=device)
            top = int(likeliest[fork])
            scores.append(
                ChoiceScores(
                    options=tuple(options),
                    answer_mass=min(1.0, float((logits[fork, distinct].double() - totals[fork]).exp().sum())),
                    top_token=self._model.tokenizer.decode([top]),
                    top_options=tuple(option for option, one in enumerate(nexts) if one == top),
                )
            )
        return scores

    def _vectors(self, soft_prompt: SoftPrompt | None) -> Tensor | None:
        if soft_prompt is None:
            return None
        return torch.from_numpy(vectors_of(self._model, soft_prompt)).to(self._model.device)

    def _in_batches(
        self,
        items: Sequence[Item],
        sizes: Sequence[tuple[int, int]],
        work: Callable[[Sequence[Item]], list[Result]],
    ) -> list[Result]:
        """`work` on all items, longest first, in batches that one pass may hold; `sizes` are tokens and logits each."""
        done: list[Result] = []
        while len(done) < len(items):
            rest = sizes[len(done) : len(done) + self._batch_size]
            count = _together([width for width, _ in rest], _MAX_TOKENS)
            while count > 1 and sum(places for _, places in rest[:count]) * self.info.vocab_size > _MAX_LOGITS:
                count -= 1
            try:
                done += work(items[len(done) : len(done) + count])
            except (RuntimeError, MemoryError) as error:
                self._shrink(error, count)
        return done

    def _shrink(self, error: RuntimeError | MemoryError, used: int | None = None) -> None:
        """Halve the batch after running out of memory; any other error, and one of a single row, goes on up."""
        size = min(self._batch_size, used or self._batch_size)
        if not is_out_of_memory(error):
            raise error
        if size == 1:
            raise ModelError(f"{self.info.name}: memory does not suffice for a single row; use fewer shots") from error
        self._batch_size = size // 2
        LOG.warning("out of memory: going on with %d rows at a time", self._batch_size)


def _together(widths: Sequence[int], limit: int) -> int:
    """How many of the rows, longest first, one pass reads: few enough for `limit` tokens, and of like length, as
    padding costs what tokens cost; but enough for a pass to be worth its while."""
    count = 1
    while (
        count < len(widths)
        and (count + 1) * widths[0] <= limit
        and (widths[count] >= _ALIKE * widths[0] or (count + 1) * widths[0] <= _WORTH_A_PASS)
    ):
        count += 1
    return count
