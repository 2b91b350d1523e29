"""Writes calls of operators that write to their arguments: clones of what they write to, views of these, and the call."""

import torch

from .errors import NotConverted
from .sizes import is_known
from .types import operator_name
from .writer import val


def write(writer, node, name) -> None:
    """Appends the lines of a node that applies an operator to copies, `auto_functionalized` of either version, whose name is `name`."""
    op = node.args[0]
    if not isinstance(op, torch._ops.OpOverload):
        raise NotConverted(f"{name} of {op}")
    call = _Call(writer, node, op)
    results = call.of_bases() if name == "auto_functionalized_v2" else call.of_tensors()
    # What the operator returns itself, none where it returns nothing, comes before what it has written.
    own = node.meta["val"][: len(node.meta["val"]) - len(results)]
    returned = own if op._schema.returns else ()
    prefix = writer.name(node)
    texts = ", ".join(f"%{prefix}.{at}: {writer.type(value)}" for at, value in enumerate(returned))
    writer.declare(operator_name(op))
    text = f"{operator_name(op)}({', '.join(writer.arguments(op._schema, (), call.arguments))})"
    writer.line(f"{texts} = {text}" if texts else text, node)
    names = {at: f"{prefix}.{at}" for at in range(len(returned))}
    writer.parts[node] = names | {len(own) + at: copy for at, copy in enumerate(results) if copy is not None}


class _Call:
    """A call whose arguments become views of clones.

    What the operator only reads may share memory with what it writes, as the caller may give it the same tensor twice: in eager mode it
    sees there what it has written. So every argument in the memory of a tensor that has a clone is a view of the clone.
    """

    def __init__(self, writer, node, op):
        self.writer, self.node, self.op = writer, node, op
        self.arguments = dict(node.kwargs)
        # Names of clones, by the nodes of which they are; and these nodes, by their storages.
        self.clones, self.bases = {}, {}
        # How many views there are so far.
        self.views = 0

    def of_bases(self) -> list:
        """Clones of the tensors that the operator writes to parts of."""
        from torch._higher_order_ops.auto_functionalize import get_mutable_args, read_view_information_from_args

        written, kinds = get_mutable_args(self.op)
        bases = self.arguments.pop("_all_bases")
        views = read_view_information_from_args(written, kinds, self.arguments, bases)
        clones = [self._clone(base) for base in bases]
        self._read()
        for arg, view in views.items():
            if isinstance(view, list):
                self.arguments[arg] = [self._written(bases, item) for item in view]
            else:
                self.arguments[arg] = self._written(bases, view)
        return clones

    def of_tensors(self) -> list:
        """Clones of the tensors that the operator writes to; none for those that it is not given."""
        from torch._higher_order_ops.auto_functionalize import get_mutable_args

        written, _ = get_mutable_args(self.op)
        given = [self.arguments[arg] for arg in written]
        if any(isinstance(value, (list, tuple)) for value in given):
            raise NotConverted(f"{self.op} writes to a list")
        clones = [value if value is None else self._clone(value) for value in given]
        self._read()
        return clones

    def _clone(self, base) -> str:
        if base not in self.clones:
            clone = f"{self.writer.name(self.node)}.copy{len(self.clones)}"
            self.clones[base], self.bases[_storage(val(base))] = clone, base
            ty = self.writer.type(val(base))
            self.writer.line(f"%{clone}: {ty} = aten.clone.default(%{self.writer.name(base)}, none)", self.node)
        return self.clones[base]

    def _read(self):
        """Makes what lies in the memory of a tensor with a clone a view of the clone."""
        self.arguments = {name: self._seen(value) for name, value in self.arguments.items()}

    def _seen(self, value):
        if isinstance(value, (list, tuple)):
            return [self._seen(item) for item in value]
        tensor = val(value) if isinstance(value, torch.fx.Node) else None
        base = self.bases.get(_storage(tensor)) if isinstance(tensor, torch.Tensor) else None
        if base is None:
            return value
        if tensor.dtype != val(base).dtype or tensor.is_conj() or tensor.is_neg():
            raise NotConverted(f"{operator_name(self.op)} reads what it writes as another type")
        return self._view(base, tensor.shape, tensor.stride(), tensor.storage_offset())

    def _written(self, bases, info):
        """What PyTorch notes of a view that is written."""
        if info is None:
            return None
        base, kind = bases[info.base_index], type(info).__name__
        if kind in ("NotView", "AliasViewInfo"):
            return self.writer.named(self.clones[base])
        if kind == "AsStridedViewInfo":
            return self._view(base, [*map(_number, info.size)], [*map(_number, info.stride)], _number(info.storage_offset))
        if kind != "SliceViewInfo":
            raise NotConverted(f"a view of kind {kind}")
        value, dim, start, end = val(base), _number(info.dim), _number(info.start), _number(info.end)
        size = [end - start if at == dim else of for at, of in enumerate(value.shape)]
        # Where the slice was taken, its start was found by where its storage begins.
        return self._view(base, size, value.stride(), start * value.stride(dim))

    def _view(self, base, size, stride, offset):
        """A view of the clone of a base, or the clone where it is the whole. Offsets count from the beginning of the base's storage."""
        value, clone = val(base), self.clones[base]
        numbers = zip([*size, *stride, offset], [*value.shape, *value.stride(), value.storage_offset()])
        if len(size) == value.dim() and all(is_known(one, other) for one, other in numbers):
            return self.writer.named(clone)
        view, self.views = f"{self.writer.name(self.node)}.view{self.views}", self.views + 1
        sizes, strides = (", ".join(map(self.writer.argument, numbers)) for numbers in (size, stride))
        ty = f"{self.writer.type(value).split('[')[0]}[{sizes}]" + (f"{{{strides}}}" if sizes else "")
        begin = self.writer.argument(offset - value.storage_offset())
        self.writer.line(f"%{view}: {ty} = aten.as_strided.default(%{clone}, [{sizes}], [{strides}], {begin})", self.node)
        return self.writer.named(view)


def _number(value):
    """An integer that may be a node."""
    return val(value) if isinstance(value, torch.fx.Node) else value


def _storage(tensor):
    """What tells tensors of one storage."""
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided else tensor
