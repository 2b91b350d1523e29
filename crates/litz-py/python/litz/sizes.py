"""Solves for the symbols of PyTorch's sizes by what inputs give, and says what is known of them."""

import sympy
from torch.fx.experimental.symbolic_shapes import statically_known_true

from .symbols import expression

def at_least_one(expr):
    """An expression without the bounds of 1 that PyTorch puts to sizes in strides."""
    is_bound = lambda part: type(part).__name__ == "Max" and sympy.Integer(1) in part.args
    return sympy.sympify(expr).replace(is_bound, lambda part: part.func(*(arg for arg in part.args if arg != 1)))


def solve(sizes, numbers) -> tuple[dict, dict]:
    """How symbols that no input gives alone follow from what inputs give: `solved`, each as an expression of others, and `wholes`, the symbols
    made for that, each with what it stands for. `sizes` and `numbers` are expressions, those of tensors and of integers that are inputs.

    A call gives symbols their values by sizes of tensors first, each of one symbol that is not known yet, and then by integers that are a
    symbol. For a size `s0 + s1` and an integer `s0` this gives `{s1: s1_whole - s0}` and `{s1_whole: s0 + s1}`: the size is a symbol then. So
    is `s0*s1`, by `{s0*s1: s0_whole}`, where that is a size, and a size that texts have no expression for.
    """
    solved, wholes = {}, {}
    sized = {size for size in sizes if size.is_Symbol}
    given = sized | {number for number in numbers if number.is_Symbol}
    for expr, is_size in [*((size, True) for size in sizes), *((number, False) for number in numbers)]:
        if expr in solved:
            continue
        if is_size and expression(expr) is None:
            whole = sympy.Symbol(f"size_whole{len(wholes) or ''}", integer=True)
            solved, wholes[whole] = solved | {expr: whole}, expr
            sized.add(whole)
            given.add(whole)
            continue
        sum = sympy.expand(expr.xreplace(solved))
        known = sized if is_size else given
        # Those that nothing gives are replaced before those that integers give.
        missing = sorted(sum.free_symbols - known, key=lambda symbol: (symbol in given, symbol.name))
        if not missing:
            continue
        if is_size and len(missing) == 1 and _factor(sum, missing[0]) is not None:
            sized |= {*missing}
            given |= {*missing}
            continue
        unit = next((symbol for symbol in missing if _factor(sum, symbol) in (1, -1)), None)
        whole = sympy.Symbol(f"{missing[0] if unit is None else unit}_whole{len(wholes) or ''}", integer=True)
        if unit is None:
            solved = solved | {expr: whole}
        else:
            factor = _factor(sum, unit)
            value = factor * (whole - (sum - factor * unit))
            solved = {of: found.xreplace({unit: value}) for of, found in solved.items()} | {unit: value}
        wholes[whole] = expr
        known.add(whole)
        given.add(whole)
    return solved, wholes


def _factor(sum, symbol):
    """What a symbol is multiplied by in a sum; none where that, or the rest, has the symbol, too."""
    factor = sum.coeff(symbol)
    rest = sympy.expand(sum - factor * symbol)
    return None if symbol in factor.free_symbols | rest.free_symbols else factor


def facts(shape_env, symbols) -> list[str]:
    """What is known of the symbols of a text, one line each: ranges, hints, and relations that PyTorch guards."""
    lines, relations = [], []
    # What it is called in an older PyTorch warns in a newer one.
    hints = shape_env.backed_var_to_val if hasattr(shape_env, "backed_var_to_val") else shape_env.var_to_val
    # Symbols that stand for expressions.
    made = symbols.wholes | {symbol: expr for expr, symbol in symbols.computed.items()}
    for symbol in sorted(symbols.used, key=lambda symbol: symbol.name):
        line = f"sym {expression(symbol)}"
        expr = made.get(symbol)
        while expr is not None and not made.keys().isdisjoint(expr.free_symbols):
            # PyTorch knows nothing of symbols that are made here.
            expr = expr.xreplace(made)
        symbol = symbols.origins.get(symbol, symbol)
        known = shape_env.var_to_range.get(symbol) if expr is None else shape_env.bound_sympy(expr)
        if known is not None:
            low, high = _range(known)
            line += f" in [{low}, {high}]"
        hint = hints.get(symbol) if expr is None else expr.xreplace(hints)
        if hint is not None and getattr(hint, "is_Integer", isinstance(hint, int)):
            line += f" hint {int(hint)}"
        lines.append(line)
    if symbols.outer is None:
        solved = symbols.solved
        alone = {symbol: value for symbol, value in solved.items() if symbol.is_Symbol}
        for symbol, value in solved.items():
            if not symbol.is_Symbol:
                relations.append(sympy.Eq(value, sympy.expand(symbol.xreplace(alone)), evaluate=False))
            if (known := shape_env.var_to_range.get(symbol)) is not None:
                low, high = _range(known)
                relations += [sympy.Ge(value, low, evaluate=False)] if low != "-inf" else []
                relations += [sympy.Le(value, high, evaluate=False)] if high != "inf" else []
        for expr in [*relations, *(guard.expr.xreplace(solved) for guard in shape_env.guards)]:
            lines += [f'guard {clause} for "PyTorch"' for clause in symbols.known(expr)]
    return list(dict.fromkeys([*lines, *symbols.guards]))


def _range(known):
    """Bounds of a symbol, as texts have them."""
    low = known.lower if known.lower.is_Integer else "-inf"
    high = known.upper if known.upper.is_Integer and known.upper < 2**62 else "inf"
    return low, high


def is_dense(value) -> bool:
    """Whether a tensor is known to have each element of its memory once, so that its own strides are those that Litz gives it."""
    dims, expected = list(zip(value.shape, value.stride())), 1
    if any(is_known(size, 0) for size, _ in dims):
        return True
    dims = [(size, stride) for size, stride in dims if not is_known(size, 1)]
    while dims:
        inner = next((at for at, (_, stride) in enumerate(dims) if is_known(stride, expected)), None)
        if inner is None:
            return False
        expected = expected * dims.pop(inner)[0]
    return True


def is_known(number, value) -> bool:
    """Whether two sizes are known to be the same, without a guard."""
    return statically_known_true(number == value)
