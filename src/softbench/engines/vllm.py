"""The engine on vLLM: completions and log-likelihoods of a frozen model, with or without a soft prompt.

vLLM runs a copy of its own of the model, read from the same folder. Behind a soft prompt a row comes as embeddings that
the transformers model makes, so that scaled ones (Gemma's) are right; its token ids go along, as vLLM gives
log-likelihoods of tokens that it knows alone. What a completion says and why it ended is read off its tokens by the
code that the transformers engine uses.
"""

import dataclasses
import gc
import math
import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch

from softbench.engines.common import TAIL, Tree, added_text, checked_scores, ending, height, trees_of, vectors_of
from softbench.errors import ModelError, first_line
from softbench.models import LoadedModel
from softbench.rows import check_length, encode_contexts
from softbench.types import ChoiceScore, ChoiceScores, Completion, ModelInfo, Prompt, SoftPrompt

# What vLLM may take of a GPU's memory: the rest is for the copy that soft prompts are tuned on.
_GPU_SHARE = 0.5
# Unless the environment says otherwise: GiB of keys and values on a CPU; one process; nothing said that is no error.
_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
}


def open_llm(model: LoadedModel, batch_size: int) -> Any:
    """A `vllm.LLM` of the folder that `model` was loaded from, in its dtype; at most `batch_size` rows run at once.

    Raises ModelError where vLLM is not installed, can't run the model, or runs on another device.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    gc.collect()  # an earlier model's LLM takes down what a process has once for all of them: before this one opens
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # vLLM's own, about what it imports
        try:
            from vllm import LLM
            from vllm.platforms import current_platform
        except ImportError as error:
            raise ModelError(
                f"--engine vllm needs the vllm package ({error}); pip install 'softbench[vllm]'"
            ) from error
        if (model.device.type, model.device.index or 0) != (current_platform.device_type, 0):
            raise ModelError(
                f"the model is on {model.info.device!r} and vLLM runs on {current_platform.device_type!r}, the first "
                f"one that it sees; give --device {current_platform.device_type}"
            )
        try:
            return LLM(
                model=model.model.name_or_path,
                dtype=model.info.dtype,
                enable_prompt_embeds=True,
                enforce_eager=True,
                max_num_seqs=batch_size,
                max_model_len=-1,  # the model's own, or what there is memory for
                gpu_memory_utilization=_GPU_SHARE,
                use_tqdm_on_load=False,
            )
        except Exception as error:  # vLLM raises many kinds: unknown architectures, too little memory
            raise ModelError(f"vLLM can't open {model.info.name!r}: {first_line(error)}") from error


class VllmEngine:
    """An Engine around a LoadedModel, which encodes texts and embeds rows, and the LLM that open_llm made of it."""

    def __init__(self, model: LoadedModel, llm: Any) -> None:
        fitted, config = model.info.max_length, llm.llm_engine.vllm_config
        if config.model_config.max_model_len < fitted:
            # A row as long as all memory for keys and values would wait for ever: vLLM keeps a block for itself.
            fitted = config.model_config.max_model_len - config.cache_config.block_size
        self._model = dataclasses.replace(model, info=dataclasses.replace(model.info, max_length=fitted))
        self._llm = llm
        self._tokens_read = 0

    @property
    def info(self) -> ModelInfo:
        """What identifies the model; `max_length` is less than its own where memory has no room for that."""
        return self._model.info

    @property
    def tokens_read(self) -> int:
        """Tokens that went through the model so far; what vLLM had in its prefix cache did not."""
        return self._tokens_read

    def generate(
        self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None, max_new_tokens: int, stop: Sequence[str]
    ) -> list[Completion]:
        """Complete each prompt greedily; see Engine.generate."""
        model, vectors = self._behind(soft_prompt)
        contexts = encode_contexts(model, [prompt.text for prompt in prompts])
        for prompt, context in zip(prompts, contexts, strict=True):
            check_length(model, prompt.sample_id, len(context), height(vectors), max_new_tokens)
        outputs = self._ask(
            model,
            contexts,
            vectors,
            max_tokens=max_new_tokens,
            stop=list(stop),
            stop_token_ids=list(model.eos_ids),
            ignore_eos=True,  # what vLLM takes for end tokens; ours stop by their ids
        )
        return [
            _completion(model, context, list(output.outputs[0].token_ids), stop, output.outputs[0].finish_reason)
            for context, output in zip(contexts, outputs, strict=True)
        ]

    def score_choices(self, prompts: Sequence[Prompt], soft_prompt: SoftPrompt | None) -> list[ChoiceScores]:
        """Log-likelihoods of every prompt's continuations; see Engine.score_choices.

        Each continuation is a row of its own. vLLM generates a token behind each, which must fit the context, too.
        """
        model, vectors = self._behind(soft_prompt)
        trees = trees_of(model, [prompt for prompt in prompts if prompt.continuations], height(vectors), num_new=1)
        paths = [tree.trunk + branch for tree in trees for branch in tree.branches]
        outputs = iter(self._ask(model, paths, vectors, max_tokens=1, prompt_logprobs=1))
        remaining = iter(trees)
        scores = []
        for prompt in prompts:
            if not prompt.continuations:
                scores.append(ChoiceScores())
                continue
            tree = next(remaining)
            logprobs = [_prompt_logprobs(model, next(outputs), len(tree.trunk + branch)) for branch in tree.branches]
            scores.append(checked_scores(model, _scores(model, tree, logprobs), prompt))
        return scores

    def _behind(self, soft_prompt: SoftPrompt | None) -> tuple[LoadedModel, torch.Tensor | None]:
        """The model, without BOS where the soft prompt holds it, and the soft prompt's vectors."""
        if soft_prompt is None:
            return self._model, None
        model = dataclasses.replace(self._model, bos_id=None) if soft_prompt.holds_bos else self._model
        return model, torch.from_numpy(vectors_of(model, soft_prompt)).to(model.device)

    def _ask(
        self, model: LoadedModel, texts: Sequence[list[int]], vectors: torch.Tensor | None, **sampling: Any
    ) -> list[Any]:
        """vLLM's RequestOutput for each row `bos | soft prompt | text`."""
        from vllm import SamplingParams

        if not texts:
            return []
        rows = [_row(model, text, vectors) for text in texts]
        try:
            outputs: list[Any] = self._llm.generate(rows, SamplingParams(temperature=0.0, **sampling), use_tqdm=False)
        except RuntimeError as error:  # such as a head size that its attention has no kernel for
            raise ModelError(f"vLLM can't run {model.info.name!r}: {first_line(error)}") from error
        for row, output in zip(rows, outputs, strict=True):
            # The last token that was made has not been read.
            self._tokens_read += len(row["prompt_token_ids"]) + len(output.outputs[0].token_ids) - 1
            self._tokens_read -= output.num_cached_tokens or 0
        return outputs


@torch.no_grad()
def _row(model: LoadedModel, text: list[int], vectors: torch.Tensor | None) -> dict[str, Any]:
    """What vLLM takes for a prompt; any token may stand where the soft prompt does."""
    bos = [] if model.bos_id is None else [model.bos_id]
    if vectors is None:
        return {"prompt_token_ids": bos + text}
    ids = bos + [model.eos_ids[0]] * len(vectors) + text
    embeds = model.embed(torch.tensor(ids, device=model.device))  # (length, hidden)
    embeds[len(bos) : len(bos) + len(vectors)] = vectors.to(embeds.dtype)
    return {"prompt_embeds": embeds, "prompt_token_ids": ids, "prompt_is_token_ids": [False] * len(ids)}


def _completion(
    model: LoadedModel, context: list[int], tokens: list[int], stop: Sequence[str], reason: str | None
) -> Completion:
    """The completion that the first of `tokens` make, up to the one that ends it."""
    tail = context[-TAIL:]
    for count in range(1, len(tokens) + 1):
        ended = ending(model, tail, tokens[:count], stop)
        if ended is not None:
            return Completion(*ended, len(context), count)
    text = added_text(model, tail, tokens)
    return Completion(text, "stop" if reason == "stop" else "length", len(context), len(tokens))


def _prompt_logprobs(model: LoadedModel, output: Any, length: int) -> list[dict[int, Any]]:
    """What vLLM says of each of the row's last `length` tokens: by token, itself and the likeliest one in its place."""
    logprobs = output.prompt_logprobs
    if logprobs is None or len(logprobs) != len(output.prompt_token_ids):
        raise ModelError(f"this vLLM gives no log-likelihoods for {model.info.name!r}; run with --engine transformers")
    return list(logprobs[-length:])


def _scores(model: LoadedModel, tree: Tree, logprobs: Sequence[list[dict[int, Any]]]) -> ChoiceScores:
    """The scores of a tree's continuations from what vLLM says of each one's tokens."""
    options = []
    for branch, begin, of_path in zip(tree.branches, tree.begins, logprobs, strict=True):
        scored = list(zip(tree.trunk + branch, of_path, strict=True))[begin:]
        options.append(
            ChoiceScore(
                logprob=math.fsum(at[token].logprob for token, at in scored),
                num_tokens=len(scored),
                is_greedy=all(_likeliest(at) == token for token, at in scored),
            )
        )
    if len(options) < 2:
        return ChoiceScores(tuple(options))
    nexts = [branch[0] for branch in tree.branches]
    fork = len(tree.trunk)
    mass = {token: math.exp(of_path[fork][token].logprob) for token, of_path in zip(nexts, logprobs, strict=True)}
    top = _likeliest(logprobs[0][fork])
    return ChoiceScores(
        options=tuple(options),
        answer_mass=min(1.0, math.fsum(mass.values())),
        top_token=model.tokenizer.decode([top]),
        top_options=tuple(option for option, one in enumerate(nexts) if one == top),
    )


def _likeliest(at: dict[int, Any]) -> int:
    """The token of rank 1."""
    return next(token for token, one in at.items() if one.rank == 1)
