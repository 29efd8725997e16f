import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from softbench.errors import PromptTooLong, TuningError
from softbench.methods import tune as tuning
from softbench.methods.tune import initial_vectors, plain_losses, rate_factor, tune, tune_together
from softbench.models import LoadedModel
from softbench.rows import encode
from softbench.tasks import get_task, load_data, render_prompt
from softbench.types import Prompt, SoftPrompt, TuneRequest, TuneResult, TuneSettings

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
    [example] = tuning.encode_examples(tiny_model, prompts(1), 0)
    ids = ([] if tiny_model.bos_id is None else [tiny_model.bos_id]) + example.ids
    labels = [-100] * (len(ids) - len(example.learned)) + ids[-len(example.learned) :]
    wanted = tiny_model.model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss
    got = plain_losses(tiny_model, None, [example], [0]).mean()
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)


def test_the_target_ends_with_the_end_token(tiny: Callable[[str], LoadedModel]) -> None:
    model = tiny("gemma3")
    [example] = tuning.encode_examples(model, prompts(1), 0)
    assert example.ids[-1] == model.tokenizer.eos_token_id
    assert model.tokenizer.decode(example.ids[:-1]) == prompts(1)[0].text + prompts(1)[0].target
    assert example.learned[-1] == len(example.ids) - 1
    assert model.tokenizer.decode(example.ids[example.learned[0] : -1]) == prompts(1)[0].target


def test_padding_does_not_change_the_loss(tiny_model: LoadedModel) -> None:
    examples = tuning.encode_examples(tiny_model, prompts(5), 4)
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
    examples = [tuning.Example([index, 0], [1]) for index in range(7)]
    batches = list(tuning.batches(examples, 7, 3, torch.Generator().manual_seed(0)))
    seen = [example.ids[0] for batch in batches for example in batch]
    assert [len(batch) for batch in batches] == [3] * 7
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

    def until(step: int, soft_prompt: SoftPrompt) -> bool:
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
    whole = tuning.encode_examples(tiny_model, made, 0)
    kept = tuning.encode_examples(tiny_model, made, 0, "format")
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
        for example in tuning.encode_examples(tiny("llama"), made, 4, "format")
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
    examples = tuning.encode_examples(tiny_model, many(), 4)
    gradients, losses = [], []
    for losses_of in (tuning.plain_losses, tuning.shared_losses):
        vectors = initial_vectors(tiny_model, "Name the capital", SETTINGS, torch.Generator()).requires_grad_()
        loss = losses_of(tiny_model, vectors[None] if with_vectors else None, examples, [0] * len(examples)).mean()
        losses.append(loss.item())
        if with_vectors:
            loss.backward()
            gradients.append(vectors.grad)
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    if with_vectors:
        torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-6)


def test_parts_of_a_batch_add_up_to_its_gradient(tiny_model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    examples = tuning.encode_examples(tiny_model, many(), 4)
    gradients, losses = [], []
    for limit in (8192, 200, 1):
        monkeypatch.setattr(tuning, "MAX_TOKENS", limit)
        vectors = initial_vectors(tiny_model, "Name the capital", SETTINGS, torch.Generator()).requires_grad_()
        losses += tuning.backward(tiny_model, [vectors], [examples], shares=True)
        gradients.append(vectors.grad)
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-5)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-4, atol=1e-6)
    sizes = [len(part) for part in tuning.parts([(0, example) for example in examples])]
    assert sizes == [1] * len(examples)


def test_batches_hold_examples_of_like_length() -> None:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(10, 200, (640,), generator=generator).tolist()
    examples = [tuning.Example([0] * length, [1]) for length in lengths]
    made = list(tuning.batches(examples, 80, 8, generator))
    padded = sum(len(batch) * max(len(one.ids) for one in batch) for batch in made)
    assert padded < 1.15 * sum(lengths)
    assert sorted(len(one.ids) for batch in made for one in batch) == sorted(lengths)
    first, second = (max(len(one.ids) for one in batch) for batch in made[:2])
    assert [max(len(one.ids) for one in batch) for batch in made[:8]] != sorted(
        max(len(one.ids) for one in batch) for batch in made[:8]
    ), (first, second)  # short and long ones come in any order


def test_fewer_examples_than_a_batch_are_seen_again() -> None:
    examples = [tuning.Example([index, 0], [1]) for index in range(3)]
    made = list(tuning.batches(examples, 4, 8, torch.Generator().manual_seed(0)))
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
        TuneRequest(prompts(), "Work out", longer, 2, until=lambda step, _: step == 4),
        TuneRequest(prompts(), "Work out", dataclasses.replace(SETTINGS, num_virtual_tokens=7), 0),
    ]
    seen: list[float] = []
    together = tune_together(tiny_model, requests, seen.append)
    assert len(seen) == 6 + 6 + 9 + 4 + 6
    for request, got in zip(requests, together, strict=True):
        [alone] = tune_together(tiny_model, [request], lambda loss: None)
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


def test_a_loss_that_is_not_finite_names_the_seed(tiny: Callable[[str], LoadedModel]) -> None:
    requests = [
        TuneRequest(prompts(), "Work out", dataclasses.replace(SETTINGS, learning_rate=rate), seed)
        for seed, rate in ((0, 0.1), (7, float("inf")))
    ]
    with pytest.raises(TuningError, match=r"tuning step \d of 6 \(seed 7\) met a loss of nan"):
        tune_together(tiny("llama"), requests, lambda loss: None)
