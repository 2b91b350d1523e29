"""Decides what the symbols of a graph are, and says numbers that PyTorch computes of them: as expressions of texts, or by lines that compute
them.

PyTorch's `ShapeEnv` has an expression of sympy for each integer, float and condition. Texts have expressions of integers alone, and those
that are exact: `floordiv(s0, 2)` stands for `TruncToInt(0.5*ToFloat(s0))`. What goes through floats that round is computed when the graph
runs, by the functions of Python that the user has called, and an integer made so is a symbol of its own from there on.
"""

import builtins
import functools
import itertools
import math
import operator
from collections import ChainMap

import sympy
import torch

from . import _litz
from .errors import NotConverted


class Symbols:
    """The symbols of one graph. `line` appends a line to its text. `outer` are the symbols of the graph around it, whose values it can use."""

    def __init__(self, line, solved, wholes, outer=None):
        self._line, self.outer = line, outer
        # What PyTorch knows of symbols, as soon as there are some.
        self.env = None
        # Symbols that are no size of an input by themselves, as expressions of others, and symbols that stand for such sizes: see `solve`.
        self.solved, self.wholes = solved, wholes
        # What symbols of a graph that is written in the place of a call are around it, and what those are called that it makes.
        self.renamed, self.origins = {}, outer.origins if outer else {}
        # Symbols that the text has, those that have a value so far, and conditions that calls have to hold.
        self.used, self._given, self.guards = set(), set(), []
        # Integers that lines compute, and the symbols that stand for them.
        self.computed = ChainMap({}, outer.computed) if outer else ChainMap({})
        # Floats and conditions that values of the text hold, by their names; and the names of conditions that PyTorch has as a symbol that
        # is 0 or 1.
        self.values, self._truths = {}, {}
        self._numbers = outer._numbers if outer else itertools.count()

    # What has a value.

    def give(self, name, value):
        """Notes that a value of the text holds a value of PyTorch's, and with it its symbols."""
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            expr = self.expr(value)
            self.values.setdefault(expr, name)
            if isinstance(expr, sympy.Eq) and expr.lhs.is_Symbol and expr.rhs == 1:
                self._truths[expr.lhs] = name
        self._given |= self.mentioned(value)

    def mentioned(self, value) -> set:
        """The symbols of a value: of a number, of the sizes and strides of a tensor, or of those in a list."""
        return set().union(*(self.expr(number).free_symbols for number in numbers_in(value) if isinstance(number, SYMBOLIC)))

    def has(self, symbols) -> bool:
        """Whether all of some symbols have values, here or in a graph around this one."""
        missing = symbols - self._given
        return not missing or self.outer is not None and self.outer.has(missing)

    def inside(self, graph, operands, results) -> dict:
        """What symbols are around a graph that is written in the place of a call with some operands, which is traced to give some results. Those
        that the graph makes have names of their own in each call.
        """
        renamed = {}
        inputs, outputs = graph.find_nodes(op="placeholder"), graph.output_node().args[0]
        for inner, outer in _pairs([node.meta.get("val") for node in inputs], operands):
            if inner.is_Symbol and (expr := self.expr(outer)) != inner:
                renamed[inner] = expr
        is_own = lambda symbol: symbol not in renamed and not self.has({symbol})
        returned = [node.meta.get("val") if isinstance(node, torch.fx.Node) else node for node in outputs]
        for inner, outer in _pairs(returned, results):
            expr = self.expr(outer)
            if inner.is_Symbol and is_own(inner) and expr.is_Symbol and not self.has({expr}):
                renamed[inner] = expr
        values = [node.meta.get("val") for node in graph.nodes]
        made = {symbol for number in numbers_in(values) if isinstance(number, SYMBOLIC) for symbol in number.node.expr.free_symbols}
        for symbol in sorted(filter(is_own, made), key=str):
            name = sympy.Symbol(f"{symbol.name}.{next(self._numbers)}", integer=symbol.is_integer)
            renamed[symbol], self.origins[name] = name, symbol
        return self.renamed | renamed

    # What texts say.

    def expr(self, value):
        """The expression of a number in symbols that inputs give."""
        if isinstance(value, SYMBOLIC):
            self.env = value.node.shape_env
        expr = value.node.expr if isinstance(value, SYMBOLIC) else sympy.sympify(value)
        expr = expr.xreplace(self.renamed) if self.renamed else expr
        if not self.solved:
            return expr
        expr = expr.xreplace(self.solved)
        # Floats are to be computed in the order of the program.
        return expr if _is_condition(expr) or not _is_whole(expr) else sympy.expand(expr)

    def integer(self, expr) -> str:
        """The text of an integer expression."""
        text = self._exact(expr)
        if text is None:
            # Integers that are computed in it are symbols then.
            for part in filter(_is_integer, expr.args):
                self.integer(part)
            text = self._exact(expr)
        if text is None:
            if self.outer is not None and self.outer.has(expr.free_symbols):
                self.outer.integer(expr)
            else:
                self._compute(expr, self._call(expr), "int")
            text = self._exact(expr)
        return text

    def number(self, expr) -> str:
        """The text of a number, or of a condition, as an argument."""
        if expr is sympy.true or expr is sympy.false:
            return str(expr).lower()
        if expr in self.values:
            return f"%{self.values[expr]}"
        if expr.is_Float or expr.is_Rational and not expr.is_Integer:
            return repr(float(expr))
        if _is_integer(expr):
            return self.integer(expr)
        if expr.is_Symbol:
            raise NotConverted(f"the number {expr}")
        return self._compute(expr, self._call(expr), "bool" if _is_condition(expr) else "float")

    def computes(self, node, name, arguments) -> bool:
        """Writes the line of a node that computes a number, under a name, by the function that the user has called; false where texts need no
        line, as they have an expression for it. `arguments` gives the texts of the node's arguments.
        """
        value = node.meta["val"]
        expr, function = self.expr(value), _FUNCTIONS.get(node.target)
        if isinstance(value, torch.SymInt):
            # What the graph around this one can compute is computed there, as types of both may have it.
            is_known = self._exact(expr) is not None or self.outer is not None and self.outer.has(expr.free_symbols)
        else:
            is_known = isinstance(value, torch.SymBool) and (expr in self.values or self._clauses(expr) is not None)
        if is_known or function is None:
            return False
        self._compute(expr, (function, arguments()), _TYPES[type(value)], name)
        return True

    def require(self, expr, message):
        """Has calls fail, with a message in quotes, where a condition does not hold."""
        if expr is sympy.false:
            raise NotConverted(f"a condition that never holds: {message}")
        clauses = self._clauses(expr) if expr not in self.values else None
        if clauses is None:
            self._line(f"aten._assert_scalar.default({self.number(expr)}, {message})")
            return
        for clause in clauses:
            self.guards.append(f"guard {clause} for {message}")

    def known(self, expr) -> list[str]:
        """The texts of clauses that a condition says; none where texts have no such clauses, or where the text lacks its symbols."""
        clauses = condition(expr) if expr.free_symbols and expr.free_symbols <= self.used else None
        return clauses or []

    def _exact(self, expr) -> str | None:
        return self._said(expression, expr)

    def _clauses(self, expr) -> list[str] | None:
        return self._said(condition, expr)

    def _said(self, say, expr):
        """What `say` says of an expression in symbols that the text has."""
        known = expr.xreplace(self.computed)
        for symbol in known.free_symbols:
            self._count(symbol)
        known = known.xreplace(self.computed)
        # What may be 0 divides in a line, which fails the call then, as Python does.
        said = say(known) if all(map(self._is_divisor, divisors(known))) else None
        if said is not None:
            self.used |= known.free_symbols
        return said

    def _is_divisor(self, expr) -> bool:
        """Whether an expression is known not to be 0."""
        made = {symbol: of for of, symbol in self.computed.items()}
        known = expr.xreplace(made).xreplace(self.wholes).xreplace(self.origins)
        bounds = self.env.bound_sympy(known) if self.env is not None else None
        return bounds is not None and bool(bounds.lower > 0 or bounds.upper < 0)

    def _count(self, symbol):
        """Makes an integer of a condition that PyTorch has as a symbol, where it is one."""
        if symbol in self._truths:
            self._compute(symbol, ("torch.sym_ite", [f"%{self._truths[symbol]}", "1", "0"]), "int")
        elif self.outer is not None and symbol not in self._given:
            self.outer._count(symbol)

    def _compute(self, expr, call, ty, name=None) -> str:
        """Writes a line that computes a number of a type; its text as an argument."""
        function, args = call
        if function == "builtins.round" and len(args) == 1:
            args.append("none")
        name = name or f"number.{next(self._numbers)}"
        if ty == "int":
            symbol = sympy.Symbol(f"number.{next(self._numbers)}", integer=True)
            self.computed[expr] = symbol
            self.used.add(symbol)
            self._given.add(symbol)
            ty = f"int({symbol.name})"
        else:
            self.values.setdefault(expr, name)
        self._line(f"%{name}: {ty} = {function}({', '.join(args)})")
        return f"%{name}"

    def _call(self, expr):
        """The function that gives an expression its value, and the texts of its arguments."""
        kind, args = type(expr).__name__, expr.args
        if kind == "Piecewise":
            # The last condition is true.
            (value, holds), *rest = args
            other = sympy.Piecewise(*rest) if len(rest) > 1 else rest[0][0]
            return "torch.sym_ite", [self.number(holds), self.number(value), self.number(other)]
        if kind == "TruncToFloat":
            return "torch.sym_float", [self.integer(_made("TruncToInt", *args))]
        if kind == "ModularIndexing":
            return "_operator.mod", [self.integer(_made("FloorDiv", *args[:2])), self.number(args[2])]
        if kind.startswith("OpaqueUnaryFn_"):
            return f"torch._sym_{kind.removeprefix('OpaqueUnaryFn_')}", [self.number(args[0])]
        function = _OF_SYMPY.get(kind)
        if function is None:
            raise NotConverted(f"the number {expr}")
        texts = [self.number(arg) for arg in args]
        while len(texts) > 2 and kind in _FOLDED:
            first = expr.func(*args[: len(args) - len(texts) + 2], evaluate=False)
            ty = "bool" if _is_condition(expr) else "int" if _is_integer(expr) else "float"
            texts = [self._compute(first, (function, texts[:2]), ty), *texts[2:]]
        return function, texts


SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def numbers_in(value) -> list:
    """The numbers of a value: itself, the sizes and strides of a tensor, or those of what is in a list."""
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in numbers_in(item)]
    if isinstance(value, torch.Tensor):
        return [*value.shape, *(value.stride() if value.layout == torch.strided else ())]
    return [value] if isinstance(value, (int, float, *SYMBOLIC)) else []


def _pairs(inner, outer):
    """What a graph and its caller say of the same numbers: the graph's expressions, and the caller's numbers."""
    for one, other in zip(inner, outer):
        numbers = numbers_in(one), numbers_in(other)
        if len(numbers[0]) == len(numbers[1]):
            yield from ((number.node.expr, of) for number, of in zip(*numbers) if isinstance(number, SYMBOLIC))


@functools.lru_cache(8192)
def expression(expr) -> str | None:
    """The text of an integer expression; none where it has no exact integer meaning."""
    return _litz.expression(_printed(expr))


@functools.lru_cache(8192)
def condition(expr) -> list[str] | None:
    """The texts of clauses that hold together where a condition holds; none where texts have no such clauses."""
    return _litz.condition(_printed(expr))


@functools.lru_cache(8192)
def divisors(expr) -> list:
    """What is divided by in an expression, but for numbers."""
    parts = sympy.preorder_traversal(expr)
    found = (part.args[1] for part in parts if type(part).__name__ in ("FloorDiv", "CleanDiv", "Mod", "PythonMod"))
    return [divisor for divisor in found if not divisor.is_number]


def _printed(expr) -> str:
    """An expression as `sympy.srepr` prints it."""
    if expr.is_Integer:
        return f"Integer({int(expr)})"
    if expr.is_Symbol:
        return f"Symbol('{expr.name}'{', integer=True' if expr.is_integer else ''})"
    if expr.is_Float:
        return f"Float('{float(expr)!r}')"
    if expr is sympy.true or expr is sympy.false:
        return str(expr).lower()
    if (expr.is_Add or expr.is_Mul) and _is_whole(expr):
        numerator, denominator = sympy.fraction(sympy.together(expr)) if expr.has(sympy.Rational) else (expr, 1)
        if denominator != 1 and denominator.is_Integer:
            # PyTorch's integer expressions with a rational factor divide without a rest.
            return f"FloorDiv({_printed(sympy.expand(numerator))}, {_printed(denominator)})"
    return f"{type(expr).__name__}({', '.join(map(_printed, expr.args))})"


def _is_whole(expr) -> bool:
    """Whether no float is in an expression."""
    return not any(part.is_Float or type(part).__name__ in _FLOATS for part in sympy.preorder_traversal(expr))


def _is_condition(expr) -> bool:
    # Symbols are of this type, too, and none of PyTorch's is a condition.
    return isinstance(expr, sympy.logic.boolalg.Boolean) and not expr.is_Symbol


def _is_integer(expr) -> bool:
    """Whether an expression is an integer. Sympy does not know it of all of PyTorch's functions."""
    kind = type(expr).__name__
    if kind in ("Mod", "PythonMod"):
        return all(map(_is_integer, expr.args))
    return not _is_condition(expr) and not expr.is_Float and (bool(expr.is_integer) or kind.startswith("BitwiseFn_"))


def _made(kind, *args):
    """An application of a function of PyTorch's."""
    from torch.utils._sympy import functions

    return getattr(functions, kind)(*args)


_TYPES = {torch.SymInt: "int", torch.SymFloat: "float", torch.SymBool: "bool"}

# Functions whose values are floats.
_FLOATS = ("ToFloat", "IntTrueDiv", "FloatTrueDiv", "FloatPow", "TruncToFloat", "RoundDecimal")

# The functions of Python's numbers that texts have, by the names of sympy's functions.
_OF_SYMPY = {
    "Add": "_operator.add",
    "Mul": "_operator.mul",
    "Pow": "_operator.pow",
    "FloatPow": "_operator.pow",
    "PowByNatural": "_operator.pow",
    "FloorDiv": "_operator.floordiv",
    "CleanDiv": "_operator.floordiv",
    "Mod": "_operator.mod",
    "PythonMod": "_operator.mod",
    "IntTrueDiv": "_operator.truediv",
    "FloatTrueDiv": "_operator.truediv",
    "LShift": "_operator.lshift",
    "RShift": "_operator.rshift",
    "Abs": "_operator.abs",
    "BitwiseFn_bitwise_and": "_operator.and_",
    "BitwiseFn_bitwise_or": "_operator.or_",
    "BitwiseFn_bitwise_xor": "_operator.xor",
    "And": "_operator.and_",
    "Or": "_operator.or_",
    "Not": "torch.sym_not",
    "Equality": "_operator.eq",
    "Unequality": "_operator.ne",
    "StrictLessThan": "_operator.lt",
    "LessThan": "_operator.le",
    "StrictGreaterThan": "_operator.gt",
    "GreaterThan": "_operator.ge",
    "Max": "torch.sym_max",
    "Min": "torch.sym_min",
    "Where": "torch.sym_ite",
    "ITE": "torch.sym_ite",
    "Identity": "_operator.pos",
    "ToFloat": "torch.sym_float",
    "TruncToInt": "math.trunc",
    "FloorToInt": "math.floor",
    "CeilToInt": "math.ceil",
    "RoundToInt": "builtins.round",
    "RoundDecimal": "builtins.round",
}

# Those that take any number of arguments, two at a time.
_FOLDED = ("Add", "Mul", "And", "Or", "Max", "Min")


def _functions():
    """The functions of Python's numbers that texts have, by the functions that graphs call."""
    binary = "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor eq ne lt le gt ge neg pos abs".split()
    unary = "sqrt cos cosh sin sinh tan tanh asin acos atan asinh exp log log2".split()
    found = {getattr(operator, name): f"_operator.{name}" for name in binary}
    found |= {getattr(math, name): f"math.{name}" for name in ("trunc", "floor", "ceil")}
    found |= {getattr(torch, name): f"torch.{name}" for name in ("sym_float", "sym_int", "sym_not", "sym_ite", "sym_max", "sym_min")}
    found |= {getattr(torch, f"_sym_{name}"): f"torch._sym_{name}" for name in unary if hasattr(torch, f"_sym_{name}")}
    return found | {torch.sym_sqrt: "torch._sym_sqrt", builtins.round: "builtins.round"}


_FUNCTIONS = _functions()
