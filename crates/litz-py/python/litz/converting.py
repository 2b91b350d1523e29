"""Converts PyTorch's graphs of ATen operators to texts of Litz: their inputs, nodes, the graphs inside of them, and what they return."""

import itertools
import operator
from dataclasses import dataclass

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

from . import _litz, attention, collectives, effects, hops, random, refusals
from .errors import NotConverted
from .host import overload
from .sizes import at_least_one, facts, is_dense, is_known
from .symbols import SYMBOLIC
from .types import DTYPES, operator_name
from .writer import SEED, Given, Writer, is_object, numbers_given, quoted, reads_data, val

aten = torch.ops.aten


@dataclass
class Converted:
    """A graph as Litz takes it."""

    text: str
    # Which of the graph's arguments the program takes, in its order.
    taken: list[int]
    # Tensors that the graph holds, by the names that the text has for them.
    constants: dict[str, torch.Tensor]
    # What each returned value is, as `_litz.compile_graph` takes it.
    returned: list[tuple]
    # Whether the program takes a seed behind the graph's arguments.
    is_seeded: bool
    # Arguments, by position, that may have a pending conjugation or negation (`Tensor.is_conj`, `Tensor.is_neg`), which calls resolve.
    lazy: list[int]
    # For arguments, by position, where in their storages they have to begin (`Tensor.storage_offset`).
    offsets: dict[int, int]
    # Arguments, by position, of which no two elements may share memory, or the result of an operator would be another one.
    apart: list[int]
    # Operators of PyTorch's whose calls keep their order, since they have effects.
    ordered: list[str]
    # Whether calls write over arguments that the caller gives up.
    donates: bool
    # What operators of PyTorch's take that is no value of Litz, by the names that the text has for it: objects, or which argument is one.
    objects: dict[str, object]
    # How many arguments the graph has.
    arguments: int
    # Arguments, by position, that another process may still be writing to: the graph waits for them.
    awaited: list[int]
    # Calls of operators that exchange with other processes, in their order, each with its group.
    exchanges: list[tuple[str, str]]
    # The number of the GPU in whose memory all tensors are; none where that is the host's.
    gpu: int | None = None


def convert(
    module: torch.fx.GraphModule,
    frozen: dict | None = None,
    is_seeded: bool = True,
    hosted: frozenset | set = frozenset(),
    is_backward: bool = False,
    donated: frozenset | set = frozenset(),
) -> Converted:
    """The text of a graph that AOTAutograd gave. `frozen` are arguments, by position, that are constants. With `is_seeded` random operators are
    Litz's own, else PyTorch's. PyTorch runs those of `hosted`, too. `is_backward` is for graphs of derivatives. Calls may leave anything in the
    memory of the arguments `donated`, by name.

    Raises `NotConverted` where the graph has what no text can say.
    """
    settings = {"is_seeded": is_seeded, "hosted": hosted, "is_backward": is_backward, "donated": donated}
    return _Converter(module, "main", frozen or {}, **settings).write()


def _device(module) -> torch.device:
    """Where a graph's tensors are: on the GPU that those are on which are not with the host, else with the host."""
    values = [value for node in module.graph.nodes for value in pytree.tree_leaves(node.meta.get("val"))]
    devices = {value.device for value in values if isinstance(value, torch.Tensor)}
    gpus = sorted((device for device in devices if device.type == "cuda"), key=lambda gpu: gpu.index)
    if len(gpus) > 1:
        raise NotConverted(f"tensors on {' and '.join(map(str, gpus))}: a graph runs on one GPU")
    return gpus[0] if gpus else torch.device("cpu")


class _Converter(Writer):
    """Converts one graph, and by converters of their own those inside of it."""

    def __init__(self, module, name, frozen, outer=None, is_seeded=False, hosted=frozenset(), is_backward=False, donated=frozenset()):
        super().__init__(module, outer, is_seeded, is_backward)
        self.module, self.graph_name, self.frozen = module, name, frozen
        self.device = outer.device if outer else _device(module)
        # As for `_last_writes`: where a check of data fails, PyTorch runs the graph on the same arguments. Graphs inside may have such checks.
        may_fail = any(_checks_data(node) or isinstance(node.target, torch._ops.HigherOrderOperator) for node in module.graph.nodes)
        self.donated, self.donates = frozenset() if may_fail else donated, False
        # Operators that PyTorch runs although Litz has them.
        self.hosted = outer.hosted if outer else hosted
        # Texts of the graphs inside of this one, and how many there are in the whole graph so far.
        self.subgraphs, self.counted = [], 0
        self.constants, self.taken, self.lazy = {}, [], []
        # For inputs, by position, where in their storages they have to begin; and inputs that calls copy where they are not row-major.
        self.offsets, self.copied = {}, set()
        # Inputs, by position, that calls copy and whose elements an operator takes to be apart.
        self.apart = set()
        # Inputs, by position, that the graph waits for, and its collectives with their groups.
        self.awaited, self.exchanges = [], outer.exchanges if outer else []
        # Integers among the inputs that the program takes, and symbols that are sizes of inputs.
        self.numbers, self._sized = set(), None
        # Nodes that are tokens of `with_effects`, which texts do not have.
        self.tokens = set()
        # The storage of each node's tensor, and the node whose tensor it is a view of, itself or another one.
        self.memory, self.viewed = {}, {}
        # For calls of graphs that are written in their place: which operand each result is; and the operands that such results are, by node.
        self.passed, self.same = {}, {}
        # Calls of `copy_` that are written as updates of inputs, as soon as that is known: see `_last_writes`.
        self.updates = {} if outer else None

    def write(self) -> Converted:
        """Converts the whole graph."""
        graph = self.module.graph
        inputs = graph.find_nodes(op="placeholder")
        for position, node in enumerate(inputs):
            self._input(position, node)
        self._nodes(graph)
        if self.streams:
            # Behind the graph's arguments; inputs of the text are in the order of `taken`.
            self.taken.insert(0, len(inputs))
            self.lines.insert(0, f"%{SEED}: i64[] = input")
        for node, (written, elements) in (self.updates or {}).items():
            self.lines.append(f"update {self.argument(written)} = {self.argument(elements)}")
        returned = self._output(graph.output_node())
        self._missing_numbers()
        text = self._text(self.declared.values())
        is_ordered = lambda op, line: " effect ordered" in line or collectives.is_collective(overload(op))
        ordered = [op for op, line in self.declared.items() if is_ordered(op, line)]
        return Converted(
            text,
            self.taken,
            self.constants,
            returned,
            bool(self.streams),
            self.lazy,
            self.offsets,
            sorted(self.apart),
            ordered,
            self.donates,
            self.objects,
            len(inputs),
            self.awaited,
            self.exchanges,
            self.device.index if self.device.type == "cuda" else None,
        )

    def _text(self, head):
        """The text of this graph, with what is known of its symbols and the lines of `head` first."""
        env = _shape_env(self.root().module)
        known = facts(env, self.symbols) if env is not None and self.symbols.used else []
        body = [f"  {line}" for line in [*known, *head, *self.subgraphs, *self.lines]]
        return "\n".join([f"graph @{self.graph_name} on cpu {{", *body, "}", ""])

    def _nodes(self, graph):
        for node in graph.nodes:
            if node.op == "placeholder":
                self._remember(node)
            elif node.op == "get_attr":
                self._attribute(node)
            elif node.op == "call_function":
                self._call(node)
                self._remember(node)
            elif node.op != "output":
                raise NotConverted(f"a node of kind {node.op}")

    def attribute(self, node):
        """The graph, or the constant, that a node names."""
        value = self.module
        for part in node.target.split("."):
            value = getattr(value, part)
        return value

    def subgraph(self, node) -> str:
        """Writes the graph that a node names, as a graph inside of this one; its name."""
        root = self.root()
        root.counted += 1
        name = f"{node.name}_{root.counted}"
        inner = _Converter(self.attribute(node), name, {}, self)
        graph = inner.module.graph
        for position, of in enumerate(graph.find_nodes(op="placeholder")):
            inner._input(position, of, is_kept=True)
        inner._nodes(graph)
        outputs = graph.output_node().args[0]
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        inner.lines.append("return " + ", ".join(inner.argument(output) for output in outputs))
        self.subgraphs.append(inner._text([]).rstrip().replace("\n", "\n  "))
        return name

    def inline(self, module, operands, call, first=0) -> dict[int, str]:
        """Writes the nodes of a graph in the place of a call, with these values for its inputs; names of its results by position, but of those that
        are None. The graph's results are the call's from the position `first` on.
        """
        around, self.module, prefix, self.prefix = self.module, module, self.prefix, f"{self.prefix}{call.name}."
        for node, operand in operands.items():
            if isinstance(operand, torch.fx.Node) and operand not in self.literals:
                self.names[node] = self.names.get(operand, prefix + operand.name)
                # Of an earlier call of the same graph.
                self.literals.pop(node, None)
            else:
                self.literals[node] = self.literals.get(operand, operand)
        values = [val(operand) if isinstance(operand, torch.fx.Node) else operand for operand in operands.values()]
        renamed, self.symbols.renamed = self.symbols.renamed, self.symbols.inside(module.graph, values, val(call)[first:])
        self._nodes(module.graph)
        self.symbols.renamed = renamed
        outputs = module.graph.output_node().args[0]
        self.passed[call] = {at: operands.get(self.same.get(output, output)) for at, output in enumerate(outputs, first)}
        outputs = {at: self.name(output) for at, output in enumerate(outputs, first) if output is not None}
        self.module, self.prefix = around, prefix
        return outputs

    # Inputs.

    def _input(self, position, node, is_kept=False):
        """Writes an input, unless it is a constant, or nothing uses it. Graphs inside of others keep all of theirs (`is_kept`)."""
        value = val(node)
        if not node.users and not is_kept:
            return
        if any(hops.takes_token(user, node) for user in node.users):
            raise NotConverted("a token of effects among the arguments of a graph")
        if position in self.frozen:
            self.constants[node.name] = self.frozen[position]
            self.lines.append(f'%{node.name}: {self.type(self.frozen[position])} = const "{node.name}"')
            return
        if value is None or isinstance(value, (int, float, str)):
            self.literals[node] = value
            if not is_kept or value is None or isinstance(value, str):
                return
        if is_object(value):
            if is_kept:
                raise NotConverted("an object that a graph inside of the graph is given")
            self.literals[node] = given = Given(position)
            self.objects[given.name] = given
            return
        if isinstance(value, torch.Tensor) and (value.is_conj() or value.is_neg()):
            if any(user.op == "output" or writes_to(user, node) for user in node.users):
                raise NotConverted("an input with a pending conjugation or negation that is written or returned")
            self.lazy.append(position)
        elif isinstance(value, torch.Tensor) and node.target.startswith("tangents"):
            # Dynamo guards what the forward graph takes. Nothing guards the gradients that `backward` is given.
            self.lazy.append(position)
        if isinstance(value, torch.SymInt) and not is_kept:
            # A size that a tensor has, or another integer, gives its symbols values already.
            expr = self.symbols.expr(value)
            if expr in self.numbers or expr.free_symbols <= self.sized() or not expr.is_Symbol and expr.free_symbols <= self.given():
                return
            self.numbers.add(expr)
        self.taken.append(position)
        ty = self._input_type(node, value) if isinstance(value, torch.Tensor) else self.type(value)
        # What is written or returned is seen when the call is over.
        is_seen = any(user.op == "output" or writes_to(user, node) for user in node.users)
        is_donated = node.name in self.donated and not is_seen
        self.donates |= is_donated
        self._give(self.name(node), value)
        self.lines.append(f"%{node.name}: {ty} = input{' donated' if is_donated else ''}")

    def _input_type(self, node, value) -> str:
        """The type of a tensor that is an input. It is row-major where its strides have symbols that are no sizes: the call copies it if it is not."""
        if self.symbols.mentioned(list(value.stride())) <= self.root().sized():
            return self.type(value)
        self.copied.add(node)
        self._note_rows(value)
        return self.row_major(value)

    def _note_rows(self, value):
        """Notes what symbols are in types that are strides of an input which calls copy to rows without gaps, and of views of it."""
        step = sympy.Integer(1)
        for size, stride in reversed([*zip(map(self.symbols.expr, value.shape), map(self.symbols.expr, value.stride()))]):
            if stride.is_Symbol and stride not in self.root().sized():
                # Inputs of other sizes may have the same stride: types of views say of both what is true of one.
                self.rows[stride] = step if self.rows.get(stride, step) == step else stride
            step = step * size

    def steps(self, node) -> dict:
        """What symbols stand for in strides of a node's results."""
        return self.rows if self.viewed.get(operand_of_view(node)) in self.copied else {}

    def _missing_numbers(self):
        """Takes integers that no node uses and whose symbols the text has, such as a stride of an argument that is no product of sizes and that a
        view of it has, too.
        """
        missing = self.symbols.used - self.given()
        for position, node in enumerate(self.module.graph.find_nodes(op="placeholder")):
            value = val(node)
            if isinstance(value, torch.SymInt) and value.node.expr in missing and not node.users:
                self.taken.insert(0, position)
                self.lines.insert(0, f"%{node.name}: {self.type(value)} = input")

    def sized(self) -> set:
        """Symbols that are a size of an input by themselves."""
        if self._sized is None:
            sizes = (size.xreplace(self.symbols.solved) for size in numbers_given(self.module)[0])
            self._sized = {size for size in sizes if size.is_Symbol}
        return self._sized

    def given(self) -> set:
        """Symbols that are a size of an input, or an integer that is one, by themselves."""
        numbers = (number.xreplace(self.symbols.solved) for number in numbers_given(self.module)[1])
        return self.sized() | {number for number in numbers if number.is_Symbol}

    def _attribute(self, node):
        """Writes a tensor that the graph holds as a constant."""
        value = self.attribute(node)
        if isinstance(value, torch.fx.GraphModule):
            return
        if is_object(value):
            self.literals[node] = value
            return
        if not isinstance(value, torch.Tensor):
            raise NotConverted(f"a constant of type {type(value).__name__}")
        value = value.detach()
        if self._is_number(node, value):
            # Passes see its value, such as the score of what attention masks out.
            number = self.argument(value.item())
            self.lines.append(f"%{self.name(node)}: {self.type(value)} = aten.full.default([], {number}, {DTYPES[value.dtype]}, none, none, none)")
            return
        if self.outer:
            raise NotConverted("a constant of a graph inside of the graph")
        name = self.name(node)
        self.constants[name] = value
        self.lines.append(f'%{name}: {self.type(value)} = const "{name}"')

    @staticmethod
    def _is_number(node, value) -> bool:
        """Whether a constant is nothing but a number: it has no dimensions, and each use copies it."""
        is_copied = all(user.target is aten.lift_fresh_copy.default for user in node.users)
        return is_copied and value.dim() == 0 and value.dtype in DTYPES and not value.is_complex()

    # Nodes.

    def _call(self, node):
        """Writes a call. Integers and conditions that are computed from sizes have no lines: they are written as expressions where they are used."""
        target, value = node.target, val(node)
        if target is operator.getitem:
            source, index = node.args
            if index == 0 and hops.is_ordered(source):
                self.tokens.add(node)
                return
            part = self.parts[source].get(index)
            # A list among several results has parts of its own.
            (self.parts if isinstance(part, dict) else self.names)[node] = part
            if not isinstance(part, dict) and (source not in self.passed or part in self.held):
                self._give(part, value)
            return
        if isinstance(target, torch._ops.HigherOrderOperator):
            hops.write(self, node)
            self._give(self.name(node), value)
            return
        if isinstance(value, (int, float)):
            return
        if isinstance(value, SYMBOLIC) and not reads_data(node):
            name = self.name(node)
            if self.symbols.computes(node, name, lambda: [self.argument(arg) for arg in node.args]):
                self._give(name, value)
            return
        if not isinstance(target, torch._ops.OpOverload):
            raise NotConverted(f"the operator {getattr(target, '__name__', target)}")
        for operand in node.all_input_nodes if target._schema.is_mutable else []:
            if isinstance(val(operand), torch.Tensor) and writes_to(node, operand) and self._is_elsewhere(operand):
                raise NotConverted(f"new contents of a tensor on {val(operand).device}")
        if target is aten.copy_.default and node in self._last_writes():
            return
        if collectives.is_wait(target):
            self._wait(node)
            return
        op = operator_name(target)
        if op == "prims._make_token.default":
            self.tokens.add(node)
            return
        if op in _OF_TRACING:
            return
        if collectives.is_point_to_point(target):
            raise NotConverted(f"{op}, which is not over before the other process has called its part")
        if collectives.is_collective(target) and (exchange := collectives.group_and_call(target, node.args, node.kwargs)):
            self.exchanges.append(exchange)
        if torch.Tag.inplace_view in target.tags or op in _OF_INPUTS:
            raise NotConverted(f"{op}, which changes what an input is, and not its elements")
        if op == "aten._assert_scalar.default":
            self._condition(*node.args)
            return
        if op not in self.hosted and not _is_flagged(node) and attention.write(self, node):
            return
        # Where random numbers are to be eager's, eager makes them, in its order.
        is_eager = self.root().streams is None and torch.Tag.nondeterministic_seeded in target.tags and not drops_nothing(node)
        # Of a graph that was traced without tokens: see `effects.py`.
        self.declare(op, "ordered" if effects.is_ordered(target) else "random" if is_eager else None)
        is_refused = refusals.is_refused(target, node.args, node.kwargs)
        if self.streams is not None and not is_refused and random.write(self, node, target, value):
            return
        if target in _SCATTERS and self.viewed[node.args[0]] in self.copied:
            # PyTorch writes to a copy that lies as the operand does, whose strides the text does not have.
            self.apart.add(self._position(self.viewed[node.args[0]]))
        self._note_integers(node)
        given = self._from_its_memory(node) if target in OFFSETS else node.args
        args = ", ".join(self.arguments(target._schema, given, node.kwargs))
        results = self.results(node) if target._schema.returns else ""
        is_hosted = (is_eager or is_refused or op in self.hosted or _is_flagged(node)) and _litz.has_operator(op) and target not in OFFSETS
        self.line(f"{results}{'host ' if is_hosted else ''}{op}({args})", node)
        self._give(self.name(node), value)

    def _note_integers(self, node):
        """Has calls fail where an operator is given an integer that is computed of what data or callers decide, and that 64 bits may not hold: it is
        too large, or has no value in them. Python's integers have any size.
        """
        for value in (val(arg) for arg in (*node.args, *node.kwargs.values()) if isinstance(arg, torch.fx.Node)):
            expr = self.symbols.expr(value) if isinstance(value, torch.SymInt) else sympy.Integer(0)
            if expr.is_Symbol or expr.free_symbols <= self.root().sized():
                continue
            bounds = value.node.shape_env.bound_sympy(value.node.expr)
            if not (-MOST <= bounds.lower and bounds.upper <= MOST):
                self.symbols.guards.append(f'guard {self.symbols.integer(expr)} <= {MOST} for "integers of 64 bits"')

    def _give(self, name, value):
        """Notes that a value has been written, under a name."""
        if isinstance(value, (torch.SymFloat, torch.SymBool)):
            self.held.add(name)
        self.symbols.give(name, value)

    def _wait(self, node):
        """Takes what a node waits for in the node's place. Operators are over when they return; of arguments the call has to see to it."""
        of = node.args[0]
        operands = of if isinstance(of, (list, tuple)) else [of]
        for operand in operands:
            base = self.viewed.get(operand, operand)
            if base.op == "placeholder":
                self.awaited.append(self._position(base))
        if isinstance(of, (list, tuple)):
            self.parts[node] = {at: self.name(operand) for at, operand in enumerate(operands)}
            self.passed[node] = dict(enumerate(operands))
        else:
            self.names[node] = self.name(of)
            self.same[node] = self.same.get(of, of)

    def _position(self, node) -> int:
        """Which input of the whole graph a node is, of which calls have to find something out."""
        inputs = self.root().module.graph.find_nodes(op="placeholder")
        if node not in inputs:
            raise NotConverted("the memory of an argument of a graph inside of the graph")
        return inputs.index(node)

    def _from_its_memory(self, node) -> list:
        """The arguments of an operator that reads a storage from an offset on. Texts count offsets from the first element of the tensor whose memory
        it is. Nothing guards where in its storage an input begins, which calls have to look at.
        """
        args, at = list(node.args), OFFSETS[node.target]
        if self.viewed[args[0]] in self.copied:
            raise NotConverted("the memory of an input whose strides no size gives")
        if _is_outside(val(self.viewed[args[0]]), val(args[0]), args, at):
            raise NotConverted("elements behind the last one of a tensor")
        if at >= len(args) or args[at] is None or "storage_offset" in node.kwargs:
            if node.kwargs.get("storage_offset") is not None:
                raise NotConverted(f"{node.target} with an offset by name")
            return args
        base = self.viewed[args[0]]
        while base.target in _SCATTERS:
            # Their results begin where the operand does, of which tracing says nothing.
            base = self.viewed[base.args[0]]
        begin = val(base).storage_offset()
        args[at] = (val(args[at]) if isinstance(args[at], torch.fx.Node) else args[at]) - begin
        if not statically_known_true(args[at] >= 0):
            condition = sympy.false if statically_known_true(args[at] < 0) else self.symbols.expr(args[at] >= 0)
            self.symbols.require(condition, quoted("elements before the first of a tensor"))
        if base.op == "placeholder" and isinstance(begin, int):
            self.offsets[self._position(base)] = begin
        return args

    def _last_writes(self) -> dict:
        """The calls of `copy_` at the end of the graph that do nothing but give inputs their new elements, each with the input and these elements. A
        text says of them that an input is updated, for which Litz needs no memory but the input's.
        """
        if self.updates is None:
            nodes = [*self.module.graph.nodes][:-1]
            is_last = lambda node: node.target is aten.copy_.default and all(user.op == "output" for user in node.users)
            ends = [*itertools.takewhile(is_last, reversed(nodes))][::-1]
            targets = [node.args[0] for node in ends]
            plain = {node: node.args[:2] for node in ends if self._is_update(*node.args)}
            read = {self.viewed.get(node.args[1]) for node in ends if node not in plain}
            # What is written is not read from then on, and written once. Values of data may fail a check that comes behind a write, and then
            # inputs are as they were, for PyTorch to run the graph.
            is_plain = not read & {*targets} and len({*targets}) == len(targets)
            self.updates = plain if is_plain and not any(map(_checks_data, nodes)) else {}
        return self.updates

    def _is_update(self, written, source, non_blocking=False) -> bool:
        """Whether a call of `copy_` gives an input the elements of a value that the graph has computed, of the same type and sizes."""
        if written.op != "placeholder" or not isinstance(source, torch.fx.Node) or source.op != "call_function":
            return False
        base, to, of = self.viewed.get(source), val(written), val(source)
        if base is None or base.op != "call_function" or of.is_conj() or of.is_neg() or to.dtype != of.dtype:
            return False
        made_by = base.args[0] if base.target is operator.getitem else base
        if not isinstance(made_by.target, torch._ops.OpOverload):
            # Such as a copy that an operator has written to: see `hops.py`.
            return False
        return to.dim() == of.dim() and all(is_known(*sizes) for sizes in zip(to.shape, of.shape)) and is_dense(to)

    def _condition(self, condition, message):
        """Notes a condition on sizes as one that calls have to hold."""
        value = val(condition) if isinstance(condition, torch.fx.Node) else condition
        if isinstance(value, torch.SymBool):
            expr = self.symbols.expr(value)
            if expr is not sympy.true:
                self.symbols.require(expr, quoted(str(message)))
        elif value is not True:
            raise NotConverted(f"the condition {value}")

    # Results.

    def _remember(self, node):
        """Notes the storage of a node's tensor, and which node it is a view of.

        Arguments that share a storage are no views of each other: those of a later call need not share one.
        """
        value = val(node)
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return
        self.memory[node] = value.untyped_storage()._cdata
        source = node.args[0] if node.target is operator.getitem else node
        if source in self.passed:
            # Tracing has one result for all calls of a graph, with the memory of the operands of one of them.
            operand = self.passed[source].get(node.args[1])
            if isinstance(operand, torch.fx.Node):
                self.same[node] = self.same.get(operand, operand)
            self.viewed[node] = node
            return
        views = (self.viewed[of] for of in source.all_input_nodes if self.memory.get(of) == self.memory[node])
        self.viewed[node] = next(views, None) or self.viewed.get(operand_of_view(source), node)

    def _output(self, node):
        """Writes the line with the results of the text; what each value is that the graph returns, for `Converted.returned`."""
        results, index = [], {}

        def result(of):
            name = self.argument(of)
            if name not in index:
                index[name] = len(results)
                results.append(name)
            return ("result", index[name])

        spread = {}

        def number(given):
            return ("constant", given) if isinstance(given, int) else result(given)

        def numbers(given):
            if all(isinstance(one, int) for one in given):
                return ("constant", tuple(given))
            return ("tuple", tuple(number(one) for one in given))

        def tensor(of):
            """A result with the strides that it has in the graph, which the call gives it where a text cannot say them."""
            value = val(of)
            if not self._has_gaps(value):
                return result(of)
            if of not in spread:
                rows = self.named(f"{self.name(of)}.rows")
                self.lines.append(f"%{rows}: {self.row_major(value)} = aten.clone.default({self.argument(of)}, contiguous)")
                spread[of] = ("view", result(rows), numbers(value.shape), numbers(value.stride()), ("constant", None))
            return spread[of]

        positions = {node: position for position, node in enumerate(self.module.graph.find_nodes(op="placeholder"))}
        returned = []
        for value in (self.same.get(value, value) for value in node.args[0]):
            if not isinstance(value, torch.fx.Node):
                returned.append(("constant", value))
            elif value in self.tokens or val(value) is None:
                returned.append(("constant", None))
            elif value in positions:
                returned.append(("argument", positions[value]))
            elif value in (self.updates or {}):
                returned.append(("argument", positions[self.updates[value][0]]))
            elif isinstance(val(value), torch.Tensor):
                what = self._tensor(value, positions, tensor, numbers, number)
                returned.append(self._on_host(what) if self._is_elsewhere(value) else what)
            else:
                returned.append(result(value))
        self.lines.append("return " + ", ".join(results))
        return returned

    def _is_elsewhere(self, node) -> bool:
        """Whether a tensor is not to be where the graph runs."""
        return val(node).device != self.root().device

    @staticmethod
    def _on_host(what) -> tuple:
        """A returned tensor of the host: a copy of a result, or a view of one. What is a view of an argument there is such already."""
        kind, *of = what
        if kind == "view":
            return ("view", ("host", of[0][1]), *of[1:]) if of[0][0] == "result" else what
        return ("host", *of)

    def _has_gaps(self, value) -> bool:
        """Whether a tensor whose sizes or strides are symbols is not known to fill its memory."""
        if all(isinstance(one, int) for one in (*value.shape, *value.stride())) or is_dense(value):
            return False
        dims = [(self.symbols.expr(size), at_least_one(self.symbols.expr(stride))) for size, stride in zip(value.shape, value.stride())]
        expected = sympy.Integer(1)
        while dims:
            inner = next((at for at, (size, stride) in enumerate(dims) if size == 1 or sympy.expand(stride - expected) == 0), None)
            if inner is None:
                # A dimension that repeats its elements has no memory to write to.
                return all(stride != 0 for _, stride in dims)
            expected *= dims.pop(inner)[0]
        return False

    def _tensor(self, node, positions, result, numbers, number):
        """A returned tensor: one that shares the memory of an argument or of another result is a view of that."""
        value, base = val(node), self.viewed.get(node)
        if base is None or base is node:
            return result(node)
        origin = val(base)
        # Elements of a tensor with a pending conjugation or negation are not those in its memory.
        if value.is_conj() or value.is_neg() or origin.is_conj() or origin.is_neg():
            return result(node)
        if base in positions:
            of = ("argument", positions[base])
        elif base.op == "get_attr" or not is_known(origin.storage_offset(), 0):
            return result(node)
        else:
            of = result(base)

        layout = (numbers(value.shape), numbers(value.stride()))
        if value.dtype == origin.dtype:
            return ("view", of, *layout, number(value.storage_offset() - origin.storage_offset()))
        offset = value.storage_offset() * value.itemsize - origin.storage_offset() * origin.itemsize
        return ("view", of, *layout, number(offset), ("constant", value.dtype))


def _is_outside(base, tensor, args, at) -> bool:
    """Whether elements with the sizes and strides before the position `at` of some arguments, and the offset there, or else that of `tensor`, are known
    to reach behind the last element of the tensor `base`. In the memory of an argument there may be more, of which nothing is known.
    """
    number = lambda value: val(value) if isinstance(value, torch.fx.Node) else value
    sizes, strides = ([*map(number, args[position])] for position in (at - 2, at - 1))
    offset = number(args[at]) if at < len(args) and args[at] is not None else tensor.storage_offset()
    last = lambda sizes, strides: sum((size - 1) * stride for size, stride in zip(sizes, strides))
    behind = offset + last(sizes, strides) > base.storage_offset() + last(base.shape, base.stride())
    return all(statically_known_true(size > 0) for size in (*sizes, *base.shape)) and statically_known_true(behind)


def _shape_env(module):
    """What PyTorch knows of the symbols of a graph; none where it has none."""
    for node in module.graph.nodes:
        value = val(node)
        for leaf in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(leaf, torch.SymInt):
                return leaf.node.shape_env
            mode = getattr(leaf, "fake_mode", None)
            if mode is not None:
                return mode.shape_env
    return None


def drops_nothing(node) -> bool:
    """Whether a node is attention without dropout, which takes no random numbers although its operator can."""
    if node.target is not torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default:
        return False
    return (node.args[3] if len(node.args) > 3 else node.kwargs.get("dropout_p", 0.0)) == 0


def _is_flagged(node) -> bool:
    """Whether the user wants PyTorch to run a node, by `torch.fx.traceback.annotate({"litz": "eager"})`. Views are of memory, wherever they run."""
    if node.meta.get("custom", {}).get("litz") != "eager":
        return False
    return all(result.alias_info is None for result in node.target._schema.returns)


def writes_to(user, node) -> bool:
    """Whether a node calls an operator that writes to the value of another one."""
    schema = getattr(user.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return False
    given = zip(schema.arguments, user.args)
    return any(value is node and argument.alias_info is not None and argument.alias_info.is_write for argument, value in given)


def operand_of_view(node):
    """What a node is a view of, as its operator's schema says; none where it is no view. A pass of PyTorch's gives values that it computes in another
    way storages of their own, and leaves views of them as they were.
    """
    schema = getattr(node.target, "_schema", None)
    if schema is None or len(schema.returns) != 1 or schema.is_mutable or schema.returns[0].alias_info is None:
        return None
    return node.args[0] if schema.arguments[0].alias_info is not None and isinstance(node.args[0], torch.fx.Node) else None


def _checks_data(node) -> bool:
    """Whether a call of the graph may end at a node, by what tensors hold, when it has computed what comes before."""
    return "unbacked_bindings" in node.meta or _asserts(node)


def _asserts(node) -> bool:
    """Whether a node ends the call where elements are not as wanted."""
    return getattr(node.target, "overloadpacket", None) is aten._assert_async


# Operators that read a storage from an offset on, and which of their arguments that is. PyTorch would count from the start of the operand, which
# is all that it is given where it runs one operator.
OFFSETS = {aten.as_strided.default: 3, aten.as_strided_copy.default: 3, aten.as_strided_scatter.default: 4}

# The largest integer that conditions are compared with: those next to it have 64 bits, too.
MOST = 2**62

# Operators that give a tensor of which a part is another one.
_SCATTERS = (aten.as_strided_scatter.default, aten.diagonal_scatter.default, aten.select_scatter.default, aten.slice_scatter.default)

# Operators that give a tensor other memory, beside those with a tag that says so. What a graph is called with is no tensor of the caller's, and
# what a graph computes lies in memory whose size is fixed.
_OF_INPUTS = (
    "aten._resize_output_.default",
    "aten.set_data.default",
    "aten.shallow_copy_data_.default",
    "inductor.resize_storage_bytes_.default",
)

# Operators that do nothing when a graph runs: they check what PyTorch has checked when it traced the graph, or end the order of effects.
_OF_TRACING = (
    "prims._sink_tokens.default",
    "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
)
