import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from softbench.errors import ModelError, PromptTooLong, TuningError
from softbench.methods import losses as losing
from softbench.methods import tune as tuning
from softbench.methods.learner import batches, rate_factor
from softbench.methods.losses import Example, Room, backward, encode_examples, parts, plain_losses, shared_losses
from softbench.methods.state import from_bytes, to_bytes
from softbench.methods.tune import initial_vectors, tune, tune_together
from softbench.models import LoadedModel
from softbench.rows import encode
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import (
    FailedTry,
    OnStep,
    Prompt,
    SoftPrompt,
    TuneFailure,
    TuneRequest,
    TuneResult,
    TuneSettings,
    TuningState,
)

SETTINGS = TuneSettings(num_virtual_tokens=4, steps=6, batch_size=3, learning_rate=0.1, warmup_steps=2, init="text")


def prompts(count: int = 8) -> list[Prompt]:
    task = get_task("arithmetic")
    return [render_prompt(task, sample) for sample in load_data(task, None).tune[:count]]


def run(model: LoadedModel, settings: TuneSettings = SETTINGS, seed: int = 0) -> TuneResult:
    return tune(model, prompts(), get_task("arithmetic").description, settings, seed, lambda loss: None)


def test_the_weights_are_the_same_bits_after_tuning(tiny_model: LoadedModel) -> None:
    before = {name: tensor.clone() for name, tensor in tiny_model.model.state_dict().items()}
    run(tiny_model)
    after = tiny_model.model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_the_loss_falls(tiny_model: LoadedModel) -> None:
    result = run(tiny_model, dataclasses.replace(SETTINGS, steps=60, learning_rate=0.3))
    assert np.mean(result.losses[-5:]) < np.mean(result.losses[:5]) - 0.2


def test_the_same_seed_gives_the_same_vectors_and_another_seed_others(tiny: Callable[[str], LoadedModel]) -> None:
    first, second, other = run(tiny("llama")), run(tiny("llama")), run(tiny("llama"), seed=1)
    assert first.losses == second.losses
    assert first.soft_prompt.vectors.tobytes() == second.soft_prompt.vectors.tobytes()
    assert first.losses != other.losses


def test_samples_and_tokens_are_counted(tiny: Callable[[str], LoadedModel]) -> None:
    result = run(tiny("llama"))
    assert result.num_samples == 18
    assert len(result.losses) == 6
    assert result.soft_prompt.vectors.shape == (4, 32)
    assert result.soft_prompt.vectors.dtype == np.float32
    assert 18 * 20 < result.num_tokens < 18 * 200


def test_the_loss_is_the_models_own_with_the_target_as_labels(tiny_model: LoadedModel) -> None:
    [example] = encode_examples(tiny_model, prompts(1), 0)
    ids = ([] if tiny_model.bos_id is None else [tiny_model.bos_id]) + example.ids
    labels = [-100] * (len(ids) - len(example.learned)) + ids[-len(example.learned) :]
    wanted = tiny_model.model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss
    got = plain_losses(tiny_model, None, [example], [0]).mean()
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)


def test_the_target_ends_with_the_end_token(tiny: Callable[[str], LoadedModel]) -> None:
    model = tiny("gemma3")
    [example] = encode_examples(model, prompts(1), 0)
    assert example.ids[-1] == model.tokenizer.eos_token_id
    assert model.tokenizer.decode(example.ids[:-1]) == prompts(1)[0].text + prompts(1)[0].target
    assert example.learned[-1] == len(example.ids) - 1
    assert model.tokenizer.decode(example.ids[example.learned[0] : -1]) == prompts(1)[0].target


def test_padding_does_not_change_the_loss(tiny_model: LoadedModel) -> None:
    examples = encode_examples(tiny_model, prompts(5), 4)
    vectors = initial_vectors(tiny_model, "Work out", SETTINGS, torch.Generator())
    lone = [plain_losses(tiny_model, vectors[None], [one], [0]) for one in examples]
    together = plain_losses(tiny_model, vectors[None], examples, [0] * len(examples))
    torch.testing.assert_close(together, torch.cat(lone), atol=1e-5, rtol=0)


def test_text_init_repeats_a_short_text_and_cuts_a_long_one(tiny_model: LoadedModel) -> None:
    ids = encode(tiny_model, ["Reply"])[0]
    vectors = initial_vectors(tiny_model, "Reply", SETTINGS, torch.Generator())
    wanted = tiny_model.embed(torch.tensor((ids * 4)[:4]))
    assert torch.equal(vectors, wanted)
    long = initial_vectors(tiny_model, "Reply in exactly this form: result = NUMBER;", SETTINGS, torch.Generator())
    assert long.shape == (4, 32)


def test_text_init_holds_no_bos(tiny: Callable[[str], LoadedModel]) -> None:
    model = tiny("llama")
    vectors = initial_vectors(model, "Reply", SETTINGS, torch.Generator())
    bos = model.embed(torch.tensor([model.bos_id]))
    assert not any(torch.equal(row, bos[0]) for row in vectors)


def test_vocab_init_takes_rows_of_the_embedding_output(tiny: Callable[[str], LoadedModel]) -> None:
    model = tiny("gemma3")  # scales its embeddings: rows of the weight itself would be too short
    settings = dataclasses.replace(SETTINGS, init="vocab")
    vectors = initial_vectors(model, "unused", settings, torch.Generator().manual_seed(0))
    table = model.embed(torch.arange(len(model.tokenizer)))
    assert all(any(torch.equal(row, one) for one in table) for row in vectors)


def test_the_rate_warms_up_to_its_peak_and_falls_to_nearly_nothing() -> None:
    factors = [rate_factor(step, steps=80, warmup_steps=5) for step in range(80)]
    assert factors[:5] == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6])
    assert factors[5] == 1.0
    assert factors[5:] == sorted(factors[5:], reverse=True)
    assert factors[-1] == pytest.approx(1 / 75)


def test_every_example_is_seen_before_one_is_seen_twice() -> None:
    examples = [Example([index, 0], [1]) for index in range(7)]
    made = list(batches(examples, 7, 3, torch.Generator().manual_seed(0)))
    seen = [example.ids[0] for batch in made for example in batch]
    assert [len(batch) for batch in made] == [3] * 7
    for start in (0, 7, 14):
        assert sorted(seen[start : start + 7]) == list(range(7))


def test_a_loss_that_is_not_finite_stops_with_advice(tiny: Callable[[str], LoadedModel]) -> None:
    with pytest.raises(TuningError, match=r"step \d+ of 6 .* lower --learning-rate"):
        run(tiny("llama"), dataclasses.replace(SETTINGS, learning_rate=float("inf")))


def test_a_sample_beyond_the_context_is_refused_before_the_first_step(tiny: Callable[[str], LoadedModel]) -> None:
    steps: list[float] = []
    long: Sequence[Prompt] = [Prompt("long-one", "word " * 600, " answer")]
    with pytest.raises(PromptTooLong, match="'long-one'"):
        tune(tiny("gpt2"), long, "text", SETTINGS, 0, steps.append)
    assert steps == []


def test_checkpoints_are_the_vectors_on_the_way(tiny_model: LoadedModel) -> None:
    result = run(tiny_model, dataclasses.replace(SETTINGS, checkpoints=(0, 2, 5)))
    assert list(result.checkpoints) == [0, 2, 5]
    start = initial_vectors(tiny_model, get_task("arithmetic").description, SETTINGS, torch.Generator())
    assert np.array_equal(result.checkpoints[0].vectors, start.numpy())
    counts = [result.checkpoints[step].num_tokens for step in (0, 2, 5)] + [result.num_tokens]
    assert counts == sorted(set(counts))
    assert counts[0] == 0
    plain = run(tiny_model)
    assert plain.soft_prompt.vectors.tobytes() == result.soft_prompt.vectors.tobytes()
    assert plain.checkpoints == {}


def test_tuning_ends_when_it_is_told_to(tiny: Callable[[str], LoadedModel]) -> None:
    seen: list[int] = []

    def until(step: int, soft_prompt: SoftPrompt, before: list[float]) -> bool:
        seen.append(step)
        return step == 3

    task = get_task("arithmetic")
    result = tune(tiny("llama"), prompts(), task.description, SETTINGS, 0, lambda loss: None, until)
    assert seen == [1, 2, 3]
    assert len(result.losses) == 3
    assert result.num_samples == 9


@pytest.mark.parametrize(("name", "form"), [("capitals", " ->  <-"), ("arithmetic", " result = ;")])
def test_loss_on_format_learns_no_token_of_the_answer(name: str, form: str, tiny_model: LoadedModel) -> None:
    task = get_task(name)
    made = [render_prompt(task, sample) for sample in load_data(task, None).tune[:20]]
    whole = encode_examples(tiny_model, made, 0)
    kept = encode_examples(tiny_model, made, 0, "format")
    for prompt, all_of_it, some in zip(made, whole, kept, strict=True):
        assert some.ids == all_of_it.ids
        assert set(some.learned) < set(all_of_it.learned)
        assert some.learned[-1] == len(some.ids) - 1  # how to stop is form
        [(begin, end)] = prompt.content
        assert prompt.target[begin:end] in {sample.answers[0] for sample in load_data(task, None).tune}
        learned = tiny_model.tokenizer.decode([some.ids[place] for place in some.learned[:-1]])
        # A token that holds a character of the answer goes, and with it whatever of the form it holds.
        assert learned.replace(" ", "") in {
            form.replace(" ", ""),
            form.replace(" ", "")[:-1],
            form.replace(" ", "")[1:],
        }


def test_loss_on_format_does_not_see_the_answers(tiny: Callable[[str], LoadedModel]) -> None:
    """Other answers of as many tokens, and the loss of the first step is that of the form all the same."""
    task = get_task("arithmetic")
    settings = dataclasses.replace(SETTINGS, steps=1, loss_on="format")
    made = [Prompt(str(n), f"Value of {n}:", f" result = {n};", content=((10, 11),)) for n in range(3)]
    [context_only] = {
        tuple(example.ids[place] for place in example.learned)
        for example in encode_examples(tiny("llama"), made, 4, "format")
    }
    assert len(context_only) > 2
    result = tune(tiny("llama"), made, task.description, settings, 0, lambda loss: None)
    assert np.isfinite(result.losses[0])


def many(count: int = 6) -> list[Prompt]:
    """Prompts of very different lengths that begin alike."""
    task = get_task("capitals")
    made = [render_prompt(task, sample) for sample in load_data(task, None).tune[:count]]
    longer = [dataclasses.replace(prompt, text=prompt.text + " again" * (7 * n)) for n, prompt in enumerate(made)]
    return [dataclasses.replace(prompt, target=" -> Ulan Bator <-"[: 6 + 2 * n]) for n, prompt in enumerate(longer)]


@pytest.mark.parametrize("with_vectors", [True, False])
def test_a_shared_prefix_changes_neither_loss_nor_gradient(tiny_model: LoadedModel, with_vectors: bool) -> None:
    examples = encode_examples(tiny_model, many(), 4)
    gradients, losses = [], []
    for losses_of in (plain_losses, shared_losses):
        vectors = initial_vectors(tiny_model, "Name the capital", SETTINGS, torch.Generator()).requires_grad_()
        loss = losses_of(tiny_model, vectors[None] if with_vectors else None, examples, [0] * len(examples)).mean()
        losses.append(loss.item())
        if with_vectors:
            loss.backward()
            gradients.append(vectors.grad)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    if with_vectors:
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)


def test_parts_of_a_batch_add_up_to_its_gradient(tiny_model: LoadedModel) -> None:
    examples = encode_examples(tiny_model, many(), 4)
    gradients, losses = [], []
    for limit in (8192, 200, 1):
        vectors = initial_vectors(tiny_model, "Name the capital", SETTINGS, torch.Generator()).requires_grad_()
        losses += backward(tiny_model, [vectors], [examples], True, Room(limit), lambda: None)
        gradients.append(vectors.grad)
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-5)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-4, atol=1e-6)
    sizes = [len(part) for part in parts([(0, example) for example in examples], 1)]
    assert sizes == [1] * len(examples)


def test_batches_hold_examples_of_like_length() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(10, 200, (640,), generator=generator).tolist()
    examples = [Example([0] * length, [1]) for length in lengths]
    made = list(batches(examples, 80, 8, generator))
    padded = sum(len(batch) * max(len(one.ids) for one in batch) for batch in made)
    assert padded < 1.15 * sum(lengths)
    assert sorted(len(one.ids) for batch in made for one in batch) == sorted(lengths)
    first, second = (max(len(one.ids) for one in batch) for batch in made[:2])
    assert [max(len(one.ids) for one in batch) for batch in made[:8]] != sorted(
        max(len(one.ids) for one in batch) for batch in made[:8]
    ), (first, second)  # short and long ones come in any order


def test_fewer_examples_than_a_batch_are_seen_again() -> None:
    examples = [Example([index, 0], [1]) for index in range(3)]
    made = list(batches(examples, 4, 8, torch.Generator().manual_seed(0)))
    assert [len(batch) for batch in made] == [8] * 4
    seen = [one.ids[0] for batch in made for one in batch]
    assert [sorted(seen[start : start + 3]) for start in range(0, 30, 3)] == [[0, 1, 2]] * 10


def test_gradient_checkpointing_tunes_the_same_vectors(tiny_model: LoadedModel) -> None:
    plain = run(tiny_model)
    checkpointed = run(tiny_model, dataclasses.replace(SETTINGS, gradient_checkpointing=True))
    assert checkpointed.losses == pytest.approx(plain.losses, rel=1e-4)
    assert not any(module.training for module in tiny_model.model.modules())
    assert not any(getattr(module, "gradient_checkpointing", False) for module in tiny_model.model.modules())


def test_gradient_checkpointing_computes_layers_again(
    tiny: Callable[[str], LoadedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny("llama")
    calls: list[bool] = []
    layer = model.model.model.layers[0].mlp
    hook = layer.register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    settings = dataclasses.replace(SETTINGS, steps=1)
    run(model, settings)
    once = sum(calls)
    calls.clear()
    run(model, dataclasses.replace(settings, gradient_checkpointing=True))
    hook.remove()
    assert once == 2  # the prefix, then the rows
    assert sum(calls) == 2  # the rows, then the rows again
    monkeypatch.setattr(tuning, "GradientCheckpointingLayer", str)
    with pytest.raises(TuningError, match="llama has no layers that could be computed again; drop gradient"):
        run(model, dataclasses.replace(settings, gradient_checkpointing=True))


def test_prompts_tuned_together_learn_what_each_learns_alone(tiny_model: LoadedModel) -> None:
    longer = dataclasses.replace(SETTINGS, steps=9, checkpoints=(2,))
    requests = [
        TuneRequest(prompts(), "Work out", SETTINGS, 0),
        TuneRequest(prompts(), "Work out", SETTINGS, 1),
        TuneRequest(many(), "Name the capital", longer, 0),
        TuneRequest(prompts(), "Work out", longer, 2, until=lambda step, *_: step == 4),
        TuneRequest(prompts(), "Work out", dataclasses.replace(SETTINGS, num_virtual_tokens=7), 0),
    ]
    seen: list[float] = []
    together = tune_together(tiny_model, requests, seen.append)
    assert len(seen) == 6 + 6 + 9 + 4 + 6
    for request, got in zip(requests, together, strict=True):
        [alone] = tune_together(tiny_model, [request], lambda loss: None)
        assert isinstance(got, TuneResult)
        assert isinstance(alone, TuneResult)
        assert got.losses == pytest.approx(alone.losses, rel=1e-3)
        assert (got.num_tokens, got.num_samples) == (alone.num_tokens, alone.num_samples)
        np.testing.assert_allclose(got.soft_prompt.vectors, alone.soft_prompt.vectors, atol=2e-3)
        assert got.checkpoints.keys() == alone.checkpoints.keys()


def test_prompts_tuned_together_take_fewer_passes(tiny: Callable[[str], LoadedModel]) -> None:
    model = tiny("llama")
    calls: list[int] = []
    hook = model.model.model.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    requests = [TuneRequest(prompts(), "Work out", SETTINGS, seed) for seed in range(3)]
    tune_together(model, requests[:1], lambda loss: None)
    alone = len(calls)
    calls.clear()
    tune_together(model, requests, lambda loss: None)
    hook.remove()
    assert len(calls) == alone


RUINOUS = float("inf")
"""A learning rate at which the vectors are no numbers after one step."""


def tuned(made: TuneResult | TuneFailure) -> TuneResult:
    assert isinstance(made, TuneResult)
    return made


def test_prompts_beside_one_that_fails_are_tuned_to_their_end(tiny: Callable[[str], LoadedModel]) -> None:
    requests = [
        TuneRequest(prompts(), "Work out", dataclasses.replace(SETTINGS, learning_rate=rate), seed)
        for seed, rate in ((0, 0.1), (7, RUINOUS), (1, 0.1))
    ]
    first, failed, last = tune_together(tiny("llama"), requests, lambda loss: None)
    assert failed == TuneFailure(
        "tuning step 2 of 6 met a loss of nan; try --retry-lower-rate, a lower --learning-rate than inf or --dtype "
        "float32"
    )
    for made, request in ((first, requests[0]), (last, requests[2])):
        [alone] = tune_together(tiny("llama"), [request], lambda loss: None)
        assert tuned(made).losses == pytest.approx(tuned(alone).losses, rel=1e-3)


@contextmanager
def broken(*calls: int, gradient: bool = False) -> Iterator[list[int]]:
    """While this lasts, the losses (or gradients) of these passes, counted from 0, are no numbers."""
    seen: list[int] = []

    def spoilt(model: Any, prompts: Any, *others: Any) -> list[float]:
        losses = backward(model, prompts, *others)
        seen.append(len(seen))
        if seen[-1] not in calls:
            return losses
        if gradient:
            prompts[0].grad[0, 0] = float("inf")
            return losses
        return [float("nan"), *losses[1:]]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "backward", spoilt)
        yield seen


@pytest.mark.parametrize("gradient", [False, True])
def test_a_lower_rate_is_tried_where_that_is_asked_for(
    gradient: bool, tiny: Callable[[str], LoadedModel], caplog: pytest.LogCaptureFixture
) -> None:
    settings = dataclasses.replace(SETTINGS, retry_lower_rate=True, checkpoints=(0, 4))
    lower = run(tiny("gpt2"), dataclasses.replace(settings, learning_rate=0.1 / 4))
    with broken(3, 4 + 1, gradient=gradient) as passes:  # step 4 of the first try, step 2 of the second
        result = run(tiny("gpt2"), settings)
    assert len(passes) == 4 + 2 + 6
    met = "a gradient of inf" if gradient else "a loss of nan"
    assert result.failed_tries == (FailedTry(0.1, 4, met), FailedTry(0.05, 2, met))
    assert result.losses == lower.losses
    assert result.soft_prompt.vectors.tobytes() == lower.soft_prompt.vectors.tobytes()
    assert result.checkpoints.keys() == lower.checkpoints.keys()
    assert result.num_tokens > lower.num_tokens
    assert caplog.messages[0] == f"tuning step 4 of 6 met {met}: beginning again at a learning rate of 0.05"


def test_tuning_gives_up_after_three_halvings(tiny: Callable[[str], LoadedModel]) -> None:
    settings = dataclasses.replace(SETTINGS, retry_lower_rate=True, learning_rate=RUINOUS)
    with pytest.raises(TuningError, match="tuning step 2 of 6 met a loss of nan; try a lower --learning-rate than inf"):
        run(tiny("llama"), settings)
    with broken(*range(1, 100, 2)) as passes, pytest.raises(TuningError, match="a lower --learning-rate than 0.0125"):
        run(tiny("llama"), dataclasses.replace(SETTINGS, retry_lower_rate=True))
    assert len(passes) == 2 * (1 + 3)


def test_a_first_loss_that_is_no_number_is_no_rates_fault(tiny: Callable[[str], LoadedModel]) -> None:
    with broken(0) as passes, pytest.raises(TuningError, match="tuning step 1 of 6 met a loss of nan; try --dtype f"):
        run(tiny("llama"), dataclasses.replace(SETTINGS, retry_lower_rate=True))
    assert len(passes) == 1


class Kept:
    """A Keeper in memory, through the bytes of a file."""

    due = True

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.notes: list[str] = []

    def find(self, identity: str) -> TuningState | None:
        state = None if self.data is None else from_bytes(self.data)
        return state if state is not None and state.values["identity"] == identity else None

    def keep(self, state: TuningState) -> None:
        self.data = to_bytes(state)

    def note(self, line: str) -> None:
        self.notes.append(line)


def cut_off_after(steps: int) -> OnStep:
    """Ends the process in the middle of the step behind so many."""
    seen: list[float] = []

    def on_step(loss: float) -> None:
        if len(seen) == steps:
            raise KeyboardInterrupt
        seen.append(loss)

    return on_step


def five_looks(step: int, soft_prompt: SoftPrompt, before: list[float]) -> bool:
    """Ends a tuning by what it remembers of earlier looks."""
    before.append(float(np.abs(soft_prompt.vectors).sum()))
    return len(before) == 5


@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
@pytest.mark.parametrize("cut", [0, 1, 2, 5, 8, 13, 17])
def test_a_tuning_that_was_cut_off_goes_on_to_the_same_bits(
    cut: int, architecture: str, tiny: Callable[[str], LoadedModel]
) -> None:
    longer = dataclasses.replace(SETTINGS, steps=9, checkpoints=(0, 2, 4), init="vocab")
    requests = [
        TuneRequest(prompts(), "Work out", SETTINGS, 0),
        TuneRequest(many(), "Name the capital", longer, 3),
        TuneRequest(prompts(), "Work out", longer, 2, until=five_looks),
    ]
    model = tiny(architecture)
    whole = tune_together(model, requests, lambda loss: None)
    kept = Kept()
    with pytest.raises(KeyboardInterrupt):
        tune_together(model, requests, cut_off_after(cut), kept)
    shown: list[float] = []
    resumed = tune_together(model, requests, shown.append, kept)
    assert kept.notes == []
    assert len(shown) == 6 + 9 + 5
    for one, other in zip(map(tuned, whole), map(tuned, resumed), strict=True):
        assert one.soft_prompt.vectors.tobytes() == other.soft_prompt.vectors.tobytes()
        assert (one.losses, one.num_tokens, one.num_samples) == (other.losses, other.num_tokens, other.num_samples)
        assert one.checkpoints.keys() == other.checkpoints.keys()
        for step, before in one.checkpoints.items():
            assert before.vectors.tobytes() == other.checkpoints[step].vectors.tobytes()
            assert before.num_tokens == other.checkpoints[step].num_tokens


def test_no_step_is_taken_twice_but_the_one_that_was_cut_off(tiny: Callable[[str], LoadedModel]) -> None:
    kept, requests = Kept(), [TuneRequest(prompts(), "Work out", SETTINGS, 0)]
    with broken() as passes:
        with pytest.raises(KeyboardInterrupt):
            tune_together(tiny("llama"), requests, cut_off_after(4), kept)
        assert len(passes) == 5
        tune_together(tiny("llama"), requests, lambda loss: None, kept)
    assert len(passes) == 5 + 2


def test_a_lower_rate_and_smaller_parts_are_remembered(tiny: Callable[[str], LoadedModel]) -> None:
    settings = dataclasses.replace(SETTINGS, retry_lower_rate=True)
    requests, kept = [TuneRequest(prompts(), "Work out", settings, 0)], Kept()
    with broken(3), pytest.raises(KeyboardInterrupt):
        tune_together(tiny("llama"), requests, cut_off_after(4 + 2), kept)
    assert kept.data is not None
    state = from_bytes(kept.data)
    kept.keep(TuningState(state.arrays, {**state.values, "max_tokens": 60}))
    rooms: list[int] = []

    def noted(rows: Any, room: int) -> Any:
        rooms.append(room)
        return parts(rows, room)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losing, "parts", noted)
        [resumed] = tune_together(tiny("llama"), requests, lambda loss: None, kept)
    assert rooms == [60] * 4
    assert tuned(resumed).failed_tries == (FailedTry(0.1, 4, "a loss of nan"),)
    lower = tuned(
        tune_together(
            tiny("llama"),
            [dataclasses.replace(requests[0], settings=dataclasses.replace(SETTINGS, learning_rate=0.05))],
            lambda loss: None,
        )[0]
    )
    assert tuned(resumed).losses == pytest.approx(lower.losses, rel=1e-3)


def test_a_failed_tuning_is_kept_before_the_step_that_failed(tiny: Callable[[str], LoadedModel]) -> None:
    requests, kept = [TuneRequest(prompts(), "Work out", SETTINGS, 0)], Kept()
    with broken(3):
        [failed] = tune_together(tiny("llama"), requests, lambda loss: None, kept)
    assert isinstance(failed, TuneFailure)
    with broken() as passes:
        [mended] = tune_together(tiny("llama"), requests, lambda loss: None, kept)
    assert len(passes) == 3
    [whole] = tune_together(tiny("llama"), requests, lambda loss: None)
    assert tuned(mended).losses == tuned(whole).losses


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"losses": [1.0] * 7}, "it has taken 7 steps of 6"),
        ({"losses": [1.0]}, "its samples come in another order"),
        ({"losses": None}, "'NoneType'"),
        ({"failed_tries": [{"rate": 1}]}, "unexpected keyword argument 'rate'"),
    ],
)
def test_a_state_that_does_not_fit_is_said_and_not_used(
    changed: dict[str, Any], message: str, tiny: Callable[[str], LoadedModel]
) -> None:
    requests, kept = [TuneRequest(prompts(), "Work out", SETTINGS, 0)] * 2, Kept()
    with pytest.raises(KeyboardInterrupt):
        tune_together(tiny("llama"), requests, cut_off_after(6), kept)
    assert kept.data is not None
    state = from_bytes(kept.data)
    first, second = state.values["learners"]
    kept.keep(TuningState(state.arrays, {**state.values, "learners": [first, {**second, **changed}]}))
    made = tune_together(tiny("llama"), requests, lambda loss: None, kept)
    [note] = kept.notes
    assert note.startswith("the state of the tuning does not fit it (")
    assert message in note
    whole = tune_together(tiny("llama"), requests, lambda loss: None)
    for one, other in zip(map(tuned, whole), map(tuned, made), strict=True):
        assert (one.losses, one.num_tokens) == (other.losses, other.num_tokens)
        assert one.soft_prompt.vectors.tobytes() == other.soft_prompt.vectors.tobytes()


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"prompts": prompts()[1:]},
        {"settings": dataclasses.replace(SETTINGS, learning_rate=0.2)},
        {"init_text": "Name it"},
    ],
)
def test_the_state_of_another_tuning_is_not_found(other: dict[str, Any], tiny: Callable[[str], LoadedModel]) -> None:
    request, kept = TuneRequest(prompts(), "Work out", SETTINGS, 0), Kept()
    with pytest.raises(KeyboardInterrupt):
        tune_together(tiny("llama"), [request], cut_off_after(3), kept)
    with broken() as passes:
        tune_together(tiny("llama"), [dataclasses.replace(request, **other)], lambda loss: None, kept)
    assert len(passes) == 6


ALLOCATOR = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "8589934592 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize(
    "error", [RuntimeError(ALLOCATOR), torch.OutOfMemoryError("CUDA out of memory."), MemoryError()]
)
def test_smaller_parts_are_read_where_memory_does_not_suffice(
    error: Exception, tiny_model: LoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    settings = dataclasses.replace(SETTINGS, batch_size=4)
    plain = tune(tiny_model, many(), "Name the capital", settings, 0, lambda loss: None)
    sizes: list[int] = []

    def with_room_for_two(model: Any, vectors: Any, examples: Any, owners: Any) -> torch.Tensor:
        sizes.append(len(examples))
        # The first of the smaller parts goes well: its gradient is there when the next one fails.
        if len(examples) == 4 or len(sizes) == 3:
            raise error
        return shared_losses(model, vectors, examples, owners)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losing, "shared_losses", with_room_for_two)
        small = tune(tiny_model, many(), "Name the capital", settings, 0, lambda loss: None)
    assert sizes.count(4) == 1  # it is remembered
    assert len(sizes) > 6
    assert small.losses == pytest.approx(plain.losses, rel=1e-4)
    np.testing.assert_allclose(small.soft_prompt.vectors, plain.soft_prompt.vectors, atol=2e-3)
    assert caplog.messages[0].startswith("out of memory in tuning: going on with up to ")


def test_a_sample_that_is_too_large_for_memory_says_what_to_do(tiny: Callable[[str], LoadedModel]) -> None:
    def with_no_room(*_: Any) -> torch.Tensor:
        raise RuntimeError(ALLOCATOR)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losing, "shared_losses", with_no_room)
        with pytest.raises(ModelError, match="llama: memory does not suffice to tune on a single sample; try --grad"):
            run(tiny("llama"))


def test_another_fault_than_memory_goes_on_up(tiny: Callable[[str], LoadedModel]) -> None:
    def faulty(*_: Any) -> torch.Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losing, "shared_losses", faulty)
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            run(tiny("llama"))
