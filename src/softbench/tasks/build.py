"""From a definition to a Task in one formulation and answer format."""

from pathlib import Path

from softbench.answer_formats import ANSWER_GROUP, AnswerFormat, answer_format
from softbench.answer_kinds import LETTER, NUMBER, OPTION, SHORT_TEXT, YES_NO, AnswerKind, Pattern
from softbench.errors import TaskError, did_you_mean
from softbench.patterns import check_pattern
from softbench.tasks.definition import Definition
from softbench.tasks.expressions import ExpressionError, compile_expression, compile_template, variables
from softbench.tasks.samples import load_samples
from softbench.tasks.task import Task
from softbench.types import Formulation

OPEN_KINDS: dict[str, AnswerKind] = {"number": NUMBER, "short_text": SHORT_TEXT, "yes_no": YES_NO}
INSTRUCTIONS = {
    "options": "Choose the right option.",
    "number": "Work out each answer.",
    "short_text": "Answer each question.",
    "yes_no": "Answer each question.",
}
DEFAULT_FORMATS: dict[AnswerKind, str] = {
    LETTER: "sentence_letter",
    OPTION: "sentence_option",
    NUMBER: "hash_number",
    SHORT_TEXT: "short_text",
    YES_NO: "yes_no",
}
MAX_NEW_TOKENS: dict[AnswerKind, int] = {LETTER: 32, OPTION: 64, NUMBER: 32, SHORT_TEXT: 32, YES_NO: 16}
WITH_REASONING = 320

_LISTING = "\n{% for letter, text in choices %}\n{{ letter }}. {{ text }}\n{% endfor %}"


def build_task(
    definition: Definition, formulation: Formulation | None, format_name: str | None, folder: Path | None = None
) -> Task:
    """The task in one formulation (default: its first) and answer format; `folder` is where its `data` lie.

    Raises TaskError where the definition does not offer them.
    """
    formulation = formulation or definition.offered[0]
    if formulation not in definition.offered:
        raise TaskError(f"task {definition.task!r} has no formulation {formulation!r}; it has {definition.offered}")
    _check_templates(definition)
    form = _form(definition, formulation, format_name)
    # A name stands for one way of asking: results of another are not to be taken for it.
    asked = form.name if form != _form(definition, formulation, None) else None
    # A yes/no question needs no list: the form says what the options are.
    lists = definition.options and formulation != "cf" and not (definition.kind and formulation == "generation")
    instruction = definition.instruction or INSTRUCTIONS["options" if lists else _kind_name(definition)]
    question = definition.question + (_LISTING if lists else "\n" if definition.cue else "") + definition.cue
    limit = WITH_REASONING if definition.reasoning else MAX_NEW_TOKENS.get(form.kind, 32)
    return Task(
        name=":".join(filter(None, [definition.task, definition.options and formulation, asked])),
        formulation=formulation,
        instruction="" if formulation == "cf" else instruction,
        question=question,
        answer_format=form,
        stop=definition.stop or (("Question:", "\n\n") if definition.reasoning else ("\n",)),
        max_new_tokens=definition.max_new_tokens or limit,
        load=lambda data_dir: load_samples(definition, formulation, form.kind, data_dir, folder),
        source=definition.source,
        licence=definition.licence,
        same_if=definition.same_if,
        premise=definition.cue,
    )


def _form(definition: Definition, formulation: Formulation, format_name: str | None) -> AnswerFormat:
    if formulation == "cf":
        if format_name not in (None, "option_text"):
            raise TaskError(
                f"task {definition.task!r}: under cf the options' texts are scored, so answer format {format_name!r} "
                f"does not fit; take {definition.task}:mcf or :generation"
            )
        return answer_format("option_text", OPTION)
    own = definition.answer_format if formulation == definition.offered[0] else None
    kind = _answer_kind(definition, formulation)
    return answer_format(
        format_name or own or DEFAULT_FORMATS.get(kind, "{answer}"), kind, definition.reasoning is not None
    )


def _answer_kind(definition: Definition, formulation: Formulation) -> AnswerKind:
    if definition.options and formulation == "mcf":
        return LETTER
    if definition.options and definition.kind is None:
        return OPTION
    if definition.pattern is not None:
        return Pattern(definition.pattern)
    return OPEN_KINDS[_kind_name(definition)]


def _kind_name(definition: Definition) -> str:
    return definition.kind or "short_text"


def _check_templates(definition: Definition) -> None:
    """Raise TaskError where a template or an expression is not Jinja."""
    for key in ("question", "options", "gold", "answers", "reasoning", "id", "group", "cluster"):
        source = getattr(definition, key)
        if source is None:
            continue
        try:
            compile_template(source) if key == "question" else compile_expression(source)
        except ExpressionError as error:
            raise TaskError(f"task {definition.task!r}: {key} {source!r} is not Jinja: {error}") from error
    fields = variables(definition.question)
    if not fields:
        raise TaskError(
            f"task {definition.task!r}: question {definition.question!r} shows no field: write {{{{ NAME }}}}"
        )
    for name in definition.same_if:
        if name not in fields:
            raise TaskError(f"task {definition.task!r}: same_if names {name!r}{did_you_mean(name, fields)}")
    try:
        check_pattern(f"a(?P<{ANSWER_GROUP}>{definition.pattern or ''})b")
    except ValueError as error:
        raise TaskError(f"task {definition.task!r}: pattern {definition.pattern!r} is wrong: {error}") from error
