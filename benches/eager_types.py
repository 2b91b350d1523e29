"""Compares element types with eager mode's: python benches/eager_types.py [--write | --part I/N | NAME ...]

Calls of ATen operators are recorded while PyTorch's own operator tests run, with gradients. Each is made again with its tensors in every element
type.

With --write it writes litz/eager_types.txt: for each operator the types that eager mode refuses in all of its calls, then those that it refuses
unless a number of another kind gives the call another type, and which arguments have that type. What such a call would be under
`torch.compile`, PyTorch runs, and says no.

Else it compiles each operator, or those named, for every type that eager takes, and prints where Litz gives another type, or other numbers, or
raises. What is as close to the value in f64 as eager's is right. benches/eager_types.txt has what stays, with reasons: what is printed and not
there is new, and the exit status is 1. An eighth of the operators takes 80 seconds.
"""

import argparse
import itertools
import pathlib
import sys
import warnings

warnings.filterwarnings("ignore")

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import compile_opinfo
import left
import litz.dynamo
import litz.options
from litz import refusals
from litz.types import DTYPES, operator_name

HERE = pathlib.Path(__file__).parent
TABLE = HERE.parent / "crates/litz-py/python/litz/eager_types.txt"
REVIEWED = HERE / "eager_types.txt"

# Complex numbers are PyTorch's.
TYPES = [dtype for dtype in DTYPES if not dtype.is_complex]
# Calls recorded of an operator, of those that do something and of others, and elements that one has at most.
MOST_CALLS, MOST_ELEMENTS = 6, 20_000


class Recorder(TorchDispatchMode):
    """Keeps some calls of each operator, as they were before they ran."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        kept = self.calls.setdefault(op, [])
        if op.namespace == "aten" and not op._schema.is_mutable and len(kept) < 2 * MOST_CALLS:
            tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            plain = all(x.layout == torch.strided and x.device.type == "cpu" and not x.is_quantized for x in tensors)
            if plain and tensors and sum(x.numel() for x in tensors) <= MOST_ELEMENTS:
                # Arguments of other kinds and types, not the same call again.
                said = lambda leaf: (leaf.dtype, leaf.dim() > 0) if isinstance(leaf, torch.Tensor) else type(leaf)
                is_useful = does_something(args, kwargs)
                seen = (is_useful, str([said(leaf) for leaf in tree_leaves((args, kwargs))]))
                alike = [one for one, *_ in kept if one[0] == is_useful]
                if seen not in alike and len(alike) < MOST_CALLS:
                    copy = lambda x: x.detach().clone() if isinstance(x, torch.Tensor) else x
                    kept.append((seen, *tree_map(copy, (args, kwargs))))
        return op(*args, **kwargs)


def samples(op, dtype, grad):
    """Some samples of all sizes, the smallest of which may be too small to matter."""
    torch.manual_seed(0)
    every = [sample for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=grad), 60) if compile_opinfo.sized(sample)]
    return sorted(every, key=compile_opinfo.sized)[:: max(1, len(every) // 10)]


def record(tests=compile_opinfo.op_db):
    """Calls of each operator that tests make."""
    recorder = Recorder()
    for op in tests:
        for dtype, grad in ((torch.float32, True), (torch.float32, False), (torch.int64, False), (torch.bool, False)):
            if dtype not in (op.supported_backward_dtypes("cpu") if grad else op.supported_dtypes("cpu")) or grad and not op.supports_autograd:
                continue
            try:
                for sample in samples(op, dtype, grad):
                    call = compile_opinfo.Call(op, sample)
                    with recorder:
                        compile_opinfo.run(call, call.fresh(), grad)
            except Exception:
                continue
    calls = {op: [call[1:] for call in calls] for op, calls in recorder.calls.items() if calls}
    # Of two operands the second may be a number, where tests give a tensor alone.
    for op, made in [*calls.items()]:
        beside = getattr(op.overloadpacket, "Scalar", None) if op._overloadname == "Tensor" else None
        if beside is not None and beside not in calls and [argument.name for argument in beside._schema.arguments][:2] == ["self", "other"]:
            calls[beside] = [((args[0], number), {}) for args, _ in made for number in (3, 2.5) if len(args) > 1 and isinstance(args[0], torch.Tensor)]
    return dict(sorted(calls.items(), key=lambda item: item[0].name()))


def main_type(args, kwargs):
    """The element type that a call is about: that of its floating tensors, else of its first one."""
    types = [leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    return next((dtype for dtype in types if dtype.is_floating_point), types[0])


def given(schema, args, kwargs):
    """The arguments of a call by name."""
    names = [argument.name for argument in schema.arguments]
    return dict(zip(names, args)) | kwargs


def in_type(op, args, kwargs, dtype):
    """A call with all tensors of its main type in another one; which arguments these are."""
    main = main_type(args, kwargs)
    is_main = lambda leaf: isinstance(leaf, torch.Tensor) and leaf.dtype == main
    changed = {name for name, value in given(op._schema, args, kwargs).items() if any(map(is_main, tree_leaves(value)))}
    convert = lambda leaf: leaf.to(dtype) if is_main(leaf) else leaf
    return changed, *tree_map(convert, (args, kwargs))


def does_something(args, kwargs):
    """Whether the tensors of a call have elements and dimensions."""
    return all(leaf.numel() > 1 for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor) and leaf.dtype == main_type(args, kwargs))


def refused(op, calls):
    """The types that all calls refuse, those that calls refuse without a number that gives them another type, and the arguments that have
    them. Kernels that have nothing to do may not look at the type.
    """
    always, plainly, names = [], [], set()
    calls = [call for call in calls if does_something(*call)] or calls
    calls = [call for call in calls if given(op._schema, *call).get("dtype") is None] or calls
    # In calls with integers alone indices have the main type, too.
    floating = [call for call in calls if main_type(*call).is_floating_point]
    for args, kwargs in floating or calls:
        names |= in_type(op, args, kwargs, main_type(args, kwargs))[0]
    calls = [other for call in calls for other in (call, *with_numbers(op, *call))]
    for dtype in TYPES:
        is_taken = {}
        for args, kwargs in calls:
            _, args, kwargs = in_type(op, args, kwargs, dtype)
            is_raised = refusals.is_raised(op, given(op._schema, args, kwargs), dtype)
            if not is_taken.get(is_raised):
                is_taken[is_raised] = takes(op, args, kwargs)
        if not any(is_taken.values()) and (True in is_taken or not refusals.numbers(op)):
            always.append(DTYPES[dtype])
        elif is_taken.get(False) is False:
            plainly.append(DTYPES[dtype])
    return always, plainly, names


def with_numbers(op, args, kwargs):
    """A call with its numbers as integers, and as floating-point numbers. Of some, such as an exponent of 1, nothing is computed."""
    there = given(op._schema, args, kwargs)
    if any(isinstance(there.get(name), (int, float)) or name not in there for name in refusals.numbers(op)):
        for number in (3, 2.5):
            yield (), there | dict.fromkeys(refusals.numbers(op), number)


def takes(op, args, kwargs):
    """Whether eager mode takes a call."""
    try:
        op(*args, **kwargs)
    except Exception:
        return False
    return True


def write(calls):
    lines = []
    for op, made in calls.items():
        always, plainly, names = refused(op, made)
        # Where nothing is taken the calls lack something else.
        if always + plainly and len(always) < len(TYPES):
            order = [argument.name for argument in op._schema.arguments if argument.name in names]
            lines.append(f"{operator_name(op)}({', '.join(order)}): {' '.join(always)}{'; ' * bool(plainly)}{' '.join(plainly)}\n")
    TABLE.write_text("".join(lines))
    print(f"{len(lines)} of {len(calls)} operators refuse a type")


def reviewed():
    """The operators and types whose differences are reviewed. What is wrong with numbers changes with the machine."""
    lines = [line.split(":")[0].split() for line in REVIEWED.read_text().splitlines() if line and not line.startswith("#")]
    return {(name, dtype) for name, *types in lines for dtype in types}


def differences(op, calls):
    """The types for which Litz differs from eager mode, and how."""
    # Kernels that have nothing to do may not look at the type: what they alone take, eager mode refuses.
    calls = sorted(calls, key=lambda call: not does_something(*call))
    has_some = does_something(*calls[0])
    for dtype in TYPES:
        is_taken = False
        for args, kwargs in calls:
            if has_some and not is_taken and not does_something(args, kwargs):
                break
            _, args, kwargs = in_type(op, args, kwargs, dtype)
            try:
                torch.manual_seed(0)
                eager = tree_leaves(op(*args, **kwargs))
            except Exception:
                continue
            is_taken = True
            what = compared(op, args, kwargs, eager)
            if what:
                yield DTYPES[dtype], what
                break


def compared(op, args, kwargs, eager):
    """What is different through Litz; none where nothing is."""
    leaves, structure = tree_flatten((args, kwargs))
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def call(*tensors):
        filled = list(leaves)
        for place, tensor in zip(places, tensors):
            filled[place] = tensor
        args, kwargs = tree_unflatten(filled, structure)
        return tree_leaves(op(*args, **kwargs))

    tensors = [leaves[place] for place in places]
    copies = lambda: [x.clone() for x in tensors]
    litz.counters.reset()
    try:
        graph = make_fx(call, tracing_mode="fake", decomposition_table=litz.dynamo.decompositions("philox"))(*tensors)
        ours = litz.dynamo.compile_fx(graph, tensors, litz.options.read(None, {"fallback": "quiet"}))(copies())
    except (DataDependentOutputException, DynamicOutputShapeException):
        # Dynamo ends a graph there.
        return None
    except Exception as error:
        return f"raises {compile_opinfo.reason(error)[:150]}"
    reasons = litz.counters.stats()["eager_graphs"]
    if reasons:
        unexpected = left.unexpected(reasons)
        return f"a graph is PyTorch's: {unexpected[0][:150]}" if unexpected else None
    try:
        wide = torch.Tag.nondeterministic_seeded in op.tags or op.name() in UNDEFINED
        compile_opinfo.compare(ours, eager, compile_opinfo.reference(call, copies(), False), wide)
    except compile_opinfo.Wrong as error:
        return str(error)
    return None


# What they return was never written.
UNDEFINED = ("aten::empty_like", "aten::new_empty", "aten::new_empty_strided", "aten::empty_permuted")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators to compare (default: all)")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="compare every N-th operator, from number I on")
    parser.add_argument("--write", action="store_true", help="write the table of types that eager refuses")
    options = parser.parse_args()
    torch.set_num_threads(1)
    calls = record()
    if options.write:
        return write(calls)
    known, new = reviewed(), 0
    first, step = map(int, options.part.split("/"))
    for op, made in itertools.islice(calls.items(), first, None, step):
        name = operator_name(op)
        if options.names and name not in options.names:
            continue
        for dtype, what in differences(op, made):
            if (name, dtype) not in known:
                new += 1
                print(f"{name} {dtype}: {what}", flush=True)
    print(f"{new} new differences in {len(calls)} operators, {len(known)} reviewed")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
