"""What runs a model: an engine to score it and tuners to make soft prompts and adapters for it, opened by name.

torch is imported when a real model is opened, not before.
"""

import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from softbench.engines.base import Engine
from softbench.spec import ModelSpec, Spec
from softbench.types import Adapter, AdapterTuner, ChatTemplate, Progress, SoftPrompt, Tuner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from softbench.models import LoadedModel


@dataclass(frozen=True, slots=True)
class Backend:
    """An opened model; `chat` is there where the run asks for its chat template.

    `read_prompt` reads a soft prompt for it from a folder. `adapted` lends an engine on it with an adapter in it.
    `randomised` is the same architecture with weights drawn by a seed.
    """

    engine: Engine
    tuner: Tuner
    adapter_tuner: AdapterTuner
    read_prompt: Callable[[Path], SoftPrompt]
    adapted: Callable[[Adapter], AbstractContextManager[Engine]]
    randomised: Callable[[int], "Backend"]
    chat: ChatTemplate | None = None


def open_transformers(model: ModelSpec, spec: Spec, progress: Progress) -> Backend:
    """Load the model with transformers; tune with softbench's own loop."""
    return _around(*_load(model, spec, progress), spec)


def open_vllm(model: ModelSpec, spec: Spec, progress: Progress) -> Backend:
    """Load the model with transformers, for tuning, and a copy of it with vLLM, which is scored."""
    from softbench.engines.vllm import VllmEngine, open_llm

    loaded, chat = _load(model, spec, progress)
    with progress.track(f"open {model.label} in vLLM", 1) as advance:
        llm = open_llm(loaded, spec.eval_batch_size)
        advance(1)
    return _around(loaded, chat, spec, VllmEngine(loaded, llm))


def _load(model: ModelSpec, spec: Spec, progress: Progress) -> "tuple[LoadedModel, ChatTemplate | None]":
    if "softbench.models" not in sys.modules:
        with progress.track("start torch and transformers", 1) as advance:
            importlib.import_module("softbench.models")
            advance(1)
    from softbench.models import load_model, with_chat_template

    loaded = load_model(
        model.source,
        spec.dtype,
        spec.device,
        model.revision,
        model.label,
        spec.device_map,
        spec.deterministic,
        progress,
    )
    return with_chat_template(loaded) if spec.apply_chat_template else (loaded, None)


def _around(loaded: "LoadedModel", chat: ChatTemplate | None, spec: Spec, engine: Engine | None = None) -> Backend:
    import functools

    from softbench.engines.transformers import TransformersEngine
    from softbench.methods.peft_format import read_prompt
    from softbench.methods.tune import tune_together
    from softbench.methods.tune_adapter import tune_adapter, with_adapter
    from softbench.models import with_random_weights

    @contextmanager
    def adapted(adapter: Adapter) -> "Iterator[Engine]":
        with with_adapter(loaded, adapter):
            yield TransformersEngine(loaded, spec.eval_batch_size)

    return Backend(
        engine=engine or TransformersEngine(loaded, spec.eval_batch_size),
        tuner=functools.partial(tune_together, loaded),
        adapter_tuner=functools.partial(tune_adapter, loaded),
        read_prompt=functools.partial(read_prompt, loaded),
        adapted=adapted,
        randomised=lambda seed: _around(with_random_weights(loaded, seed), chat, spec),
        chat=chat,
    )


def open_fake(model: ModelSpec, spec: Spec, progress: Progress) -> Backend:
    """Open no model at all: see engines.fake."""
    return _fake(f"fake:{model.source}", model, spec)


def _fake(fingerprint: str, model: ModelSpec, spec: Spec) -> Backend:
    import dataclasses

    from softbench.engines.fake import INFO, FakeChatTemplate, FakeEngine, fake_tune, fake_tune_adapter
    from softbench.methods.soft_prompt import load_soft_prompt

    engine = FakeEngine(dataclasses.replace(INFO, name=model.label, source=model.source, fingerprint=fingerprint))
    return Backend(
        engine=engine,
        tuner=fake_tune,
        adapter_tuner=fake_tune_adapter,
        read_prompt=lambda folder: load_soft_prompt(folder, engine.info),
        adapted=lambda adapter: nullcontext(engine),
        randomised=lambda seed: _fake(f"random:{seed}:{fingerprint}", model, spec),
        chat=FakeChatTemplate() if spec.apply_chat_template else None,
    )


BACKENDS: dict[str, Callable[[ModelSpec, Spec, Progress], Backend]] = {
    "transformers": open_transformers,
    "vllm": open_vllm,
    "fake": open_fake,
}
