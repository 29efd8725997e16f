"""What runs a model: an engine to score it and a tuner to make soft prompts for it, opened by name.

torch is imported when a real model is opened, not before.
"""

from collections.abc import Callable
from dataclasses import dataclass

from softbench.engines.base import Engine
from softbench.spec import ModelSpec, Spec
from softbench.types import ChatTemplate, Tuner


@dataclass(frozen=True, slots=True)
class Backend:
    """An opened model; `chat` is there where the run asks for its chat template."""

    engine: Engine
    tuner: Tuner
    chat: ChatTemplate | None = None


def open_transformers(model: ModelSpec, spec: Spec) -> Backend:
    """Load the model with transformers; tune with softbench's own loop."""
    import functools

    from softbench.engines.transformers import TransformersEngine
    from softbench.methods.tune import tune
    from softbench.models import load_model, with_chat_template

    loaded = load_model(model.source, spec.dtype, spec.device, model.revision, model.label)
    chat = None
    if spec.apply_chat_template:
        loaded, chat = with_chat_template(loaded)
    return Backend(TransformersEngine(loaded, spec.eval_batch_size), functools.partial(tune, loaded), chat)


def open_fake(model: ModelSpec, spec: Spec) -> Backend:
    """Open no model at all: see engines.fake."""
    import dataclasses

    from softbench.engines.fake import INFO, FakeChatTemplate, FakeEngine, fake_tune

    return Backend(
        FakeEngine(
            dataclasses.replace(INFO, name=model.label, source=model.source, fingerprint=f"fake:{model.source}")
        ),
        fake_tune,
        FakeChatTemplate() if spec.apply_chat_template else None,
    )


BACKENDS: dict[str, Callable[[ModelSpec, Spec], Backend]] = {"transformers": open_transformers, "fake": open_fake}
