"""Jinja's sandbox, with a bound on what one template may do.

Jinja's own keeps a template from Python's insides, and not from loops in loops or from 'a' * 10**9. Here whatever
repeats or grows something pays, by the characters and items that it reads or makes: a round of a loop (which may print
all of the template's own text), a call, a filter, an operator, a comparison, a value that is shown. All of them draw on
one BUDGET, which `full_budget` fills before each rendering; where it is spent, SecurityError is raised. What could make
something much longer than what it was given pays for the longest that could come of it, before it begins.
"""

import functools
import re
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from contextvars import ContextVar
from typing import Any, cast

import jinja2
import jinja2.sandbox
from jinja2 import nodes, visitor
from jinja2.exceptions import SecurityError

BUDGET = 10_000_000
CALL, ROUND, ITEM = 50, 10, 10
"""What a call, a round of a loop and an item of a list cost by themselves, in characters: about what they take."""

_left: ContextVar[int] = ContextVar("softbench_template_budget", default=BUDGET)

# Names of nodes that _Paying puts in. No template can say them: they hold a space.
_ROUNDS, _WEIGHED, _JOINED = "each round", "what is weighed", "what is joined"
# Filters, methods and functions whose result may be as long as two of their arguments multiplied ...
_MULTIPLYING = {"format", "format_map", "join", "replace", "rfind", "rindex", "rpartition", "rsplit", "translate"}
_MULTIPLYING |= {"wordwrap", "tojson"}
# ... or one of them times a number ...
_BY_A_NUMBER = {"batch", "center", "expandtabs", "indent", "ljust", "rjust", "round", "slice", "to_bytes", "zfill"}
_BY_A_NUMBER |= {"tojson"}
# ... or which take time as the square of their first one.
_SQUARING = {"striptags", "sum", "urlize"}
# A width in a format makes a text longer than any argument; some come from the arguments.
_WIDTH = re.compile(r"\d+")
_WIDTH_OF_ARGUMENT = re.compile(r"%[-+ #0\d.]*\*|\{[^{}:]*:[^{}]*\{")
_WITHHELD = {"encode", "decode"}  # some encodings take time as the square of a text's length


def full_budget() -> None:
    """Let the next rendering spend all of BUDGET."""
    _left.set(BUDGET)


def pay(amount: int) -> None:
    """Take from the budget. Raises SecurityError where that has not as much."""
    left = _left.get() - amount
    _left.set(left)
    if left < 0:
        raise SecurityError(
            f"it does more than {BUDGET:,} characters' worth of work; shorten its loops or the texts that it makes"
        )


class BoundedEnvironment(jinja2.sandbox.SandboxedEnvironment):
    """Jinja's sandbox, bounded; nothing in it is drawn at random."""

    intercepted_binops = frozenset({"+", "*", "**", "%", "/", "//"})

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, finalize=_weighed, **settings)
        filters = cast("dict[str, Callable[..., Any]]", self.filters)
        tests = cast("dict[str, Callable[..., Any]]", self.tests)
        self.filters = {name: _paying(name, one) for name, one in filters.items() if name != "random"}
        self.filters |= {_ROUNDS: _rounds, _WEIGHED: _weighed, _JOINED: _joined}
        self.tests = {name: _paying(name, one) for name, one in tests.items()}
        self.globals.pop("lipsum", None)

    def add_filter(self, name: str, function: Callable[..., Any]) -> None:
        """Add a filter, or put it in the place of another; it pays, too."""
        self.filters[name] = _paying(name, function)

    def _generate(self, source: nodes.Template, *args: Any, **settings: Any) -> Any:
        return super()._generate(_Paying(source).visit(source), *args, **settings)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Whether a template may reach `value`, the attribute `attr` of `obj`."""
        return attr not in _WITHHELD and super().is_safe_attribute(obj, attr, value)

    def call(self, context: Any, called: Any, /, *args: Any, **settings: Any) -> Any:
        """Call something for a template."""
        pay(CALL)
        method = getattr(called, "__wrapped__", called)
        receiver = getattr(method, "__self__", None)
        given = _before(getattr(called, "__name__", ""), [receiver, *args, *settings.values()])
        result = super().call(context, called, *given[1 : len(args) + 1], **settings)
        pay_for(result)
        return result

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Apply an operator for a template."""
        numbers = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and numbers:
            pay(left.bit_length() * max(0, right))
        elif numbers:
            pay((left.bit_length() // 64) * (right.bit_length() // 64))
        elif operator == "*":
            for text, times in ((left, right), (right, left)):
                if isinstance(times, int) and hasattr(text, "__len__"):
                    pay(weight(text) * max(0, times))
        elif operator == "%" and isinstance(left, str):
            _before("format", [left, right])
        pay_for(left, right)
        return super().call_binop(context, operator, left, right)


class ImmutableBoundedEnvironment(BoundedEnvironment, jinja2.sandbox.ImmutableSandboxedEnvironment):
    """The same, in which a template can't change what it was given."""


def pay_for(*values: Any) -> None:
    """Pay for each character and item in `values`, however deep.

    Lists may hold one list many times, and be longer in print than memory is: they pay as they print.
    """
    waiting = list(values)
    while waiting:
        one = waiting.pop()
        if isinstance(one, str | bytes):
            pay(len(one))
        elif isinstance(one, int):
            pay(one.bit_length() // 64)
        elif isinstance(one, jinja2.runtime.Context | jinja2.Undefined):
            continue
        elif isinstance(one, list | tuple | set | frozenset | KeysView | ValuesView | ItemsView):
            pay(ITEM * len(one))
            waiting.extend(one)
        elif isinstance(one, Mapping):
            pay(ITEM * len(one))
            waiting.extend(one)
            waiting.extend(one.values())
        elif isinstance(one, jinja2.utils.Namespace):
            waiting.append(one._Namespace__attrs)  # its own name for what it holds


def weight(*values: Any) -> int:
    """What `pay_for` takes for them, and 1."""
    before = _left.get()
    pay_for(*values)
    return before - _left.get() + 1


def _before(name: str, given: list[Any]) -> list[Any]:
    """Pay for what a call is given, and for what could come of it; iterators come back as lists."""
    if name in _MULTIPLYING:
        given = [list(_each(one)) if isinstance(one, Iterator) else one for one in given]
    weights = [weight(one) for one in given]
    if name in ("format", "format_map") and isinstance(given[0], str):
        if _WIDTH_OF_ARGUMENT.search(given[0]):
            raise SecurityError("a width in a format comes from outside it; write it out")
        pay(sum(int(width[:10]) for width in _WIDTH.findall(given[0])))
    if name in _MULTIPLYING:
        heaviest = sorted(weights)[-2:]
        pay(heaviest[0] * heaviest[-1])
    if name in _BY_A_NUMBER:
        pay(weights[0] * max((abs(one) for one in given[1:] if isinstance(one, int)), default=0))
        pay(weights[0] * max((len(one) for one in given[1:] if isinstance(one, str)), default=0))
    elif name in _SQUARING:
        pay(weights[0] ** 2 // 100)
    return given


def _each(values: Iterator[Any]) -> Iterator[Any]:
    for one in values:
        pay(ITEM)
        yield one


def _paying(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or a test that pays for what it takes and makes."""
    # Some are first given the environment or the context.
    first = int(hasattr(function, "jinja_pass_arg"))

    @functools.wraps(function)
    def paying(*args: Any, **settings: Any) -> Any:
        pay(CALL)
        given = _before(name, [*args[first:], *settings.values()])
        result = function(*args[:first], *given[: len(args) - first], **settings)
        pay_for(result)
        return result

    return paying


@jinja2.pass_context
def _rounds(context: Any, values: Any, cost: int) -> Iterator[Any]:
    for one in values:
        pay(cost)
        yield one


def _weighed(value: Any) -> Any:
    pay_for(value)
    return value


def _joined(values: list[Any]) -> str:
    pay_for(values)
    return "".join(map(str, values))


class _Paying(visitor.NodeTransformer):
    """Makes loops, comparisons, slices and joined texts of a template pay."""

    def __init__(self, template: nodes.Template) -> None:
        self._text = ROUND + sum(len(one.data) for one in template.find_all(nodes.TemplateData))

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        values = cast("nodes.Expr", node.iter)
        node.iter = _filtered(_ROUNDS, values, nodes.Const(self._text))
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        self.generic_visit(node)
        node.expr = _filtered(_WEIGHED, node.expr)
        for operand in node.ops:
            operand.expr = _filtered(_WEIGHED, operand.expr)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(_WEIGHED, node) if isinstance(node.arg, nodes.Slice) else node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filtered(_JOINED, nodes.List(node.nodes, lineno=node.lineno))


def _filtered(name: str, node: nodes.Expr, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno)
