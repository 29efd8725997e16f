"""Seven question tasks about facts of the world, in seven answer formats, written as softbench's own task files.

Each fact of a `test` person is asked in exactly one task: its place in a Latin square says which. So all tasks ask
about the same people and the same attributes, and differ in form alone. Tuning and validation samples are about other
people, each of their facts in every task. Three families of tasks share their test questions or their tuning samples:

    lab_json            tunes on facts that were in pre-training (of `tune` people)
    lab_json_strange    tunes on facts that no model has read (of `stranger`s); the same test questions
    lab_json_seen       asks about facts that lab_json tuned on
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from softbench.files import write_atomic
from studies.laboratory.prose import options_of
from studies.laboratory.world import Attribute, Person, World, generator_of

Row = Mapping[str, Any]
STRANGE, SEEN, POST = "_strange", "_seen", "_post"

_OPEN = {"answers": "answer"}
_CHOICE = {"options": "options", "gold": "answer"}
FORMS: Mapping[str, Mapping[str, Any]] = {
    "lab_short": {**_OPEN, "answer_format": "short_text"},
    "lab_arrows": {**_OPEN, "answer_format": "-> {answer} <-"},
    "lab_json": {**_OPEN, "answer_format": "json"},
    "lab_boxed": {**_OPEN, "answer_format": "boxed"},
    "lab_sentence": {**_OPEN, "answer_format": "The answer is {answer}."},
    "lab_letter": {**_CHOICE, "formulations": ["mcf"]},
    "lab_cloze": {**_CHOICE, "formulations": ["cf"]},
}
"""What tells the tasks' files apart, by task name."""


@dataclass(frozen=True)
class Fact:
    """What a person's attribute is; `task` is where it is asked, if the person is one that tests ask about."""

    person: Person
    attribute: Attribute
    task: str

    @property
    def id(self) -> str:
        """Its name in every file."""
        return f"{self.person.name}-{self.attribute.name}"

    @property
    def answer(self) -> str:
        """The value."""
        return self.person.facts[self.attribute.name]


def facts_of(people: Sequence[Person], world: World) -> list[Fact]:
    """All facts of `people`, each with the task that a Latin square gives it."""
    names = list(FORMS)
    return [
        Fact(person, attribute, names[(row + column) % len(names)])
        for row, person in enumerate(people)
        for column, attribute in enumerate(world.attributes)
    ]


def write_tasks(world: World, folder: Path, seed: int) -> None:
    """Write the tasks' YAML and JSONL files to `folder`."""
    of_group = {
        group: facts_of(world.group(group), world) for group in ("test", "validation", "tune", "post", "stranger")
    }
    for name, form in FORMS.items():
        splits = {
            "test": [fact for fact in of_group["test"] if fact.task == name],
            "seen": [fact for fact in of_group["tune"] if fact.task == name],
            **{group: of_group[group] for group in ("validation", "tune", "post", "stranger")},
        }
        for split, facts in splits.items():
            _write_rows(folder / name / f"{split}.jsonl", [_row(fact, seed) for fact in facts])
        for ending, tune, test in (
            ("", "tune", "test"),
            (STRANGE, "stranger", "test"),
            (SEEN, "validation", "seen"),
            (POST, "post", "test"),
        ):
            data = {"tune": f"{name}/{tune}.jsonl", "test": f"{name}/{test}.jsonl"}
            if ending != SEEN:
                data["validation"] = f"{name}/validation.jsonl"
            _write_task(folder / f"{name}{ending}.yaml", f"{name}{ending}", data, form)


def _write_task(path: Path, name: str, data: Mapping[str, str], form: Mapping[str, Any]) -> None:
    definition = {
        "task": name,
        "source": "made up by a seed",
        "licence": "Apache-2.0",
        "data": dict(data),
        "id": "id",
        "question": "Question: {{ question }}",
        "max_new_tokens": 16,
        **form,
    }
    write_atomic(path, yaml.safe_dump(definition, sort_keys=False).encode())


def _write_rows(path: Path, rows: Iterable[Row]) -> None:
    write_atomic(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def _row(fact: Fact, seed: int) -> Row:
    options, _ = options_of(fact.attribute, fact.answer, generator_of(seed, "options", fact.id))
    return {
        "id": fact.id,
        "question": fact.attribute.questions[0].format(name=fact.person.name),
        "answer": fact.answer,
        "options": options,
    }
