"""What a template that somebody else wrote may do, and how soon one that does too much is stopped."""

from typing import Any

import pytest

from softbench.sandbox import BUDGET
from softbench.tasks.expressions import ExpressionError, evaluate, render

ROW: dict[str, Any] = {
    "question": "What is 2 + 2?",
    "text": "x" * 1000,
    "choices": ["three", "four"],
    "numbers": list(range(100)),
}
HONEST = [
    ("{{ question }}", "What is 2 + 2?"),
    ("{% for one in choices %}{{ loop.index }}. {{ one }} {% endfor %}", "1. three 2. four "),
    ("{{ choices | join(', ') | upper }}", "THREE, FOUR"),
    ("{{ '%.2f' % 1.5 }} {{ '{:>5}'.format(7) }} {{ 'In 2024, %s' % 'it was so' }}", "1.50     7 In 2024, it was so"),
    ("{{ numbers | sum }} {{ numbers[:3] }} {{ 'b' in 'abc' }} {{ 2 ** 10 }}", "4950 [0, 1, 2] True 1024"),
    ("{% set ns = namespace(n=0) %}{% for n in numbers %}{% set ns.n = ns.n + n %}{% endfor %}{{ ns.n }}", "4950"),
    ("{{ question.replace('2', 'two') | trim | truncate(14, true, leeway=0) }}", "What is two..."),
    ("{% macro twice(a) %}{{ a }}{{ a }}{% endmacro %}{{ twice('no') }}", "nono"),
    ("{{ dict(a=1).items() | list }} {{ question | wordcount }} {{ '-' * 3 }}", "[('a', 1)] 4 ---"),
]  # fmt: skip
# Each of these would take minutes or all of memory.
GREEDY = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(99999) %}{{ text }}{{ text }}{% endfor %}",
    "{{ 'a' * 1000000000 }}",
    "{{ [0] * 1000000000 }}",
    "{{ 1000000000 * 'a' }}",
    "{{ 10 ** (10 ** 8) }}",
    "{{ (2 ** 3000000) * (2 ** 3000000) }}",
    "{{ (2 ** 4000000) // (2 ** 2000000 + 1) }}",
    "{% set ns = namespace(a=text) %}{% for n in numbers %}{% set ns.a = ns.a ~ ns.a %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a=text) %}{% for n in numbers %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
    "{% set ns = namespace(a=[]) %}{% for n in numbers %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace(a=[]) %}{% for n in numbers %}{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a == [ns.a] }}",
    "{{ '%999999999d' % 1 }}",
    "{{ '%0*d' % (999999999, 1) }}",
    "{{ '%.*f' % (999999999, 1.0) }}",
    "{{ ('%9999d' * 9000) | format(*([1] * 9000)) }}",
    "{{ '{:999999999}'.format(1) }}",
    "{{ '{:{}}'.format(1, 999999999) }}",
    "{{ '{a:{b}}'.format_map({'a': 1, 'b': 999999999}) }}",
    "{{ 'a' | center(999999999) }}",
    "{{ 'a'.ljust(999999999) }}",
    "{{ 'a'.zfill(999999999) }}",
    "{{ '\t'.expandtabs(999999999) }}",
    "{{ 'a\nb' | indent(999999999) }}",
    "{{ 1.5 | round(999999999, 'ceil') }}",
    "{{ (1).to_bytes(999999999, 'big') }}",
    "{{ text | replace('x', text) | replace('x', text) }}",
    "{{ text.replace('', text).replace('', text) }}",
    "{{ (text * 900) | join(text) }}",
    "{{ ('ab' * 400000).rfind('b' * 200000 ~ 'a') }}",
    "{{ ('<' * 200000) | striptags }}",
    "{{ ('www.' * 100000) | urlize }}",
    "{{ numbers | batch(999999999, text) | list }}",
    "{% macro f(n) %}{{ f(n + 1) }}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "{% for n in [numbers] recursive %}{{ loop([numbers, numbers]) }}{% endfor %}",
    "{{ range(999999999) | list }}",
    "{{ lipsum(n=999999) }}",
    "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "{{ " + "-" * 100_000 + "1 }}",
    "{% if 1 %}" * 2000 + "{% endif %}" * 2000,
]  # fmt: skip
ESCAPES = [
    "{{ question.__class__ }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ (question | attr('__class__')).__mro__ }}",
    "{{ '{0.__class__.__mro__}'.format(question) }}",
    "{{ '{0.__class__}' | format(question) }}{{ [].__class__ }}",
    "{{ question.format.__globals__ }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ joiner.__init__['__globals__'] }}",
    "{% set x = (question | attr('format')).__self__ %}{{ x.__class__ }}",
    "{{ (choices.append | attr('__self__')).clear() }}{{ choices.__class__ }}",
    "{{ choices.clear() }}",
    "{{ choices.append('five') }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{% extends 'base.html' %}",
    "{{ question.encode('punycode') }}",
    "{{ [1, 2, 3] | random }}",
]


@pytest.mark.parametrize(("template", "text"), HONEST)
def test_an_honest_template_does_what_it_does_in_jinja(template: str, text: str) -> None:
    assert render(template, ROW) == text


def test_a_long_passage_is_no_reason_to_stop() -> None:
    passage = "word " * 100_000
    assert render("{{ passage | trim | replace('word', 'ward') }}?", {"passage": passage}).startswith("ward ward")
    assert evaluate("passage.split()[:2]", {"passage": passage}) == ["word", "word"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("template", GREEDY, ids=range(len(GREEDY)))
def test_a_template_that_never_ends_or_grows_is_stopped(template: str) -> None:
    with pytest.raises(ExpressionError):
        render(template, ROW)


@pytest.mark.parametrize("template", ESCAPES)
def test_a_template_can_t_leave_the_sandbox_or_change_what_it_is_given(template: str) -> None:
    row = {"question": "Why?", "choices": ["one", "two"]}
    with pytest.raises(ExpressionError):
        render(template, row)
    assert row == {"question": "Why?", "choices": ["one", "two"]}


def test_each_row_has_a_budget_of_its_own() -> None:
    half = f"{{{{ 'a' * {BUDGET // 4} }}}}"
    assert {len(render(half, ROW)) for _ in range(10)} == {BUDGET // 4}


def test_an_expression_is_bound_as_a_template_is() -> None:
    with pytest.raises(ExpressionError, match="does more than 10,000,000 characters' worth of work; shorten"):
        evaluate("('a' * 100000) | replace('a', 'a' * 100000)", ROW)
    with pytest.raises(ExpressionError, match="finds nothing in it"):
        evaluate("missing", ROW)
