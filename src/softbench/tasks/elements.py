"""Elements: the name and atomic number that a chemical symbol stands for, between double angle brackets."""

from pathlib import Path

from softbench.answer_formats import AnswerFormat
from softbench.answer_kinds import ShortText
from softbench.tasks.facts import read_facts, split_by_hash
from softbench.tasks.task import Splits, Task
from softbench.types import Sample

FORMAT = AnswerFormat("double_angles", "<< {answer} >>", ShortText("NAME, NUMBER"))


def elements() -> Task:
    """Open questions on the 118 elements; right only if both name and number are."""
    return Task(
        name="elements",
        formulation="generation",
        instruction="Give the name and atomic number of each chemical element.",
        question="Symbol: {{ symbol }}\nElement:",
        answer_format=FORMAT,
        stop=("\n",),
        max_new_tokens=24,
        load=_load,
        source="facts written down for softbench; names as IUPAC has them, other spellings accepted",
        licence="Apache-2.0",
    )


def _load(data_dir: Path | None) -> Splits:
    samples = [
        Sample(
            id=f"elements-{symbol}",
            fields={"symbol": symbol},
            answers=tuple(f"{name}, {number}" for name in names),
        )
        for symbol, number, *names in read_facts("elements.csv")
    ]
    return split_by_hash(samples, num_tune=44, num_validation=14)
