"""Does this machine compute models rightly? Checks on a tiny model with random weights, made here, in seconds.

What they look for has been seen elsewhere: scores that change with the batch, a cache that gives other tokens from the
second on, a "frozen" model that tuning moved.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, processors

from softbench.engines.transformers import TransformersEngine
from softbench.errors import first_line
from softbench.methods.tune import tune
from softbench.models import LoadedModel, wrap_model
from softbench.rows import encode_contexts, lay_out, likeliest_tokens, logits_at
from softbench.sharing import can_share
from softbench.types import ChoiceScores, ModelInfo, Prompt, TuneSettings

TOLERANCE = 1e-4
"""How far log-likelihoods (nats) may lie apart in float32."""
NEW_TOKENS, STEPS, BATCH = 12, 8, 4


@dataclass(frozen=True, slots=True)
class Check:
    """What one check came to on a device: `detail` says it in numbers."""

    name: str
    device: str
    ok: bool
    detail: str
    seconds: float


def self_test(devices: tuple[str, ...]) -> Iterator[Check]:
    """Every check on every device, as they are done. A check that raises has failed."""
    for device in devices:
        for name, check in CHECKS.items():
            started = time.perf_counter()
            try:
                ok, detail = check(tiny_model(device))
            except Exception as error:  # whatever a broken installation raises is what is to be reported
                ok, detail = False, f"{type(error).__name__}: {first_line(error)}"
            yield Check(name, device, ok, detail, time.perf_counter() - started)


def tiny_model(device: str) -> LoadedModel:
    """A Llama of two layers with weights from a fixed seed, in float32, that reads one character a token."""
    characters = [chr(code) for code in range(32, 127)]
    vocabulary = {token: place for place, token in enumerate(["<bos>", "<eos>", "<unk>", *characters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>"
    )
    config = transformers.LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=1,
        # Far wider than the usual 0.02, which makes logits that are near uniform: a greedy token is to be a clear one.
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = transformers.LlamaForCausalLM(config)
    model.to(device).eval().requires_grad_(False)
    info = ModelInfo(
        name="self-test",
        source="self-test",
        fingerprint="self-test",
        revision=None,
        dtype="float32",
        device=device,
        num_parameters=sum(parameter.numel() for parameter in model.parameters()),
        num_body_parameters=0,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        max_length=config.max_position_embeddings,
    )
    return wrap_model(model, fast, info)


def prompts() -> list[Prompt]:
    """Prompts of several lengths with a common beginning, each with options."""
    begin = "Add the numbers. Reply in exactly this form: -> SUM <-\n\n"
    asked = [(1, 2), (30, 4), (555, 66), (7, 8888), (12345, 6), (70, 80), (9, 9)]
    return [
        Prompt(
            sample_id=str(place),
            text=f"{begin}Numbers: {one} + {other}\nSum:",
            target=f" -> {one + other} <-",
            continuations=tuple(f" -> {one + other + wrong} <-" for wrong in (0, 1, 10, 1000)),
            num_shared=len(begin),
        )
        for place, (one, other) in enumerate(asked)
    ]


def batches(model: LoadedModel) -> tuple[bool, str]:
    """A sample's log-likelihoods do not depend on what it is batched with."""
    alone, together = (TransformersEngine(model, size).score_choices(prompts(), None) for size in (1, 4))
    return _close(alone, together, "batches of 1 and 4")


def shared_beginnings(model: LoadedModel) -> tuple[bool, str]:
    """A beginning that is read once gives what whole rows give."""
    asked = prompts()
    whole = TransformersEngine(model, 4, shares=False)
    sharing = TransformersEngine(model, 4)
    if not can_share(model):
        return False, "the model's attention can't go on from a beginning that is read once"
    ok, detail = _close(whole.score_choices(asked, None), sharing.score_choices(asked, None), "shared and whole rows")
    texts = [[one.text for one in engine.generate(asked, None, NEW_TOKENS, ())] for engine in (whole, sharing)]
    equal = sum(one == other for one, other in zip(*texts, strict=True))
    return ok and equal == len(asked), f"{detail}; {equal} of {len(asked)} completions equal"


def cached_generation(model: LoadedModel) -> tuple[bool, str]:
    """Completions that reuse keys and values are, token for token, those of a model that reads everything anew."""
    asked = prompts()
    made = TransformersEngine(model, 4).generate(asked, None, NEW_TOKENS, ())
    wanted = [_uncached(model, prompt) for prompt in asked]
    equal = sum(one.text == text and one.num_tokens == count for one, (text, count) in zip(made, wanted, strict=True))
    tokens = sum(count for _, count in wanted)
    return equal == len(asked), f"{equal} of {len(asked)} completions equal, {tokens} tokens"


@torch.inference_mode()
def _uncached(model: LoadedModel, prompt: Prompt) -> tuple[str, int]:
    """The greedy completion's text and tokens, each found by reading the whole row again."""
    [context] = encode_contexts(model, [prompt.text])
    made: list[int] = []
    while len(made) < NEW_TOKENS and model.eos_ids[0] not in made:
        batch = lay_out(model, [context + made], None, padding="right")
        zero = torch.zeros(1, dtype=torch.long, device=model.device)
        last = zero + batch.embeds.shape[1] - 1
        logits, _ = logits_at(model, zero, last, inputs_embeds=batch.embeds, use_cache=False)
        made.append(int(likeliest_tokens(logits)[0]))
    return model.tokenizer.decode(made, skip_special_tokens=True), len(made)


def tuning(model: LoadedModel) -> tuple[bool, str]:
    """A few steps lower a soft prompt's loss, and the model's weights are what they were, bit for bit."""
    before = {name: weight.clone() for name, weight in model.model.state_dict().items()}
    settings = TuneSettings(
        num_virtual_tokens=4, steps=STEPS, batch_size=BATCH, learning_rate=0.3, warmup_steps=0, init="text"
    )
    # As many samples as a batch has: every step's loss is of the same ones.
    samples = [dataclasses.replace(prompt, continuations=()) for prompt in prompts()[:BATCH]]
    losses = tune(model, samples, samples[0].text, settings, 0, lambda loss: None).losses
    moved = [name for name, weight in model.model.state_dict().items() if not torch.equal(weight, before[name])]
    detail = f"loss {losses[0]:.3f} to {losses[-1]:.3f} in {STEPS} steps; "
    detail += f"weights moved: {', '.join(moved)}" if moved else "the model's weights did not move"
    return losses[-1] < losses[0] and not moved, detail


def _close(one: list[ChoiceScores], other: list[ChoiceScores], what: str) -> tuple[bool, str]:
    furthest = max(
        abs(mine.logprob - theirs.logprob)
        for scores in zip(one, other, strict=True)
        for mine, theirs in zip(*(of_one.options for of_one in scores), strict=True)
    )
    return furthest <= TOLERANCE, f"{what} differ by {furthest:.1e} nats at most, {TOLERANCE:.0e} allowed"


CHECKS: dict[str, Callable[[LoadedModel], tuple[bool, str]]] = {
    "batch invariance": batches,
    "shared beginnings": shared_beginnings,
    "cached generation": cached_generation,
    "soft prompt tuning": tuning,
}
