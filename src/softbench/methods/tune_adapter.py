"""Tunes a low-rank adapter through PEFT, and lends a model with one in it; the model is as it was afterwards."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from softbench.errors import SoftPromptError, SpecError, TuningError
from softbench.methods.learner import Learner
from softbench.methods.losses import encode_examples
from softbench.methods.tune import learn
from softbench.models import LoadedModel
from softbench.sharing import can_share
from softbench.types import Adapter, Keeper, LoraSettings, OnStep, Prompt


def tune_adapter(
    model: LoadedModel,
    prompts: Sequence[Prompt],
    settings: LoraSettings,
    seed: int,
    on_step: OnStep,
    keeper: Keeper | None = None,
) -> Adapter:
    """Learn low-rank weights that make `model` answer `prompts` with their targets and then stop.

    AdamW without weight decay, the loss, batches and schedule of `tune`. What `keeper` has of an earlier try is not
    done again. Raises TuningError at a number that is none, SpecError where PEFT is not installed.
    """
    started = time.perf_counter()
    examples, shares = encode_examples(model, prompts, 0), can_share(model)
    with _injected(model, settings, seed):
        trained = {name: one for name, one in model.model.named_parameters() if one.requires_grad}
        learner = Learner(
            weights=trained,
            optimizer=torch.optim.AdamW(trained.values(), lr=settings.learning_rate, weight_decay=0.0),
            peak_rate=settings.learning_rate,
            settings=settings,
            examples=examples,
            generator=torch.Generator().manual_seed(seed),
            seconds=time.perf_counter() - started,
        )
        learn(model, [learner], shares, on_step, keeper)
        if learner.failure is not None:
            raise TuningError(f"lora: {learner.failure}")
        weights = learner.arrays()
    return Adapter(
        weights,
        settings,
        tuple(learner.losses),
        learner.num_tokens,
        learner.seconds,
        failed_tries=tuple(learner.failed_tries),
    )


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
        if name not in own or own[name].shape != value.shape:
            raise SoftPromptError(f"the adapter's weights {name!r} do not fit {model.info.name!r}; tune it again")
        own[name].data.copy_(torch.from_numpy(value))
