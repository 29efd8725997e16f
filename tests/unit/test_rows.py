import pytest
import torch

from softbench.errors import PromptTooLong
from softbench.models import LoadedModel
from softbench.rows import (
    _head_in_blocks,
    check_length,
    encode,
    encode_contexts,
    encode_pairs,
    lay_out,
    logits_at,
    target_places,
)

TEXTS = ["Country: France\nCapital:", "12 + 30", "Question: Which of these is the answer?"]


def soft(model: LoadedModel, count: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, model.info.hidden_size, generator=generator) * model.embedding_rms


def test_a_row_is_padding_bos_soft_prompt_text_in_that_order(tiny_model: LoadedModel) -> None:
    vectors = soft(tiny_model)
    rows = encode(tiny_model, TEXTS)
    batch = lay_out(tiny_model, rows, vectors, "left")
    bos = [] if tiny_model.bos_id is None else [tiny_model.bos_id]
    for index, row in enumerate(rows):
        text_start = int(batch.starts[index])
        assert text_start + len(row) == batch.embeds.shape[1]
        assert torch.equal(batch.embeds[index, text_start:], tiny_model.embed(torch.tensor(row)))
        assert torch.equal(batch.embeds[index, text_start - 3 : text_start], vectors)
        first = text_start - 3 - len(bos)
        assert torch.equal(
            batch.embeds[index, first : text_start - 3], tiny_model.embed(torch.tensor(bos, dtype=torch.long))
        )
        assert batch.mask[index].tolist() == [0] * first + [1] * (batch.embeds.shape[1] - first)


def test_bos_stands_once_where_the_tokenizer_adds_one(tiny_model: LoadedModel) -> None:
    by_tokenizer = tiny_model.tokenizer(TEXTS[0]).input_ids
    batch = lay_out(tiny_model, encode(tiny_model, TEXTS[:1]), None, "left")
    assert torch.equal(batch.embeds[0], tiny_model.embed(torch.tensor(by_tokenizer)))


def test_left_and_right_padding_give_the_logits_of_a_lone_row(tiny_model: LoadedModel) -> None:
    vectors, rows = soft(tiny_model), encode(tiny_model, TEXTS)
    for index, row in enumerate(rows):
        alone = lay_out(tiny_model, [row], vectors, "right").embeds
        wanted = tiny_model.model(inputs_embeds=alone).logits[0, -1]
        left = lay_out(tiny_model, rows, vectors, "left")
        got_left = tiny_model.model(
            inputs_embeds=left.embeds, attention_mask=left.mask, position_ids=left.position_ids
        ).logits[index, -1]
        right = lay_out(tiny_model, rows, vectors, "right")
        last = int(right.starts[index]) + len(row) - 1
        got_right = tiny_model.model(inputs_embeds=right.embeds).logits[index, last]
        torch.testing.assert_close(got_left, wanted, atol=1e-4, rtol=0)
        torch.testing.assert_close(got_right, wanted, atol=1e-4, rtol=0)


def test_logits_at_places_are_those_of_the_whole_pass(tiny_model: LoadedModel) -> None:
    batch = lay_out(tiny_model, encode(tiny_model, TEXTS), soft(tiny_model), "right")
    rows, columns = target_places(batch, [[2, 3], [1], [3, 4, 5]])
    assert rows.tolist() == [0, 0, 1, 2, 2, 2]
    few, _ = logits_at(tiny_model, rows, columns, inputs_embeds=batch.embeds)
    whole = tiny_model.model(inputs_embeds=batch.embeds).logits
    torch.testing.assert_close(few, whole[rows, columns], atol=1e-5, rtol=0)


@pytest.mark.parametrize("vocab", [7, 512, 1300])
@pytest.mark.parametrize("bias", [False, True])
def test_a_head_in_blocks_is_the_head_with_its_gradient(vocab: int, bias: bool) -> None:
    torch.manual_seed(0)
    head = torch.nn.Linear(16, vocab, bias=bias)
    given = torch.randn(5, 16)
    states, same = given.clone().requires_grad_(), given.clone().requires_grad_()
    wanted = head(states)
    with _head_in_blocks(head):
        logits = head(same)
        assert "forward" in vars(head)
    assert "forward" not in vars(head)
    torch.testing.assert_close(logits, wanted)
    wanted.square().sum().backward()
    logits.square().sum().backward()
    torch.testing.assert_close(same.grad, states.grad)


@pytest.mark.parametrize("head", [torch.nn.Linear(4, 6, dtype=torch.bfloat16), torch.nn.Identity()])
def test_heads_of_other_kinds_stay_as_they_are(head: torch.nn.Module) -> None:
    with _head_in_blocks(head):
        assert "forward" not in vars(head)


def test_the_hook_on_the_head_is_gone_after_a_failure(tiny_model: LoadedModel) -> None:
    ids = torch.tensor([[5]])
    with pytest.raises(ValueError, match="both|exactly one"):
        logits_at(tiny_model, ids[0], ids[0], input_ids=ids, inputs_embeds=tiny_model.embed(ids))
    assert not tiny_model.model.get_output_embeddings()._forward_pre_hooks


def test_context_and_continuation_part_at_the_first_token_that_differs(tiny_model: LoadedModel) -> None:
    [(context, rest)] = encode_pairs(tiny_model, [("Capital: Par", "is")])
    decode = tiny_model.tokenizer.decode
    assert decode(context + rest) == "Capital: Paris"
    assert context + rest == encode(tiny_model, ["Capital: Paris"])[0]
    assert rest  # at least one token is scored, even where the two merge


def test_an_empty_continuation_and_an_empty_context_are_pairs_too(tiny_model: LoadedModel) -> None:
    assert encode_pairs(tiny_model, [("Capital:", "")])[0][1] == []
    # Something must stand before the first token: BOS, or the end token where there is none.
    start = [] if tiny_model.bos_id is not None else [2]
    assert encode_pairs(tiny_model, [("", "Paris")]) == [(start, encode(tiny_model, ["Paris"])[0])]
    assert encode_contexts(tiny_model, ["", "Paris"]) == [start, encode(tiny_model, ["Paris"])[0]]
    assert lay_out(tiny_model, [start], None, "right").embeds.shape[1] == 1


def test_a_row_beyond_the_context_is_refused_by_name(tiny_model: LoadedModel) -> None:
    extra = tiny_model.bos_id is not None
    check_length(tiny_model, "fits", 512 - 10 - 16 - extra, 10, 16)
    with pytest.raises(PromptTooLong, match="'s7' needs .* takes 512"):
        check_length(tiny_model, "s7", 512 - 10 - 16 - extra + 1, 10, 16)


def test_the_gradient_reaches_the_soft_prompt_and_nothing_else(tiny_model: LoadedModel) -> None:
    vectors = soft(tiny_model).requires_grad_()
    batch = lay_out(tiny_model, encode(tiny_model, TEXTS), vectors, "right")
    tiny_model.model(inputs_embeds=batch.embeds).logits.sum().backward()
    assert vectors.grad is not None
    assert bool((vectors.grad.abs().sum(dim=1) > 0).all())
    assert all(parameter.grad is None for parameter in tiny_model.model.parameters())
