"""Calls of operators into what PyTorch says of their operands: `python meta.py CALLS`, one answer a line.

CALLS holds calls as the files of `cases` spell them, without elements. Each runs on meta tensors, which have types and
sizes alone, and on the CPU with zeros, which are positions too. That happens in a child process: some calls end it. The
answers are

    accepts TYPE ..         the types of the results that are tensors, `f32[2,3]`
    kernel WHY              the meta function accepts, the kernel for the CPU does not
    meta WHY                the kernel accepts, the meta function does not
    refuses WHY             the meta function refuses or, where there is none, the kernel does
    unknown WHY             an operator that PyTorch does not have here, or neither of the two for these types
"""

import math
import multiprocessing
import resource
import signal
import sys

import torch

DTYPES = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "bool": torch.bool,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last,
           "channels_last_3d": torch.channels_last_3d, "preserve": torch.preserve_format}
# Results with more elements are not computed.
MOST = 1 << 20
# What a call may take: bytes of addresses, seconds.
MEMORY = 8 << 30
SECONDS = 5


def ints(text):
    return [int(word) for word in text[1:-1].split(",") if word]


def words(text):
    """Words and brackets of an argument; strings whole."""
    at = 0
    while at < len(text):
        if text[at] in "[]":
            yield text[at]
            at += 1
        elif text[at] == " ":
            at += 1
        elif text[at] == '"':
            end = text.index('"', at + 1) + 1
            yield text[at:end]
            at = end
        else:
            end = at
            while end < len(text) and text[end] not in "[] ":
                end += 1
            yield text[at:end]
            at = end


def argument(text, tensors):
    stack = [[]]
    for word in words(text):
        if word == "[":
            stack.append([])
        elif word == "]":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(atom(word, tensors))
    return stack[0][0]


def atom(word, tensors):
    if word in ("none", "true", "false", "cpu"):
        return {"none": None, "true": True, "false": False, "cpu": None}[word]
    if word.startswith("@"):
        return tensors[int(word[1:])]
    if word.startswith("dtype:"):
        return DTYPES[word[6:]]
    if word.startswith("format:"):
        return FORMATS[word[7:]]
    if word.startswith('"'):
        return word[1:-1]
    try:
        return int(word)
    except ValueError:
        return float(word)


def operator(name):
    space, base, overload = name.split(".")
    if space == "torchvision":
        import torchvision  # noqa: F401, it registers its operators
    return getattr(getattr(getattr(torch.ops, space), base), overload)


def call(name, types, args, device):
    """The types of the results."""
    op = operator(name)
    tensors = [torch.empty_strided(sizes, strides, dtype=dtype, device=device) for dtype, sizes, strides in types]
    if device == "cpu":
        for tensor in tensors:
            tensor.zero_()
    given = [argument(text, tensors) for text in args]
    # A size that an operator's schema has as keyword only is passed by name.
    positional, named = [], {}
    for slot, value in zip(op._schema.arguments, given):
        if slot.name == "device" and value is None:
            value = torch.device(device)
        if slot.kwarg_only:
            named[slot.name] = value
        else:
            positional.append(value)
    results = op(*positional, **named)
    results = results if isinstance(results, (list, tuple)) else [results]
    return [(r.dtype, tuple(r.shape)) for r in results if isinstance(r, torch.Tensor)]


def attempt(name, types, args, device):
    """`accepts` and the types of the results, `refuses` or `unknown` and why."""
    try:
        return "accepts", call(name, types, args, device)
    except NotImplementedError as error:
        return "unknown", first_line(error)
    except Exception as error:
        return "unknown" if "not implemented for" in str(error) else "refuses", first_line(error)


def first_line(error):
    return " ".join(str(error).split("\n")[0].split())[:200]


def answer_calls(pipe):
    """Answers what comes through the pipe. What takes too much memory is refused, what takes too long ends the process."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    while True:
        asked = pipe.recv()
        signal.alarm(SECONDS)
        pipe.send(attempt(*asked))
        signal.alarm(0)


class Calls:
    """A process that makes calls; another follows where one has ended it."""

    def __init__(self):
        self.child = None

    def attempt(self, *asked):
        if self.child is None:
            self.pipe, other = multiprocessing.Pipe()
            self.child = multiprocessing.Process(target=answer_calls, args=(other,), daemon=True)
            self.child.start()
            other.close()
        self.pipe.send(asked)
        try:
            return self.pipe.recv()
        except EOFError:
            self.child.join()
            ended, self.child = self.child.exitcode, None
            return "ended", f"the call ends its process: {signal.Signals(-ended).name if ended < 0 else ended}"


def answer(calls, name, types, args):
    try:
        operator(name)
    except (AttributeError, ImportError) as error:
        return f"unknown {first_line(error)}"
    verdict, results = calls.attempt(name, types, args, "meta")
    if verdict == "accepts" and any(math.prod(shape) > MOST for _, shape in results):
        return accepts(results)
    if verdict == "ended":
        return f"unknown {results}"
    on_cpu, found = calls.attempt(name, types, args, "cpu")
    match verdict, on_cpu:
        case "accepts", "accepts":
            return accepts(results)
        case "accepts", _:
            return f"kernel {found}"
        case "refuses", "accepts":
            return f"meta {results}"
        case "refuses", _:
            return f"refuses {results}"
        case _, "accepts":
            return accepts(found)
        case _, "ended":
            return f"unknown {found}"
        case _:
            return f"{on_cpu} {found}"


def accepts(results):
    return " ".join(["accepts", *(f"{NAMES.get(dtype, dtype)}[{','.join(map(str, shape))}]" for dtype, shape in results)])


def main():
    given, lines = [], open(sys.argv[1]).read().splitlines()
    for line in lines:
        keyword, _, rest = line.partition(" ")
        if keyword == "case":
            given.append((rest, [], []))
        elif keyword == "tensor":
            dtype, sizes, strides = rest.split(" :")[0].split(" ")
            given[-1][1].append((DTYPES[dtype], ints(sizes), ints(strides)))
        elif keyword == "arg":
            given[-1][2].append(rest)
    torch.set_num_threads(1)
    # The first call loads most of the meta functions: once here, not again in each child.
    torch.empty(1, device="meta") + 1
    calls = Calls()
    for one in given:
        print(answer(calls, *one))


if __name__ == "__main__":
    main()
