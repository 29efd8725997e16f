"""ARC-Easy (Clark et al. 2018, arXiv 1803.05457): grade-school science questions with three to five options."""

from pathlib import Path

from softbench.answer_formats import LETTER, LETTERS, OPTION, AnswerFormat
from softbench.errors import DataError
from softbench.tasks.local import read_rows
from softbench.tasks.task import Splits, Task
from softbench.types import Formulation, Sample

SENTENCE_LETTER = AnswerFormat("sentence_letter", "The answer is ({answer}).", LETTER)
# Nothing follows the option: many options end in a full stop of their own, which a small model drops or doubles
# where the form wants a mark behind it.
SENTENCE_OPTION = AnswerFormat("sentence_option", "The right option is: {answer}", OPTION)
BARE_OPTION = AnswerFormat("option_text", "{answer}", OPTION)

_LISTED = """\
Question: {{ question }}
{% for letter, text in choices %}
{{ letter }}. {{ text }}
{% endfor %}
Answer:"""
_CLOZE = "Question: {{ question }}\nAnswer:"


def arc_easy_mcf() -> Task:
    """The options are listed, and the letter of one is asked for."""
    return _arc_easy("mcf", f"Choose the right option. {SENTENCE_LETTER.instruction()}", _LISTED, SENTENCE_LETTER)


def arc_easy_generation() -> Task:
    """The options are listed, and the text of one is asked for."""
    return _arc_easy(
        "generation", f"Choose the right option. {SENTENCE_OPTION.instruction()}", _LISTED, SENTENCE_OPTION
    )


def arc_easy_cf() -> Task:
    """The options are not shown; each one's log-likelihood as an answer decides."""
    return _arc_easy("cf", "", _CLOZE, BARE_OPTION)


def _arc_easy(formulation: Formulation, description: str, question: str, answer_format: AnswerFormat) -> Task:
    return Task(
        name=f"arc_easy:{formulation}",
        formulation=formulation,
        description=description,
        question=question,
        answer_format=answer_format,
        stop=("\n",),
        max_new_tokens=16 if formulation == "mcf" else 64,
        load=lambda data_dir: _load(data_dir, formulation),
        source="allenai/ai2_arc, ARC-Easy",
        licence="CC BY-SA 4.0",
    )


def _load(data_dir: Path | None, formulation: Formulation) -> Splits:
    rows = {
        name: read_rows(data_dir, "arc_easy", file)
        for name, file in (("tune", "train"), ("validation", "validation"), ("test", "test"))
    }
    return {name: [_sample(row, formulation) for row in split] for name, split in rows.items()}  # type: ignore[misc]


def _sample(row: dict[str, object], formulation: Formulation) -> Sample:
    try:
        choices = row["choices"]
        labelled = list(zip(choices["label"], choices["text"], strict=True))  # type: ignore[index]
        texts = tuple(str(text).strip() for _, text in labelled)
        gold = [label for label, _ in labelled].index(row["answerKey"])
        letter = LETTERS[: len(texts)][gold]
        question, sample_id = str(row["question"]), str(row["id"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"arc_easy: row {row.get('id', row)!r} lacks what the hub's rows have (id, question, choices.text, "
            f"choices.label, answerKey): {error!r}"
        ) from error
    answer = letter if formulation == "mcf" else texts[gold]
    return Sample(id=sample_id, fields={"question": question}, answers=(answer,), choices=texts, gold=gold)
