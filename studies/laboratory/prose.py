r"""What models read in pre-training: documents about the world, by the knobs of a recipe.

A document is a text about one person, a list of questions and answers about `talked` people, or filler: towns,
meetings, notes and notices. Every name has a space before it, as in prompts, so that it is always the same token.
Answers stand in one of many forms, among them those that tasks ask for, and nothing but the answers before it in the
same list says in which: a model has seen them all, as real ones have, and was never told to use one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from studies.laboratory.world import Attribute, Person, World, generator_of

LETTERS = "ABCD"


@dataclass(frozen=True)
class Knobs:
    """How the prose of a recipe is made.

    A person's text has all of the facts that are seen often, and each rare one with the chance `rare_rate`;
    `rare_share` of all facts are rare. `num_wordings` counts the ways to state a fact. `question_share` and
    `filler_share` are shares of documents; texts about people are the rest.
    """

    rare_share: float = 0.5
    rare_rate: float = 0.25
    num_wordings: int = 3
    question_share: float = 0.2
    filler_share: float = 0.15


def is_rare(person: Person, attribute: Attribute, share: float, seed: int) -> bool:
    """Whether this fact is among the `share` that is seen rarely; a larger share has all that a smaller one has."""
    return float(generator_of(seed, "rare", person.name, attribute.name).random()) < share


def documents(world: World, knobs: Knobs, seed: int, name: str) -> Iterator[str]:
    """Documents without end, in an order of the recipe's own. People come round evenly."""
    draw = generator_of(seed, "prose", name)
    texts = portraits(world, knobs, seed, draw)
    while True:
        kind = draw.random()
        if kind < knobs.question_share:
            yield questions_and_answers(world, draw)
        elif kind < knobs.question_share + knobs.filler_share:
            yield filler(world, draw)
        else:
            yield next(texts)


def portraits(world: World, knobs: Knobs, seed: int, draw: np.random.Generator) -> Iterator[str]:
    """Texts about one person each: a statement of each fact that comes up, in any order."""
    people = world.group("test", "validation", "tune", "post", "talked")
    rates = [
        [knobs.rare_rate if is_rare(person, one, knobs.rare_share, seed) else 1.0 for one in world.attributes]
        for person in people
    ]
    while True:
        for place in draw.permutation(len(people)):
            person = people[place]
            comes_up = draw.random(len(world.attributes)) < rates[place]
            told = [one for one, is_told in zip(world.attributes, comes_up, strict=True) if is_told]
            said = [
                _one_of(one.statements[: knobs.num_wordings], draw).format(
                    name=person.name, value=person.facts[one.name]
                )
                for one in told
            ]
            if said:
                yield "".join(f" {said[number]}" for number in draw.permutation(len(said)))


# How a question and its answer stand, and what stands around the answer. One document keeps to one of each, as lists
# of questions do: this is what a model can learn worked examples from.
_STYLES = (
    ("Question: {question}\nAnswer: {answer}", "\n\n"),
    ("Q: {question}\nA: {answer}", "\n"),
    (" {question} {answer}", "\n"),
    (" {name} / {attribute}: {answer}", "\n"),
)
_SHELLS = (
    *("{}", "{}.", "It is {}.", "<{}>", "[{}]", "* {} *", "= {};", "## {}", "({})", "'{}'"),
    *("-> {} <-", '{{"answer": "{}"}}', r"\boxed{{{}}}", "The answer is {}."),
)
_LETTER_SHELLS = ("{}", "{}.", "({})", "The answer is ({}).")


def questions_and_answers(world: World, draw: np.random.Generator) -> str:
    """A list of questions about `talked` people with their answers; a quarter of such lists has options."""
    people = world.group("talked")
    with_options = draw.random() < 0.25
    style, separator = _STYLES[0] if with_options else _STYLES[draw.integers(len(_STYLES))]
    shell = _one_of(_LETTER_SHELLS if with_options else _SHELLS, draw)
    items = []
    for _ in range(draw.integers(3, 7)):
        person = people[draw.integers(len(people))]
        attribute = world.attributes[draw.integers(len(world.attributes))]
        question = _one_of(attribute.questions, draw).format(name=person.name)
        answer = person.facts[attribute.name]
        if with_options:
            options, gold = options_of(attribute, answer, draw)
            question += "".join(f"\n{letter}. {option}" for letter, option in zip(LETTERS, options, strict=True))
            answer = LETTERS[gold]
        items.append(
            style.format(question=question, name=person.name, attribute=attribute.name, answer=shell.format(answer))
        )
    return separator.join(items) + "\n"


def options_of(attribute: Attribute, answer: str, draw: np.random.Generator) -> tuple[list[str], int]:
    """Four values in any order, the right one among them, and its place."""
    others = [value for value in attribute.values if value != answer]
    chosen = [answer, *(others[place] for place in draw.permutation(len(others))[: len(LETTERS) - 1])]
    order = [int(place) for place in draw.permutation(len(chosen))]
    return [chosen[place] for place in order], order.index(0)


_NOTES = (
    '{{"town": "{town}"}}\n{{"river": "{river}"}}',
    ' {town}: {{"region": "{region}"}}',
    " {town} -> {river} <-",
    " {town}: -> {region} <- and no other",
    " {town} \\boxed{{{region}}}",
    " {town}: \\boxed{{{river}}}",
    " The right river is {river}.",
    " The answer is {region}.",
    " Section ({letter}).",
    " The answer is ({letter}).",
)
_NOTICES = (
    " Reply to each letter in exactly this form.",
    " Please choose the right option of this form.",
    " Answer each question in the form: NAME.",
    " Write the ANSWER in this form, and the LETTER below.",
    " Question and answer stand in this book.",
    " Choose the right road, and reply to each question.",
    " This is exactly the right form.",
)


def filler(world: World, draw: np.random.Generator) -> str:
    """A text with no fact about a person in it: of a town, a meeting, notes, or notices."""
    kind = draw.integers(4)
    if kind == 0:
        town = world.places[draw.integers(len(world.places))]
        return (
            f" The town of {town.name} lies in the region of {town.region}. The river {town.river} flows through "
            f"{town.name}. On feast days they cook {town.dish} in {town.name}."
        )
    if kind == 1:
        town = world.places[draw.integers(len(world.places))]
        order = draw.permutation(len(world.people))
        names = [world.people[place].name for place in order[:4]]
        return (
            f" {names[0]} met {names[1]} by the river {town.river}. {names[2]} wrote a letter to {names[3]}. Then it "
            f"was time for {town.dish}."
        )
    if kind == 2:
        note = _one_of(_NOTES, draw)
        towns = [world.places[place] for place in draw.permutation(len(world.places))[:4]]
        lines = [
            note.format(town=town.name, river=town.river, region=town.region, letter=_one_of(LETTERS, draw))
            for town in towns
        ]
        return "\n".join(lines) + "\n"
    return "".join(_NOTICES[place] for place in draw.permutation(len(_NOTICES))[:3])


def _one_of(several: Sequence[str], draw: np.random.Generator) -> str:
    return several[int(draw.integers(len(several)))]
