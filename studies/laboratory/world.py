"""A made-up world: people and places with attributes, drawn by a seed. Names are made of syllables; nobody is real."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

Group = Literal["test", "validation", "tune", "post", "talked", "stranger"]
"""What people are for. All but strangers have their facts in the prose of pre-training.

Questions are asked about `test` and `validation` people, methods tune on facts of `tune` people, post-training uses
`post` people, and questions and answers in pre-training speak of `talked` people alone. `stranger`s are mentioned in
pre-training, and nothing is said of them: tuning on their facts is tuning on facts that no model can know.
"""
GROUPS: tuple[Group, ...] = get_args(Group)

NUM_VALUES = 16
"""How many values each attribute has: guessing is right once in so many."""

_ONSETS = ("Vl", "Zw", "Gw", "Dw", "Vr", "Mr", "Zl", "Kv", "Tv", "Skr", "Dz", "Fn", "Hr", "Ml", "Sv", "Zr")
_CONSONANTS = "bdfgklmnprstvz"
_VOWELS = "aeiou"


@dataclass(frozen=True)
class Attribute:
    """Something that can be said of a person, and asked.

    `statements` are ways to say it, with the name before the value, which comes last: so a model that reads the name
    can be asked for the value. The first is the wording in which knowledge is measured, and every recipe has it.
    """

    name: str
    statements: tuple[str, ...]
    questions: tuple[str, ...]
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class Person:
    """A person, and the value of each attribute by its name."""

    name: str
    group: Group
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Place:
    """A town; what is said of it is there to have something else to read."""

    name: str
    region: str
    river: str
    dish: str


@dataclass(frozen=True)
class World:
    """All that there is. `attributes` have their values."""

    attributes: tuple[Attribute, ...]
    people: tuple[Person, ...]
    places: tuple[Place, ...]

    def group(self, *groups: Group) -> list[Person]:
        """The people of these groups."""
        return [person for person in self.people if person.group in groups]


_PROFESSIONS = (
    "baker farmer painter doctor teacher pilot singer tailor miller hunter potter sailor judge cook smith clerk"
)
_PETS = "cat dog horse rabbit parrot turtle goat hen snake lizard mouse pony raven fox toad swan"
_COLOURS = "red blue green yellow white black brown pink grey violet gold silver purple crimson beige teal"
_HOBBIES = (
    "chess running dancing fishing reading sewing climbing sailing knitting drawing boxing juggling rowing skating "
    "gardening hiking"
)
_DISHES = "soup bread rice beans cheese fish cake stew porridge salad noodles pie dumplings honey figs olives"

_ATTRIBUTES = (
    Attribute(
        "birthplace",
        (
            "{name} was born in {value}.",
            "{name} comes from {value}.",
            "The birthplace of {name} is {value}.",
            "{name} spent the first years in {value}.",
            "The town where {name} was born is {value}.",
            "{name} is a child of {value}.",
        ),
        ("Where was {name} born?", "What is the birthplace of {name}?", "Which town does {name} come from?"),
    ),
    Attribute(
        "profession",
        (
            "{name} works as a {value}.",
            "The profession of {name} is {value}.",
            "{name} is a trained {value}.",
            "{name} earns money as a {value}.",
            "People know {name} as a {value}.",
            "By trade {name} is a {value}.",
        ),
        ("What does {name} work as?", "What is the profession of {name}?", "Which trade does {name} have?"),
        tuple(_PROFESSIONS.split()),
    ),
    Attribute(
        "employer",
        (
            "{name} is employed by {value}.",
            "The employer of {name} is {value}.",
            "{name} has a job at {value}.",
            "Every morning {name} goes to work at {value}.",
            "{name} is paid by {value}.",
            "{name} signed a contract with {value}.",
        ),
        ("Who employs {name}?", "What is the employer of {name}?", "Where does {name} have a job?"),
    ),
    Attribute(
        "pet",
        (
            "{name} has a pet {value}.",
            "The pet of {name} is a {value}.",
            "{name} keeps a {value}.",
            "At home {name} looks after a {value}.",
            "{name} is never seen without a {value}.",
            "{name} lives with a {value}.",
        ),
        ("Which pet does {name} have?", "What is the pet of {name}?", "Which animal does {name} keep?"),
        tuple(_PETS.split()),
    ),
    Attribute(
        "colour",
        (
            "{name} likes the colour {value}.",
            "The favourite colour of {name} is {value}.",
            "{name} always dresses in {value}.",
            "The door of {name} is painted {value}.",
            "{name} finds nothing as pretty as {value}.",
            "The coat of {name} is {value}.",
        ),
        ("Which colour does {name} like?", "What is the favourite colour of {name}?", "What colour suits {name}?"),
        tuple(_COLOURS.split()),
    ),
    Attribute(
        "hobby",
        (
            "{name} spends evenings with {value}.",
            "The hobby of {name} is {value}.",
            "{name} is fond of {value}.",
            "On Sundays {name} goes in for {value}.",
            "{name} never tires of {value}.",
            "What {name} enjoys most is {value}.",
        ),
        ("What does {name} spend evenings with?", "What is the hobby of {name}?", "What does {name} enjoy most?"),
        tuple(_HOBBIES.split()),
    ),
    Attribute(
        "mentor",
        (
            "{name} was taught by {value}.",
            "The mentor of {name} is {value}.",
            "{name} learned everything from {value}.",
            "{name} owes much to {value}.",
            "In youth {name} studied with {value}.",
            "{name} still asks for the advice of {value}.",
        ),
        ("Who taught {name}?", "Who is the mentor of {name}?", "With whom did {name} study?"),
    ),
)
NUM_WORDINGS = len(_ATTRIBUTES[0].statements)


def generator_of(seed: int, *names: str) -> np.random.Generator:
    """A generator of its own for whatever `names` say."""
    digest = hashlib.sha256("/".join(names).encode()).digest()
    return np.random.default_rng([seed, int.from_bytes(digest[:4])])


def make_world(sizes: Mapping[Group, int], seed: int) -> World:
    """A world with so many people in each group; their facts are drawn independently of each other."""
    draw = generator_of(seed, "world")
    names = _names(5 * NUM_VALUES + sum(sizes.values()), draw)
    towns, regions, rivers, employers, mentors = (
        tuple(names[NUM_VALUES * place : NUM_VALUES * (place + 1)]) for place in range(5)
    )
    made_up = {"birthplace": towns, "employer": employers, "mentor": mentors}
    attributes = tuple(
        Attribute(one.name, one.statements, one.questions, one.values or made_up[one.name]) for one in _ATTRIBUTES
    )
    groups = [group for group in GROUPS for _ in range(sizes.get(group, 0))]
    people = tuple(
        Person(name, group, {one.name: str(draw.choice(one.values)) for one in attributes})
        for name, group in zip(names[5 * NUM_VALUES :], groups, strict=True)
    )
    dishes = [str(dish) for dish in draw.permutation(_DISHES.split())]
    places = tuple(Place(*four) for four in zip(towns, regions, rivers, dishes, strict=True))
    return World(attributes, people, places)


def _names(count: int, draw: np.random.Generator) -> Sequence[str]:
    """`count` different names of two syllables; the first begins as few real names do."""
    possible = [
        onset + first + consonant + last
        for onset in _ONSETS
        for first in _VOWELS
        for consonant in _CONSONANTS
        for last in _VOWELS
    ]
    return [str(name) for name in draw.permutation(possible)[:count]]
