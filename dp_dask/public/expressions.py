"""Expressions: a small language of arithmetic and comparisons over arrays of draws, read by ``ast`` and never executed.

What is not listed here is refused: the text comes from a command line or a web form, and is data.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["ALLOWED", "ExpressionError", "Lookup", "Value", "evaluate"]

Floats = NDArray[np.float64]
Value = NDArray[Any]  # floats for a quantity, bools for an event
Lookup = Callable[[str], Floats]

LONGEST, DEEPEST = 1000, 100  # characters; nested operations
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "abs": np.abs,
    "exp": np.exp,
    "expit": special.expit,
    "log": np.log,
    "logit": special.logit,
    "sqrt": np.sqrt,
}
EXTREMES: Mapping[str, Callable[..., Any]] = {"max": np.maximum, "min": np.minimum}
OPERATORS: Mapping[type[ast.operator], Callable[..., Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
COMPARISONS: Mapping[type[ast.cmpop], Callable[..., Any]] = {
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
}
DOMAINS = {
    "log": "log takes numbers above 0",
    "logit": "logit takes numbers between 0 and 1",
    "sqrt": "sqrt takes no negative number",
}
ALLOWED = "numbers, names, + - * / **, < <= > >=, and, or, not, P(..) around a whole question, and the functions " + ", ".join(
    sorted([*FUNCTIONS, *EXTREMES])
)


class ExpressionError(ValueError):
    """A text that is no question; says which part of it, and what is allowed."""


@dataclass(slots=True)
class _Reader:
    """One text and its names; notes whether it holds any."""

    text: str
    lookup: Lookup
    has_name: bool = False


def evaluate(text: str, lookup: Lookup) -> Value:
    """Return the value of a text: floats for a quantity, bools for an event.

    ``lookup`` gives the draws of a name, dotted as it is written; all have one shape. Raises ExpressionError for anything that
    is not allowed, a value that is not finite included, and lets through what ``lookup`` raises.
    """
    if len(text) > LONGEST:
        msg = f"has {len(text)} characters; at most {LONGEST} are allowed"
        raise ExpressionError(msg)
    reader = _Reader(text, lookup)
    with np.errstate(all="ignore"):
        value = _value(reader, _without_p(_parse(text)), 0)
    if not reader.has_name:
        msg = f"{text.strip()!r} names no parameter"
        raise ExpressionError(msg)
    return value


def _parse(text: str) -> ast.expr:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        problem = f"cannot be read ({error.msg})"
    except (ValueError, RecursionError, MemoryError):
        problem = "cannot be read"
    hint = 'a name with other characters than letters, digits and _ goes into quotes, as in "year-1".rate'
    msg = f"{problem}; allowed: {ALLOWED}; {hint}"
    raise ExpressionError(msg)


def _without_p(node: ast.expr) -> ast.expr:
    """Take the P(..) off a whole question; what is inside must be an event."""
    match node:
        case ast.Call(
            func=ast.Name(id="P"), args=[ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()) as event], keywords=[]
        ):
            return event
        case ast.Call(func=ast.Name(id="P")):
            msg = "P(..) takes one event, such as P(rate > 2)"
            raise ExpressionError(msg)
    return node


def _value(reader: _Reader, node: ast.expr, depth: int) -> Value:
    if depth > DEEPEST:
        msg = f"is nested more than {DEEPEST} deep"
        raise ExpressionError(msg)
    name = _dotted(node)
    if name is not None:
        reader.has_name = True
        return reader.lookup(name)
    found = _of_numbers(reader, node, depth)
    if found is None:
        found = _of_events(reader, node, depth)
    if found is None:
        raise _refused(reader, node)
    return found


def _of_numbers(reader: _Reader, node: ast.expr, depth: int) -> Value | None:
    """Evaluate a quantity; None for what is none."""
    match node:
        case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
            return _number(node)
        case ast.UnaryOp(op=ast.USub()):
            return -_quantity(reader, node.operand, depth)
        case ast.UnaryOp(op=ast.UAdd()):
            return _quantity(reader, node.operand, depth)
        case ast.BinOp() if type(node.op) in OPERATORS:
            return _arithmetic(reader, node, depth)
        case ast.Call(func=ast.Name(id=name), keywords=[]):
            return _call(reader, node, name, depth)
    return None


def _of_events(reader: _Reader, node: ast.expr, depth: int) -> Value | None:
    """Evaluate an event; None for what is none."""
    match node:
        case ast.UnaryOp(op=ast.Not()):
            return ~_event(reader, node.operand, depth)
        case ast.Compare() if all(type(op) in COMPARISONS for op in node.ops):
            sides = [_quantity(reader, side, depth) for side in (node.left, *node.comparators)]
            pairs = zip(node.ops, sides[:-1], sides[1:], strict=True)
            return reduce(np.logical_and, [COMPARISONS[type(op)](left, right) for op, left, right in pairs])
        case ast.BoolOp():
            combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            return reduce(combine, [_event(reader, part, depth) for part in node.values])
    return None


def _dotted(node: ast.expr) -> str | None:
    """Return a name as it is written, without its quotes; None for what only looks like one.

    A part in brackets, as in p[red] or p["light red"], is a piece of the name: a parameter of a category or a group.
    """
    match node:
        case ast.Name():
            return node.id
        case ast.Constant(value=str()):
            return str(node.value)
        case ast.Attribute():
            owner = _dotted(node.value)
            return None if owner is None else f"{owner}.{node.attr}"
        case ast.Subscript(slice=ast.Name(id=label) | ast.Constant(value=str() | int() as label)) if not isinstance(label, bool):
            owner = _dotted(node.value)
            return None if owner is None else f"{owner}[{label}]"
    return None


def _number(node: ast.Constant) -> Value:
    try:
        number = float(node.value)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        msg = "holds a number beyond 1.8e308"
        raise ExpressionError(msg)
    return np.array(number)


def _quantity(reader: _Reader, node: ast.expr, depth: int) -> Value:
    value = _value(reader, node, depth + 1)
    if value.dtype == np.bool_:
        msg = f"{_source(reader, node)} is an event where a number is needed; events are combined by and, or, not"
        raise ExpressionError(msg)
    return value


def _event(reader: _Reader, node: ast.expr, depth: int) -> Value:
    value = _value(reader, node, depth + 1)
    if value.dtype != np.bool_:
        msg = f"{_source(reader, node)} is a number where an event is needed, such as rate > 2"
        raise ExpressionError(msg)
    return value


def _arithmetic(reader: _Reader, node: ast.BinOp, depth: int) -> Value:
    left, right = _quantity(reader, node.left, depth), _quantity(reader, node.right, depth)
    if isinstance(node.op, ast.Div) and (is_zero := np.broadcast_to(right == 0, _shape(left, right))).any():
        raise ExpressionError(_told(reader, node, is_zero, "divides by zero"))
    why = "a power must be real and below 1.8e308" if isinstance(node.op, ast.Pow) else "it is too large"
    return _finite(reader, node, OPERATORS[type(node.op)](left, right), why)


def _call(reader: _Reader, node: ast.Call, name: str, depth: int) -> Value | None:
    if name not in FUNCTIONS and name not in EXTREMES:
        return None
    arguments = [_quantity(reader, argument, depth) for argument in node.args]
    if name in EXTREMES and len(arguments) > 1:
        return reduce(EXTREMES[name], arguments)
    if name in EXTREMES or len(arguments) != 1:
        msg = f"{name} takes {'two numbers or more' if name in EXTREMES else 'one number'}"
        raise ExpressionError(msg)
    return _finite(reader, node, FUNCTIONS[name](*arguments), DOMAINS.get(name, "it is too large"))


def _finite(reader: _Reader, node: ast.expr, value: Value, why: str) -> Value:
    """Return the value; a NaN or an infinity is refused where it arises, because a comparison would hide it."""
    is_bad = ~np.isfinite(value)
    if is_bad.any():
        raise ExpressionError(_told(reader, node, is_bad, "is not a finite number") + f"; {why}")
    return value


def _told(reader: _Reader, node: ast.expr, is_bad: Value, what: str) -> str:
    share = f" in {int(is_bad.sum())} of {is_bad.size} draws" if is_bad.size > 1 else ""
    return f"{_source(reader, node)} {what}{share}"


def _shape(*values: Value) -> tuple[int, ...]:
    return np.broadcast_shapes(*(value.shape for value in values))


def _source(reader: _Reader, node: ast.expr) -> str:
    return repr(ast.get_source_segment(reader.text.strip(), node) or reader.text)


def _refused(reader: _Reader, node: ast.expr) -> ExpressionError:
    hint = ""
    if isinstance(node, ast.BinOp):
        symbols: dict[type[ast.operator], str] = {ast.BitXor: "a power is **", ast.BitAnd: "use and", ast.BitOr: "use or"}
        hint = symbols.get(type(node.op), "")
    elif isinstance(node, ast.Compare):
        hint = "use < or >: a parameter equals a number with probability 0"
    return ExpressionError(f"{_source(reader, node)} is not allowed{': ' + hint if hint else ''}; allowed: {ALLOWED}")
