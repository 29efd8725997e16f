"""Prompts as conversations: what is said by whom, where the reply begins, and what stands before it."""

import dataclasses
from collections.abc import Callable

import pytest
import torch

from softbench.engines.fake import FakeChatTemplate
from softbench.errors import ModelError, SpecError
from softbench.models import LoadedModel, with_chat_template
from softbench.rows import encode_pairs, lay_out
from softbench.tasks import get_task, load_data, render_chat_prompt, render_prompt
from softbench.types import ChatSettings

TASK = get_task("capitals")
DATA = load_data(TASK, None)
SHOTS, SAMPLE = DATA.tune[:2], DATA.test[0]
TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>\n{% endfor %}"
TEMPLATE = TURNS + "{% if add_generation_prompt %}<assistant>{% endif %}"


def chatty(model: LoadedModel, template: str = TEMPLATE) -> LoadedModel:
    tokenizer = type(model.tokenizer).from_pretrained(model.tokenizer.name_or_path)
    tokenizer.chat_template = template
    return dataclasses.replace(model, tokenizer=tokenizer)


def test_a_plain_prompt_becomes_one_message() -> None:
    plain = render_prompt(TASK, SAMPLE, SHOTS)
    prompt = render_chat_prompt(TASK, SAMPLE, SHOTS, FakeChatTemplate(), ChatSettings("Be brief."))
    assert prompt.text == f"<system>Be brief.</system>\n<user>{plain.text}</user>\n<assistant>"
    assert prompt.target == plain.target.strip()


def test_shots_may_be_turns() -> None:
    settings = ChatSettings(fewshot_as_multiturn=True)
    prompt = render_chat_prompt(TASK, SAMPLE, SHOTS, FakeChatTemplate(), settings)
    blocks = render_prompt(TASK, SAMPLE, SHOTS).text.split("\n\n")
    first, second = (block.rpartition(" -> ") for block in blocks[1:3])
    assert prompt.text == (
        f"<user>{blocks[0]}\n\n{first[0]}</user>\n<assistant>-> {first[2]}</assistant>\n"
        f"<user>{second[0]}</user>\n<assistant>-> {second[2]}</assistant>\n"
        f"<user>{blocks[3]}</user>\n<assistant>"
    )


def test_the_assistant_may_be_given_a_beginning() -> None:
    for prefix in ("Sure:", "Sure: "):
        prompt = render_chat_prompt(TASK, SAMPLE, (), FakeChatTemplate(), ChatSettings(assistant_prefix=prefix))
        assert prompt.text.endswith("<assistant>Sure:")
        assert prompt.target.startswith(" -> ")
    with pytest.raises(SpecError, match="the assistant prefix '->' is a part of the answer format"):
        render_chat_prompt(TASK, SAMPLE, (), FakeChatTemplate(), ChatSettings(assistant_prefix="-> "))


@pytest.mark.parametrize(
    ("gap", "text", "target"),
    [
        ("", "", "->"),
        (" ", "", " ->"),
        ("\n\n", "\n\n", "->"),
        ("<think>\n\n</think>\n", "<think>\n\n</think>\n", "->"),
    ],
)
def test_the_template_says_what_parts_a_reply_from_the_prompt(
    gap: str, text: str, target: str, tiny: Callable[[str], LoadedModel]
) -> None:
    """A line end or an empty block of thoughts belongs to the prompt: in a completion it would end it."""
    inner = TURNS.replace("<{{ m.role }}>{{", "<{{ m.role }}>{{ gap if m.role == 'assistant' else '' }}{{")
    template = f"{{% set gap = {gap!r} %}}{inner}{{% if add_generation_prompt %}}<assistant>{{% endif %}}"
    _, chat = with_chat_template(chatty(tiny("llama"), template))
    prompt = render_chat_prompt(TASK, SAMPLE, (), chat, ChatSettings())
    assert prompt.text.endswith(f"<assistant>{text}")
    assert prompt.target.startswith(target)
    assert not any(stop in prompt.target for stop in TASK.stop)


@pytest.mark.parametrize("in_template", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_bos_stands_once_where_the_template_has_it(
    architecture: str, in_template: bool, tiny: Callable[[str], LoadedModel]
) -> None:
    template = ("{{ bos_token }}" if in_template else "") + TEMPLATE
    model, chat = with_chat_template(chatty(tiny(architecture), template))
    prompt = render_chat_prompt(TASK, SAMPLE, (), chat, ChatSettings())
    bos = model.tokenizer.bos_token_id
    assert prompt.text.startswith("<user>")
    [(context, target)] = encode_pairs(model, [(prompt.text, prompt.target)])
    soft_prompt = torch.zeros(3, model.info.hidden_size)
    batch = lay_out(model, [context + target], soft_prompt, "left")
    own = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": render_prompt(TASK, SAMPLE).text}],
        tokenize=True,
        add_generation_prompt=True,
        return_dict=False,
    )
    rest = own[1:] if in_template else own
    assert own.count(bos) == int(in_template)
    assert model.bos_id == (bos if in_template else None)
    assert context == rest
    # bos | soft prompt | conversation
    assert batch.embeds.shape[1] == int(in_template) + 3 + len(context) + len(target)
    assert int(batch.starts[0]) == int(in_template) + 3
    if in_template:
        assert torch.equal(batch.embeds[0, 0], model.embed(torch.tensor([bos]))[0])


def test_equal_templates_have_equal_hashes(tiny: Callable[[str], LoadedModel]) -> None:
    hashes = [
        with_chat_template(chatty(tiny(name), template))[1].hash
        for name, template in (("llama", TEMPLATE), ("gpt2", TEMPLATE), ("llama", TEMPLATE + " "))
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_model_without_a_template_or_one_that_refuses_is_a_clear_error(tiny: Callable[[str], LoadedModel]) -> None:
    with pytest.raises(ModelError, match="model 'llama' has no chat template; drop --apply-chat-template"):
        with_chat_template(tiny("llama"))
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + TEMPLATE
    _, chat = with_chat_template(chatty(tiny("llama"), refusing))
    with pytest.raises(ModelError, match="refuses the conversation: no system role"):
        render_chat_prompt(TASK, SAMPLE, (), chat, ChatSettings("Be brief."))
