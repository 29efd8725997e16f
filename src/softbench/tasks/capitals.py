"""Capitals: the capital of each member state of the United Nations, asked for between two arrows."""

from pathlib import Path

from softbench.answer_formats import AnswerFormat
from softbench.answer_kinds import SHORT_TEXT
from softbench.tasks.facts import read_facts, split_by_hash
from softbench.tasks.task import Splits, Task
from softbench.types import Sample

# The space before the name matters: a small model knows " Paris" far better than "Paris" (docs/format_and_tokens.md).
FORMAT = AnswerFormat("arrows", "-> {answer} <-", SHORT_TEXT)


def capitals() -> Task:
    """Open questions on 193 facts that pre-training text is full of: knowledge shows once the format is learned."""
    return Task(
        name="capitals",
        formulation="generation",
        instruction="Name the capital of each country.",
        question="Country: {{ country }}\nCapital:",
        answer_format=FORMAT,
        stop=("\n",),
        max_new_tokens=24,
        load=_load,
        source="facts written down for softbench; member states as of 2025",
        licence="Apache-2.0",
    )


def _load(data_dir: Path | None) -> Splits:
    samples = [
        Sample(id=f"capitals-{row[0]}", fields={"country": row[0]}, answers=tuple(row[1:]))
        for row in read_facts("capitals.csv")
    ]
    return split_by_hash(samples, num_tune=70, num_validation=20)
