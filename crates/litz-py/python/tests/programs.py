"""Makes random small programs of tensors, line by line, each run in eager mode as it is made."""

import contextlib
import random
from dataclasses import dataclass, field, replace

import torch
from checks import is_dense

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

# Sizes of a program's dimensions in its calls. With fixed sizes there are two calls of the same.
SIZES = ((3, 4, 2), (5, 2, 4), (2, 6, 3), (7, 3, 5))
FIXED = SIZES[:1] * 2

# Numbers that are made of a size.
NUMBERS = (
    "{}", "({} / 3)", "({} > 4)", "({} ** 0.5)", "int({} * 1.3)", "round({} / 2)", "({} & 3)", "({} % 3)", "max({} * 0.4, 1.5)", "(2 << ({} % 3))",
    "({} // 2 - 1)", "float({})", "(({0} > 3) & ({0} < 7))", "abs(4 - {})",
)  # fmt: skip


@dataclass
class Line:
    """One statement, `target = source`."""

    target: str
    source: str
    uses: tuple[str, ...]
    # Whether it rounds what it computes, and whether it writes to memory that is there.
    rounds: bool
    writes: bool = False

    def __str__(self):
        return f"{self.target} = {self.source}"


@dataclass
class Program:
    """A function of inputs, each the source of an expression in the sizes `A`, `B` and `C`."""

    seed: int
    inputs: dict[str, str]
    lines: list[Line] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    needs_grad: tuple[str, ...] = ()
    is_dynamic: bool = False
    calls: tuple[tuple[int, ...], ...] = FIXED

    def source(self) -> str:
        """The program as Python, with a function of sizes that makes its inputs."""
        made = "".join(f"    {name} = {source}\n" for name, source in self.inputs.items())
        grads = "".join(f"    {name}.requires_grad_()\n" for name in self.needs_grad)
        body = "".join(f"    {line}\n" for line in self.lines)
        names = ", ".join(self.inputs)
        return (
            f"def make(A, B, C):\n    torch.manual_seed({self.seed})\n{made}{grads}    return [{names}]\n\n\n"
            f"def program({names}):\n{body}    return [{', '.join(self.results)}]\n"
        )


@dataclass
class Value:
    """A value of the program that is being made, as eager mode has it."""

    name: str
    tensor: torch.Tensor
    is_exact: bool

    @property
    def is_float(self):
        return self.tensor.is_floating_point()

    @property
    def is_bool(self):
        return self.tensor.dtype is torch.bool


class Refused(Exception):
    """The statement is none for these operands."""


class Maker:
    """Makes one program, and runs each line in eager mode as it goes."""

    def __init__(self, seed, is_dynamic=False, with_grad=False):
        self.rng = random.Random(seed)
        self.is_dynamic, self.with_grad = is_dynamic, with_grad
        self.values: list[Value] = []
        self.count = 0
        self.program = Program(seed % 1_000_003, {}, is_dynamic=is_dynamic, calls=SIZES if is_dynamic else FIXED)

    def make(self) -> Program:
        self._inputs()
        for _ in range(self.rng.choice((2, 3, 4, 5, 6, 8, 10))):
            for _ in range(20):
                if self._line():
                    break
        last = [value.name for value in self.values[len(self.program.inputs) :]]
        several = last[-1:] + [name for name in last[:-1] if self.rng.random() < 0.3]
        if self.rng.random() < 0.1:
            several.append(self.rng.choice(list(self.program.inputs)))
        if self.with_grad and not any(self._of(name).tensor.requires_grad for name in several):
            several += [name for name in last if self._of(name).tensor.requires_grad][-1:]
        self.program.results = list(dict.fromkeys(several)) or list(self.program.inputs)[:1]
        return self.program

    # Inputs.

    def _inputs(self):
        for at in range(self.rng.choice((1, 2, 2, 3))):
            name = f"a{at}"
            given = [n for n in self.program.inputs if n not in self.program.needs_grad]
            if given and self.rng.random() < 0.08:
                of = self.rng.choice(given)
                source = f"{of}{self.rng.choice(('[1:]', '.flatten()[:2]', '[..., ::2]', '.mT', ''))}"
            else:
                source = self._input_source()
            try:
                env = {"torch": torch, **dict(zip("ABC", SIZES[0])), **{v.name: v.tensor for v in self.values}}
                torch.manual_seed(0)
                tensor = eval(source, env)
                if not isinstance(tensor, torch.Tensor):
                    raise Refused
            except Exception:
                source = "torch.randn(A, B)"
            self.program.inputs[name] = source
            if self.with_grad and "torch.float" in source or self.with_grad and "randn" in source and "to(" not in source:
                self.program.needs_grad += (name,)
            self.values.append(Value(name, None, True))
        env = {"torch": torch}
        exec(self.program.source().split("def program")[0], env)
        try:
            tensors = env["make"](*SIZES[0])
        except RuntimeError:
            self.program.needs_grad = ()
            exec(self.program.source().split("def program")[0], env)
            tensors = env["make"](*SIZES[0])
        for value, tensor in zip(self.values, tensors):
            value.tensor = tensor
        self.env = {"torch": torch, "F": torch.nn.functional, **{v.name: v.tensor for v in self.values}}

    def _input_source(self):
        rng = self.rng
        dims = [rng.choice("AABBC") for _ in range(rng.choice((0, 1, 2, 2, 2, 3, 3, 4)))]
        if self.rng.random() < 0.2 and dims:
            dims[rng.randrange(len(dims))] = "1"
        if self.with_grad and rng.random() < 0.7 or rng.random() < 0.5:
            dtype = rng.choice((torch.float32,) * 4 + FLOATS)
        else:
            dtype = rng.choice(FLOATS + INTEGERS + (torch.bool,))
        layout = rng.choice(("plain",) * 5 + ("transposed", "sliced", "expanded", "stepped", "permuted"))
        shape, after = list(dims), ""
        if layout == "transposed" and len(dims) >= 2:
            shape[-1], shape[-2], after = shape[-2], shape[-1], ".transpose(-1, -2)"
        elif layout == "permuted" and len(dims) >= 3:
            order = rng.sample(range(len(dims)), len(dims))
            shape = [dims[order.index(at)] for at in range(len(dims))]
            shape = [None] * len(dims)
            for at, of in enumerate(order):
                shape[of] = dims[at]
            after = f".permute({', '.join(map(str, order))})"
        elif layout == "sliced" and dims:
            shape[-1], after = f"{shape[-1]} + 2", "[..., 1:-1]"
        elif layout == "stepped" and dims:
            shape[0], after = f"2 * {shape[0]}", "[::2]"
        elif layout == "expanded" and dims:
            at = rng.randrange(len(dims))
            shape[at], after = "1", f".expand({', '.join(dims)})"
        sizes = f"({', '.join(shape)}{',' if len(shape) == 1 else ''})"
        if dtype is torch.bool:
            return f"(torch.rand{sizes if shape else '(())'} > 0.5){after}"
        if dtype in INTEGERS:
            low = 0 if dtype is torch.uint8 else -9
            return f"torch.randint({low}, 10, {sizes}, dtype={dtype}){after}"
        if rng.random() < 0.5:
            return f"(torch.randint(-12, 13, {sizes}) / 4).to({dtype}){after}"
        numbers = f"torch.randn({sizes}, dtype={dtype})"
        if rng.random() < 0.06 and not self.with_grad:
            numbers = f"{numbers}.masked_fill(torch.rand({sizes}) > 0.8, float('{rng.choice(('nan', 'inf', '-inf'))}'))"
        return numbers + after

    # Lines.

    def _line(self) -> bool:
        """Tries one line; whether eager mode took it."""
        before = {value.name: value.tensor._version for value in self.values}
        try:
            source, uses, kind, writes = self._choose()
            is_exact = kind == "exact" and all(self._of(name).is_exact for name in uses)
            is_exact = is_exact or kind == "rounding" and all(self._of(name).is_exact for name in uses) and self._is_exact(source, uses, writes)
            if writes and not is_exact and self._has_bits_of(uses[0]):
                raise Refused
            result = eval(source, self.env)
        except (Refused, RuntimeError, IndexError, ValueError, TypeError, NotImplementedError, AssertionError, ZeroDivisionError):
            if any(value.tensor._version != before[value.name] for value in self.values):
                raise AssertionError("a line wrote and failed") from None
            return False
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if any(not isinstance(one, torch.Tensor) or one.numel() > 400 for one in results):
            if not writes:
                return False
        name = f"v{self.count}"
        self.count += 1
        if writes:
            # Whatever shares its memory is as exact as it is.
            memory = result.untyped_storage().data_ptr()
            for value in self.values:
                if value.tensor.untyped_storage().data_ptr() == memory:
                    value.is_exact &= is_exact
        self.program.lines.append(Line(name, source, uses, kind != "exact" and not is_exact, writes))
        if isinstance(result, torch.Tensor):
            self._add(name, result, is_exact)
        else:
            self.env[name] = result
            for at, one in enumerate(results):
                part = f"v{self.count}"
                self.count += 1
                self.program.lines.append(Line(part, f"{name}[{at}]", (name,), False))
                self._add(part, one, is_exact)
        return True

    def _add(self, name, tensor, is_exact):
        if not tensor.is_floating_point():
            is_exact = True
        self.values.append(Value(name, tensor, is_exact))
        self.env[name] = tensor

    def _history(self, value) -> str:
        """Sources of the lines that values in the same memory come from."""
        memory = value.tensor.untyped_storage().data_ptr()
        alike = {other.name for other in self.values if other.tensor.untyped_storage().data_ptr() == memory}
        return " ".join(line.source for line in self.program.lines if line.target in alike)

    def _in_calls(self, name):
        """What a value is in each of the program's calls, as far as eager mode takes their sizes."""
        env = {"torch": torch, "F": torch.nn.functional}
        exec(replace(self.program, results=[name]).source(), env)
        for sizes in dict.fromkeys(self.program.calls):
            with contextlib.suppress(Exception):
                yield env["program"](*env["make"](*sizes))[0].detach()

    def _has_bits_of(self, name) -> bool:
        """Whether there are integers in the memory of a value, which would show how it was rounded."""
        memory = self._of(name).tensor.untyped_storage().data_ptr()
        return any(not value.is_float and value.tensor.untyped_storage().data_ptr() == memory for value in self.values)

    def _of(self, name):
        return next(value for value in self.values if value.name == name)

    def _is_exact(self, source, uses, writes):
        """Whether a line gives the same in double precision."""
        if any(self._of(name).tensor.dtype is torch.float64 for name in uses):
            return False
        wide = dict(self.env)
        for name in uses:
            tensor = self._of(name).tensor.detach()
            wide[name] = tensor.double() if tensor.is_floating_point() else tensor.clone()
        narrow = dict(self.env) | {name: self._of(name).tensor.detach().clone() for name in uses}
        one, other = eval(source, narrow), eval(source, wide)
        ones, others = ([x] if isinstance(x, torch.Tensor) else list(x) for x in (one, other))
        return all(torch.equal(a.double(), b.double()) and bool(a.isfinite().all()) for a, b in zip(ones, others))

    def _pick(self, holds=lambda value: True):
        """A value, later ones more often."""
        fitting = [value for value in self.values if holds(value)]
        if not fitting:
            raise Refused
        return fitting[max(self.rng.randrange(len(fitting)), self.rng.randrange(len(fitting)))]

    def _float(self):
        return self._pick(lambda value: value.is_float)

    def _exact(self):
        return self._pick(lambda value: value.is_exact)

    def _choose(self):
        makers = (
            (self._unary, 14), (self._binary, 16), (self._view, 20), (self._reduction, 9), (self._write, 12), (self._index, 8),
            (self._scatter, 5), (self._norm, 5), (self._product, 4), (self._join, 5), (self._where, 4), (self._conversion, 5),
            (self._scan, 3), (self._sort, 4), (self._discrete, 5), (self._factory, 2), (self._view_as, 3), (self._size, 2 if self.is_dynamic else 0),
            (self._element, 2), (self._control, 1),
        )  # fmt: skip
        (maker,) = self.rng.choices([maker for maker, _ in makers], [weight for _, weight in makers])
        source, uses, kind, *writes = maker()
        return source, tuple(dict.fromkeys(uses)), kind, bool(writes and writes[0])

    def _unary(self):
        x = self._pick()
        rng = self.rng
        exact = ("neg()", "abs()", "relu()", "clone()", "contiguous()", "clamp(-1, 2)", "clamp_min(0)", "logical_not()", "square()", "flip(0)", "roll(1, -1)", "tril()", "isfinite()", "isnan()", "nan_to_num(posinf=100.0, neginf=-100.0)", "positive()", "bitwise_not()")
        smooth = ("exp()", "sin()", "cos()", "tanh()", "sigmoid()", "atan()", "asinh()", "erf()", "expm1()", "abs().sqrt()", "abs().log1p()", "rsqrt()", "reciprocal()", "log()", "sqrt()", "pow(2)", "pow(3)", "abs().pow(0.5)", "softmax(-1)")
        names = ("F.gelu", "F.silu", "F.leaky_relu", "F.elu", "F.softplus", "F.hardtanh", "F.hardsigmoid", "F.relu6", "F.mish", "F.logsigmoid")
        if rng.random() < 0.4:
            method = rng.choice(exact)
            if x.is_float and not x.is_exact and method in ("logical_not()",):
                raise Refused
            # PyTorch 2.11 takes a bound below zero for one of the type's numbers.
            if "clamp(-1" in method and x.tensor.dtype == torch.uint8:
                raise Refused
            return f"{x.name}.{method}", [x.name], "rounding" if method == "square()" else "exact"
        if rng.random() < 0.3:
            x, name = self._float(), rng.choice(names)
            # Eager's vectors have other gradients where there is no number than what is left over of them.
            if self.with_grad and name in ("F.hardtanh", "F.relu6", "F.elu") and any(bool(value.isnan().any()) for value in self._in_calls(x.name)):
                raise Refused
            return f"{name}({x.name})", [x.name], "approximate"
        return f"{x.name}.{rng.choice(smooth)}", [x.name], "approximate"

    def _binary(self):
        rng, x = self.rng, self._pick()
        if rng.random() < 0.3:
            number = rng.choice(("2", "-1", "0.5", "3", "1.5", "True", "0.25"))
            if self.is_dynamic and rng.random() < 0.4 and x.tensor.dim():
                number = rng.choice(NUMBERS).format(f"{x.name}.shape[{rng.choice((0, -1))}]")
            sign = rng.choice("+-*/+-*")
            swapped = rng.random() < 0.3 and sign != "/"
            source = f"{number} {sign} {x.name}" if swapped else f"{x.name} {sign} {number}"
            return source, [x.name], "rounding"
        y = self._fitting(x)
        kind, how = rng.choice((
            ("rounding", "{} + {}"), ("rounding", "{} - {}"), ("rounding", "{} * {}"), ("approximate", "{} / {}"),
            ("exact", "torch.maximum({}, {})"), ("exact", "torch.minimum({}, {})"), ("approximate", "torch.atan2({}, {})"),
            ("rounding", "torch.add({}, {}, alpha=2)"), ("approximate", "torch.hypot({}, {})"), ("rounding", "torch.rsub({}, {})"),
            ("approximate", "torch.lerp({}, {}, 0.25)"), ("approximate", "torch.addcmul({0}, {0}, {1})"), ("approximate", "torch.logaddexp({}, {})"),
            ("exact", "torch.fmax({}, {})"), ("exact", "{} & {}"), ("exact", "{} | {}"), ("exact", "{} ^ {}"), ("exact", "torch.copysign({}, {})"),
        ))  # fmt: skip
        # Where its operands differ in size, PyTorch traces `copysign` with other strides than it gives.
        if "copysign" in how and (not (x.is_exact and y.is_exact) or x.tensor.shape != y.tensor.shape):
            raise Refused
        return how.format(x.name, y.name), [x.name, y.name], kind

    def _fitting(self, x):
        """A value that broadcasts with another one."""

        def broadcasts(value):
            with contextlib.suppress(RuntimeError):
                return torch.broadcast_shapes(value.tensor.shape, x.tensor.shape) is not None
            return False

        return self._pick(broadcasts)

    def _dim(self, x):
        if not x.tensor.dim():
            raise Refused
        return self.rng.randrange(-x.tensor.dim(), x.tensor.dim())

    def _view_source(self, x):
        """A view of a value, as source behind its name."""
        rng, n = self.rng, x.tensor.dim()
        name, shape = x.name, x.tensor.shape
        dim = self._dim(x) if n else 0
        size = shape[dim] if n else 0
        choices = [".unsqueeze(0)", ".unsqueeze(-1)", "[...]", ".detach()" if not self.with_grad else "[...]"]
        if n:
            start = rng.randrange(size) if size else 0
            choices += [
                f".transpose({dim}, {self._dim(x)})", f"[{start}:]", f"[..., {rng.choice((0, -1))}]", "[..., ::2]", "[1::3]", f".narrow({dim}, 0, 1)",
                f".select({dim}, {rng.choice((0, -1))})", ".flatten()", ".reshape(-1)", ".view(-1)", f".unfold({dim}, {rng.choice((1, 2))}, {rng.choice((1, 2))})",
                f".squeeze({dim})", ".squeeze()", f".expand(2, {', '.join(['-1'] * n)})", f".chunk(2, {dim})[0]", f".movedim({dim}, 0)", f".unbind({dim})[0]",
                f"[:, None]", f".split(2, {dim})[0]", f".flip({dim})", ".real",
            ]  # fmt: skip
        if n >= 2:
            order = rng.sample(range(n), n)
            choices += [".mT", ".mT", f".permute({', '.join(map(str, order))})", ".diagonal()", ".diagonal(1)", ".flatten(0, 1)", ".flatten(-2)", "[1:, 1:]", "[:, ::2]"]
            choices += [f".view({name}.shape[0] * {name}.shape[1], {', '.join(f'{name}.shape[{at}]' for at in range(2, n))})"]
        if n and 1 in shape:
            at = list(shape).index(1)
            choices += [f".expand({', '.join('3' if i == at else '-1' for i in range(n))})"]
        if n and not self.is_dynamic:
            if size % 2 == 0 and size:
                choices += [f".unflatten({dim}, (2, {size // 2}))"] * 2
            if x.tensor.numel() >= 4:
                choices += [".as_strided((2, 2), (1, 2))", ".as_strided((2,), (2,), 1)", ".as_strided((3, 2), (1, 1))"] if is_dense(x.tensor) else []
        return rng.choice(choices)

    def _view(self):
        x = self._pick()
        return f"{x.name}{self._view_source(x)}", [x.name], "exact"

    def _view_as(self):
        x = self._exact()
        dtype = self.rng.choice((torch.int32, torch.uint8, torch.int8, torch.int16, torch.int64, torch.float32, torch.float16, torch.bfloat16))
        if dtype.is_floating_point and not x.tensor.dtype.is_floating_point:
            # Any bits are a number; those that are NaN need not stay the same NaN.
            raise Refused
        if dtype.is_floating_point and dtype is not x.tensor.dtype:
            raise Refused
        if x.tensor.dtype is torch.bool:
            # Others than 0 and 1 would be written there.
            raise Refused
        return f"{x.name}.view({dtype})", [x.name], "exact"

    def _reduction(self):
        rng, x = self.rng, self._pick()
        dim = rng.choice(("", "", str(self._dim(x)) if x.tensor.dim() else "", "(0, -1)" if x.tensor.dim() > 1 else ""))
        keep = ", keepdim=True" if dim and rng.random() < 0.3 else ""
        kind, name = rng.choice((
            ("rounding", "sum"), ("rounding", "sum"), ("approximate", "mean"), ("exact", "amax"), ("exact", "amin"), ("rounding", "prod"), ("approximate", "var"),
            ("approximate", "std"), ("approximate", "logsumexp"), ("discrete", "any"), ("discrete", "all"), ("approximate", "norm"), ("discrete", "count_nonzero"),
            ("discrete", "argmax"), ("discrete", "argmin"), ("exact", "max"), ("exact", "min"),
        ))  # fmt: skip
        if kind == "discrete" and not x.is_exact:
            raise Refused
        if name in ("argmax", "argmin") and x.tensor.dtype is torch.bool:
            raise Refused
        if name == "norm":
            x = self._float()
            return f"torch.linalg.vector_norm({x.name})", [x.name], "approximate"
        if name in ("max", "min") and dim:
            return f"{x.name}.{name}({dim}{keep}).values", [x.name], "exact"
        return f"{x.name}.{name}({dim}{keep})", [x.name], "exact" if kind == "discrete" else kind

    def _write(self):
        rng = self.rng
        x = self._pick()
        view = self._view_source(x) if rng.random() < 0.5 and x.tensor.dim() else ""
        if any(bad in view for bad in ("unfold", "expand", "as_strided", "reshape", "flatten", "flip")):
            raise Refused
        target = eval(f"{x.name}{view}", self.env)
        # What is written to one element is written to those that share its place: PyTorch runs such a graph as a whole.
        memory = target.untyped_storage().data_ptr()
        alike = [value.tensor for value in self.values if value.tensor.untyped_storage().data_ptr() == memory]
        if any(torch._debug_has_internal_overlap(tensor) == 1 for tensor in [target, *alike]) or "(3, 2), (1, 1)" in self._history(x):
            raise Refused
        place = Value(f"{x.name}{view}", target, x.is_exact)
        if rng.random() < 0.4:
            kind, how = rng.choice((
                ("rounding", "mul_(2)"), ("rounding", "add_(1)"), ("exact", "zero_()"), ("exact", "neg_()"), ("exact", "fill_(3)"), ("approximate", "sin_()"),
                ("exact", "relu_()"), ("exact", "clamp_(-1, 1)"), ("approximate", "exp_()"), ("rounding", "sub_(0.5)"), ("exact", "abs_()"),
            ))  # fmt: skip
            if "clamp_(-1" in how and target.dtype == torch.uint8:
                raise Refused
            return f"{place.name}.{how}", [x.name], kind, True

        def fits(value):
            with contextlib.suppress(RuntimeError):
                return torch.broadcast_shapes(value.tensor.shape, target.shape) == target.shape
            return False

        y = self._pick(fits)
        if y.is_float and not y.is_exact and not target.is_floating_point():
            raise Refused
        if y.is_float and not target.is_floating_point() and not bool((y.tensor.abs() < 100).all()):
            raise Refused
        kind, how = rng.choice((("exact", "copy_({})"), ("exact", "copy_({})"), ("rounding", "add_({})"), ("rounding", "mul_({})"), ("rounding", "sub_({}, alpha=2)"), ("exact", "masked_fill_({} > 0, 1)"), ("approximate", "div_({})")))
        if "masked" in how and not y.is_exact:
            raise Refused
        return f"{place.name}.{how.format(y.name)}", [x.name, y.name], kind, True

    def _index(self):
        rng = self.rng
        x = self._pick(lambda value: value.tensor.dim() > 0 and value.tensor.numel() > 0)
        dim = self._dim(x)
        numbers = f"torch.tensor([{', '.join(str(rng.randrange(min(x.tensor.shape[dim], 2))) for _ in range(rng.choice((1, 2, 3))))}])"
        first = f"torch.tensor([{rng.choice(('0, 1, 0', '1, 0', '0', '-1, 0'))}])"
        choices = [
            f"{x.name}.index_select({dim}, {numbers})", f"{x.name}[{first}]", f"{x.name}[..., {first}]", f"{x.name}.repeat({', '.join(['2'] * x.tensor.dim())})",
            f"{x.name}.repeat_interleave(2, {dim})", f"F.pad({x.name}, (1, {rng.choice((0, 2, -1))}))", f"{x.name}.take(torch.tensor([0, 1, 0]))",
            f"{x.name}.gather({dim}, torch.zeros_like({x.name}, dtype=torch.int64))", f"{x.name}.tile(2)",
        ]  # fmt: skip
        if x.tensor.dim() >= 2:
            choices += [f"{x.name}[{first}, {first}]", f"{x.name}[:, {first}]", f"{x.name}[{first}[:, None], torch.tensor([0, 1])]"]
        return rng.choice(choices), [x.name], "exact"

    def _scatter(self):
        rng = self.rng
        x = self._pick(lambda value: value.tensor.dim() > 0 and min(value.tensor.shape) > 1)
        dim = self._dim(x)
        alike = [value.name for value in self.values if value.tensor.shape == x.tensor.shape and value.tensor.dtype is x.tensor.dtype]
        y = self._of(rng.choice(alike))
        first = rng.choice(("torch.tensor([1, 0])", "torch.tensor([1, 1])"))
        rows = f"{y.name}.narrow({dim}, 0, 2)"
        kind, source = rng.choice((
            ("rounding", f"{x.name}.index_add({dim}, {first}, {rows})"), ("exact", f"{x.name}.index_copy({dim}, torch.tensor([1, 0]), {rows})"),
            ("exact", f"{x.name}.index_fill({dim}, {first}, 2)"), ("rounding", f"{x.name}.scatter_add({dim}, torch.zeros_like({y.name}, dtype=torch.int64), {y.name})"),
            ("exact", f"{x.name}.scatter({dim}, torch.ones_like({y.name}.narrow({dim}, 0, 1), dtype=torch.int64), {y.name})"),
            ("exact", f"{x.name}.scatter_reduce({dim}, torch.zeros_like({y.name}, dtype=torch.int64), {y.name}, 'amax')"),
            ("exact", f"{x.name}.index_put((torch.tensor([1]),), {y.name}[:1])"), ("rounding", f"{x.name}.index_put(({first},), {y.name}[:2], accumulate=True)"),
            ("exact", f"{x.name}.slice_scatter({rows}, {dim}, 0, 2)"), ("exact", f"{x.name}.select_scatter({y.name}.select({dim}, 1), {dim}, 0)"),
            ("exact", f"{x.name}.masked_fill({y.name} > 0, 1)"),
        ))  # fmt: skip
        if "masked" in source and not y.is_exact:
            raise Refused
        return source, [x.name, y.name], kind

    def _norm(self):
        rng = self.rng
        x = self._pick(lambda value: value.is_float and value.tensor.dim() > 0)
        dim, name = self._dim(x), x.name
        choices = [f"{name}.softmax({dim})", f"{name}.log_softmax({dim})", f"F.layer_norm({name}, {name}.shape[-1:])", f"F.rms_norm({name}, {name}.shape[-1:])", f"F.normalize({name}, dim={dim})"]
        if x.tensor.dim() >= 3:
            choices += [f"F.group_norm({name}, 1)", f"F.instance_norm({name})"]
        if x.tensor.dim() >= 2:
            choices += [f"F.batch_norm({name}, None, None, training=True)"]
        return rng.choice(choices), [name], "approximate"

    def _product(self):
        x = self._pick(lambda value: value.tensor.dim() >= 1 and value.is_float)
        alike = lambda value: value.tensor.dtype is x.tensor.dtype and value.tensor.dim() >= 1
        y = self._pick(lambda value: alike(value) and value.tensor.shape[-2 if value.tensor.dim() > 1 else -1] == x.tensor.shape[-1])
        how = self.rng.choice(("{} @ {}", "{} @ {}", "torch.matmul({}, {}).mT", "F.linear({0}, {1}.mT)", "torch.einsum('...i,...i->...', {0}, {0})"))
        return how.format(x.name, y.name), [x.name, y.name], "approximate"

    def _join(self):
        x = self._pick(lambda value: value.tensor.dim() > 0)
        dim = self._dim(x)
        around = lambda shape: [size for at, size in enumerate(shape) if at != dim % x.tensor.dim()]
        y = self._pick(lambda value: value.tensor.dim() == x.tensor.dim() and around(value.tensor.shape) == around(x.tensor.shape))
        how = self.rng.choice(("torch.cat([{}, {}], {})", "torch.cat([{0}, {1}[:1], {0}], {2})", "torch.stack([{}, {}], {})", "torch.cat([{1}, {0}], {2})"))
        return how.format(x.name, y.name, dim), [x.name, y.name], "exact"

    def _where(self):
        x = self._pick()
        y = self._fitting(x)
        masks = [value for value in self.values if value.is_bool]
        condition = self.rng.choice(masks).name if masks and self.rng.random() < 0.5 else f"{self._exact().name} > 0"
        other = self.rng.choice((y.name, y.name, "0", "1.5", "float('-inf')"))
        return f"torch.where({condition}, {x.name}, {other})", [x.name, condition.split()[0]] + ([y.name] if other == y.name else []), "exact"

    def _conversion(self):
        x = self._pick()
        dtype = self.rng.choice(FLOATS + INTEGERS + (torch.bool,))
        if not dtype.is_floating_point and x.is_float:
            if not x.is_exact or dtype is not torch.bool and not bool((x.tensor.abs() < 100).all()):
                raise Refused
            if dtype is torch.uint8 and not bool((x.tensor >= 0).all()):
                raise Refused
        return f"{x.name}.to({dtype})", [x.name], "rounding"

    def _scan(self):
        x = self._pick(lambda value: value.tensor.dim() > 0)
        kind, name = self.rng.choice((("rounding", "cumsum"), ("rounding", "cumprod"), ("approximate", "logcumsumexp"), ("exact", "cummax")))
        return f"{x.name}.{name}({self._dim(x)}){'.values' if name == 'cummax' else ''}", [x.name], kind

    def _sort(self):
        x = self._pick(lambda value: value.tensor.dim() > 0)
        # Which of equal elements are taken is open, and gradients show it.
        if self.with_grad and any(value.unique().numel() != value.numel() for value in self._in_calls(x.name)):
            raise Refused
        dim = self._dim(x)
        choices = [f"{x.name}.sort({dim}).values", f"{x.name}.sort({dim}, descending=True).values", f"{x.name}.topk(2, {dim}).values", f"{x.name}.kthvalue(1, {dim}).values"]
        if x.is_exact:
            choices += [f"{x.name}.sort(dim={dim}, stable=True)", f"{x.name}.argsort(dim={dim}, stable=True)"]
        return self.rng.choice(choices), [x.name], "exact"

    def _discrete(self):
        rng, x = self.rng, self._exact()
        if rng.random() < 0.4:
            y = self._fitting(x)
            if not y.is_exact:
                raise Refused
            return f"{x.name} {rng.choice(('<', '<=', '==', '!=', '>', '>='))} {y.name}", [x.name, y.name], "exact"
        how = rng.choice(("floor()", "ceil()", "round()", "trunc()", "sign()", "sgn()", "signbit()", "frac()", "bool()", "logical_and(torch.tensor(True))"))
        if rng.random() < 0.5:
            how = rng.choice(("floor_divide(2)", "remainder(3)", "fmod(3)", "remainder(-2)", "div(2, rounding_mode='floor')", "div(-3, rounding_mode='trunc')", "gt(0)", "ne(1)", "bitwise_and(5)", "bitwise_left_shift(1)", "bitwise_right_shift(1)", "heaviside(torch.tensor(1.0))"))
        return f"{x.name}.{how}", [x.name], "rounding"

    def _factory(self):
        x = self._pick()
        name = x.name
        return self.rng.choice((f"torch.zeros_like({name})", f"torch.ones_like({name})", f"torch.full_like({name}, 2)", f"{name}.new_zeros(2, 3)", f"{name}.new_ones({name}.shape)", f"torch.arange({name}.numel())", f"torch.zeros({name}.shape)")), [name], "exact"

    def _element(self):
        """Arithmetic with an element, and with what it compares as."""
        x, y = self._float(), self._pick(lambda value: value.is_exact and value.tensor.numel() and not value.is_bool)
        number = f"{y.name}.detach().amax().item()"
        number = self.rng.choice((number, f"({number} * 2 + 1)", f"({number} > 1)", f"abs({number})", f"max({number}, 2)"))
        return f"{x.name} {self.rng.choice('+-*')} {number}", [x.name, y.name], "rounding"

    def _control(self):
        """A branch, by what elements or a size are."""
        x = self._pick(lambda value: value.is_float and value.is_exact and value.tensor.dim())
        holds = self.rng.choice(("{0}.sum() > 0", "{0}.shape[0] > 3", "{0}.detach().amax().item() > 1")).format(x.name)
        inner = "lambda a: torch.cond(a.sum() > 2, lambda b: b * 2, lambda b: b + b.shape[0], (a,))"
        yes, no = self.rng.choice(("lambda a: a * 2 + a.shape[0]", inner)), "lambda a: a.sin() - 1"
        return f"torch.cond({holds}, {yes}, {no}, ({x.name},))", [x.name], "approximate"

    def _size(self):
        x = self._pick(lambda value: value.tensor.dim() > 0)
        name = x.name
        return self.rng.choice((f"{name}[: {name}.shape[0] // 2]", f"{name} * {name}.shape[-1]", f"{name}[{name}.shape[0] // 2 :]", f"torch.arange({name}.shape[0])", f"{name}.expand({name}.shape[0], *{name}.shape)", f"torch.full(({name}.shape[-1],), {name}.numel())", f"F.pad({name}, (0, {name}.shape[-1] % 4))")), [name], "rounding"
