"""Tunes a low-rank adapter through PEFT, and lends a model with one in it; the model is as it was afterwards."""

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from softbench.errors import SpecError, TuningError
from softbench.methods.tune import MAX_GRADIENT_NORM, backward, batches, encode_examples, rate_factor
from softbench.models import LoadedModel
from softbench.sharing import can_share
from softbench.types import Adapter, LoraSettings, OnStep, Prompt


def tune_adapter(
    model: LoadedModel, prompts: Sequence[Prompt], settings: LoraSettings, seed: int, on_step: OnStep
) -> Adapter:
    """Learn low-rank weights that make `model` answer `prompts` with their targets and then stop.

    AdamW without weight decay, the loss, batches and schedule of `tune`. Raises TuningError at a loss that is not
    finite, SpecError where PEFT is not installed.
    """
    started = time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    examples = encode_examples(model, prompts, 0)
    losses: list[float] = []
    num_tokens = 0
    shares = can_share(model)
    with _injected(model, settings, seed):
        trained = {name: one for name, one in model.model.named_parameters() if one.requires_grad}
        optimizer = torch.optim.AdamW(trained.values(), lr=settings.learning_rate, weight_decay=0.0)
        for step, batch in enumerate(batches(examples, settings.steps, settings.batch_size, generator)):
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * rate_factor(step, settings.steps, settings.warmup_steps)
            optimizer.zero_grad()
            [loss] = backward(model, [None], [batch], shares)
            if not math.isfinite(loss):
                raise TuningError(f"lora: tuning step {step + 1} of {settings.steps} met a loss of {loss}")
            torch.nn.utils.clip_grad_norm_(trained.values(), MAX_GRADIENT_NORM)
            optimizer.step()
            losses.append(loss)
            num_tokens += sum(len(example.ids) for example in batch)
            on_step(losses[-1])
        weights = {name: one.detach().cpu().float().numpy().copy() for name, one in trained.items()}
    return Adapter(weights, settings, tuple(losses), num_tokens, time.perf_counter() - started)


@contextmanager
def with_adapter(model: LoadedModel, adapter: Adapter) -> Iterator[None]:
    """While this lasts, `model` has the adapter in it."""
    with _injected(model, adapter.settings, 0):
        _put(model, adapter.weights)
        yield


@contextmanager
def _injected(model: LoadedModel, settings: LoraSettings, seed: int) -> Iterator[None]:
    """Put an untrained adapter into every linear layer but the head, and take it out at the end.

    Its own weights are float32 whatever the model's are, drawn by `seed`.
    """
    try:
        from peft import LoraConfig
        from peft.tuners.lora import LoraModel
    except ImportError:
        raise SpecError("method 'lora' needs PEFT, which is not installed: pip install 'softbench[peft]'") from None
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that GPT-2's layers are transposed, which PEFT sees to itself
        torch.manual_seed(seed)
        tuner = LoraModel(model.model, config, "default")
    try:
        for name, parameter in model.model.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.float()
        yield
    finally:
        tuner.unload()
        model.model.requires_grad_(False)


def _put(model: LoadedModel, weights: Mapping[str, np.typing.NDArray[np.float32]]) -> None:
    own = dict(model.model.named_parameters())
    for name, value in weights.items():
        own[name].data.copy_(torch.from_numpy(value))
