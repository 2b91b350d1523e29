"""Knows PyTorch's collectives, which exchange with other processes: what a graph waits for, and whether all processes call them in one order.

A collective of PyTorch's returns before its result is there, and `wait_tensor` says when it is. Under Litz it is over when its call returns
(`host.py`), so that waiting for it is nothing but its result, and no line of a text. An argument of a graph may be on its way still:
`Function` waits for it before anything reads it.
"""

import datetime
import functools
import warnings

import torch

from .types import operator_name

# Operators that wait for what others have begun, and give it: one tensor, or a list of them.
_WAITS = ("_c10d_functional.wait_tensor.default", "_c10d_functional.wait_tensors.default", "c10d_functional.wait_tensor.default")

# Of two processes that send to each other, each sends before it receives: a call that is over when it returns would never return.
_POINT_TO_POINT = ("isend", "irecv", "batch_p2p_ops")

# How long a process waits for the others to say what they are going to call. They may still be compiling.
_PATIENCE = datetime.timedelta(seconds=60)


def is_wait(target) -> bool:
    """Whether an operator waits for tensors, and gives these."""
    return isinstance(target, torch._ops.OpOverload) and operator_name(target) in _WAITS


def is_collective(op) -> bool:
    """Whether an operator exchanges with other processes. Litz's texts go by the same argument."""
    return isinstance(op, torch._ops.OpOverload) and any(argument.name == "group_name" for argument in op._schema.arguments)


def is_point_to_point(op) -> bool:
    """Whether an operator sends to, or receives from, one other process."""
    return is_collective(op) and op._schema.name.split("::")[1] in _POINT_TO_POINT


def finish(outcome) -> None:
    """Waits for the tensors that an operator has given. Those that are complete cost a look into a table."""
    if not _can_begin():
        return
    for tensor in outcome if isinstance(outcome, (list, tuple)) else (outcome,):
        if isinstance(tensor, (list, tuple)):
            finish(tensor)
        elif isinstance(tensor, torch.Tensor):
            torch.ops._c10d_functional.wait_tensor(tensor)


def _can_begin() -> bool:
    """Whether this process belongs to a group, without which nothing can be on its way."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def group_and_call(op, args, keywords) -> tuple[str, str] | None:
    """The group that a collective is called in, and the call as other processes have to have it. Sizes are not part of it: those of some
    collectives differ from process to process.
    """
    names = [argument.name for argument in op._schema.arguments]
    given = dict(zip(names, args)) | dict(keywords)
    group = given.pop("group_name")
    if not isinstance(group, str):
        return None
    plain = [str(value) for name, value in given.items() if isinstance(value, (str, int)) and not isinstance(value, torch.fx.Node)]
    tensors = [_dtypes(value) for value in given.values() if isinstance(value, (torch.fx.Node, list, tuple))]
    return group, f"{op._schema.name.split('::')[1]}({', '.join([*filter(None, tensors), *plain])})"


def _dtypes(value) -> str:
    """Element types of the tensors among a node, or a list of nodes."""
    found = [node.meta.get("val") for node in (value if isinstance(value, (list, tuple)) else (value,)) if isinstance(node, torch.fx.Node)]
    return ", ".join(str(one.dtype).removeprefix("torch.") for one in found if isinstance(one, torch.Tensor))


class Orders:
    """What this process and the others of its groups call, graph by graph.

    Processes that call the collectives of a group in different orders wait forever, or mix up their elements, which nothing else finds. So each
    process writes the calls of a graph to the group's store before the graph's first call, and reads what the others have written for theirs.
    No collective takes part: of processes of which one compiles once more, and the others do not, none waits for another forever.
    """

    def __init__(self):
        # How many graphs of each group there were so far, and groups that are not asked any more.
        self.counts, self.silent = {}, set()

    def check(self, calls: list[tuple[str, str]]) -> None:
        """Compares the calls of a graph that is about to be called for the first time, each with its group, with those of the other processes.

        Raises `RuntimeError` where they differ.
        """
        if not calls or not _can_begin():
            return
        for group in dict.fromkeys(group for group, _ in calls):
            self._check_group(group, [call for of, call in calls if of == group])

    def _check_group(self, group, calls):
        store, rank, size = _store(group)
        if store is None or size < 2 or group in self.silent:
            return
        number = self.counts[group] = self.counts.get(group, -1) + 1
        key = f"litz/collectives/{number}"
        text = "\n".join(calls)
        store.set(f"{key}/{rank}", text)
        others = [other for other in range(size) if other != rank]
        try:
            store.wait([f"{key}/{other}" for other in others], _PATIENCE)
        except (RuntimeError, torch.distributed.DistError):
            self.silent.add(group)
            warnings.warn(
                f"litz: within {_PATIENCE.seconds} s not all processes of group {group} came to a graph with collectives: whether they "
                "call them in one order is not compared any more",
                stacklevel=2,
            )
            return
        for other in others:
            found = store.get(f"{key}/{other}").decode()
            if found != text:
                raise RuntimeError(
                    f"litz: processes call the collectives of group {group} in different orders, and would wait for each other forever.\n"
                    f"process {rank}: {', '.join(calls)}\nprocess {other}: {', '.join(found.splitlines())}"
                )


ORDERS = Orders()


def _store(group):
    """The store that the processes of a group share, this process's place in the group, and its size."""
    world = torch.distributed.distributed_c10d._world
    found = torch._C._distributed_c10d._resolve_process_group(group)
    backend, store = world.pg_map.get(found, (None, None))
    # Processes of the backend `fake` are not there.
    return (None if backend == "fake" else store), found.rank(), found.size()
