"""Compares element types with eager mode's: python benches/eager_types.py [--write | --part I/N | NAME ...]

Calls of ATen operators are recorded while PyTorch's own operator tests run, with gradients. Each is made again with its tensors in every element
type.

With --write it writes litz/eager_types.txt: for each operator the types that eager mode refuses in all of its calls, and which arguments have
that type. What such a call would be under `torch.compile`, PyTorch runs, and says no.

Else it compiles each operator, or those named, for every type that eager takes, and prints where Litz gives another type, or other numbers, or
raises. benches/eager_types.txt has the lines that stay, with reasons: what is printed and not there is new, and the exit status is 1. An eighth of
the operators takes 80 seconds.
"""

import argparse
import itertools
import pathlib
import sys
import warnings

warnings.filterwarnings("ignore")

import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

import compile_opinfo
import litz.dynamo
import litz.options
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


def record():
    """Calls of each operator."""
    recorder = Recorder()
    for op in compile_opinfo.op_db:
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
    return {op: [call[1:] for call in calls] for op, calls in sorted(recorder.calls.items(), key=lambda item: item[0].name()) if calls}


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
    """The types that all calls refuse, and the arguments that have them. Kernels that have nothing to do may not look at the type."""
    types, names = [], set()
    calls = [call for call in calls if does_something(*call)] or calls
    calls = [call for call in calls if given(op._schema, *call).get("dtype") is None] or calls
    # In calls with integers alone indices have the main type, too.
    floating = [call for call in calls if main_type(*call).is_floating_point]
    for args, kwargs in floating or calls:
        names |= in_type(op, args, kwargs, main_type(args, kwargs))[0]
    for dtype in TYPES:
        is_taken = False
        for args, kwargs in calls:
            _, args, kwargs = in_type(op, args, kwargs, dtype)
            try:
                op(*args, **kwargs)
                is_taken = True
                break
            except Exception:
                continue
        if not is_taken:
            types.append(DTYPES[dtype])
    return types, names


def write(calls):
    lines = []
    for op, made in calls.items():
        types, names = refused(op, made)
        # Where nothing is taken the calls lack something else.
        if types and len(types) < len(TYPES):
            order = [argument.name for argument in op._schema.arguments if argument.name in names]
            lines.append(f"{operator_name(op)}({', '.join(order)}): {' '.join(types)}\n")
    TABLE.write_text("".join(lines))
    print(f"{len(lines)} of {len(calls)} operators refuse a type")


def differences(op, calls):
    for dtype in TYPES:
        for args, kwargs in calls:
            _, args, kwargs = in_type(op, args, kwargs, dtype)
            try:
                torch.manual_seed(0)
                eager = tree_leaves(op(*args, **kwargs))
            except Exception:
                continue
            what = compared(op, args, kwargs, eager)
            if what:
                yield f"{operator_name(op)} {DTYPES[dtype]}: {what}"
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
    litz.counters.reset()
    try:
        graph = make_fx(call, tracing_mode="fake", decomposition_table=litz.dynamo.decompositions("philox"))(*tensors)
        ours = litz.dynamo.compile_fx(graph, tensors, litz.options.read(None, {"fallback": "quiet"}))([x.clone() for x in tensors])
    except Exception as error:
        return f"raises {compile_opinfo.reason(error)[:150]}"
    why = next(iter(litz.counters.stats()["eager_graphs"]), None)
    if why is not None:
        return f"a graph is PyTorch's: {why[:150]}"
    try:
        wide = torch.Tag.nondeterministic_seeded in op.tags or op.name() in UNDEFINED
        compile_opinfo.compare(ours, eager, None, wide)
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
    known = {line for line in REVIEWED.read_text().splitlines() if line and not line.startswith("#")} if REVIEWED.exists() else set()
    new = 0
    first, step = map(int, options.part.split("/"))
    for op, made in itertools.islice(calls.items(), first, None, step):
        if options.names and operator_name(op) not in options.names:
            continue
        for line in differences(op, made):
            # What is wrong with numbers changes with the machine.
            if line.split(": ")[0] not in {one.split(": ")[0] for one in known}:
                new += 1
                print(line, flush=True)
    print(f"{new} new differences in {len(calls)} operators, {len(known)} reviewed")
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
