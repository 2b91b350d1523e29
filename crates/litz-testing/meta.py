"""Calls of operators into what PyTorch says of their operands: `python meta.py CALLS`, one answer a line.

CALLS holds calls as the files of `cases` spell them, without elements. Each runs on meta tensors, which have types and
sizes alone. The answers are

    accepts TYPE ..         the types of the results that are tensors, `f32[2,3]`
    kernel WHY              the meta function accepts, the kernel for the CPU does not
    refuses WHY
    unknown WHY             an operator that PyTorch does not have here, or one whose sizes depend on elements
"""

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


def call(op, types, args, device):
    tensors = [torch.empty_strided(sizes, strides, dtype=dtype, device=device) for dtype, sizes, strides in types]
    if device == "cpu":
        # Zeros are positions that exist.
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
    return [r for r in results if isinstance(r, torch.Tensor)]


def first_line(error):
    return " ".join(str(error).split("\n")[0].split())[:200]


def on_the_cpu(op, types, args, missing):
    """What the kernel says of an operator without a meta function; what it accepts says little."""
    try:
        call(op, types, args, "cpu")
    except NotImplementedError:
        return f"unknown {first_line(missing)}"
    except Exception as error:
        return f"kernel {first_line(error)}"
    return f"unknown {first_line(missing)}"


def answer(name, types, args):
    try:
        op = operator(name)
    except (AttributeError, ImportError) as error:
        return f"unknown {first_line(error)}"
    try:
        results = call(op, types, args, "meta")
    except NotImplementedError as error:
        return on_the_cpu(op, types, args, error)
    except Exception as error:
        return f"refuses {first_line(error)}"
    if all(result.numel() <= MOST for result in results):
        try:
            call(op, types, args, "cpu")
        except NotImplementedError:
            pass
        except Exception as error:
            if "not implemented for" not in str(error):
                return f"kernel {first_line(error)}"
    shown = (f"{NAMES.get(r.dtype, r.dtype)}[{','.join(map(str, r.shape))}]" for r in results)
    return " ".join(["accepts", *shown])


def main():
    calls, lines = [], open(sys.argv[1]).read().splitlines()
    for line in lines:
        keyword, _, rest = line.partition(" ")
        if keyword == "case":
            calls.append((rest, [], []))
        elif keyword == "tensor":
            dtype, sizes, strides = rest.split(" :")[0].split(" ")
            calls[-1][1].append((DTYPES[dtype], ints(sizes), ints(strides)))
        elif keyword == "arg":
            calls[-1][2].append(rest)
    torch.set_num_threads(1)
    for call_of in calls:
        print(answer(*call_of))


if __name__ == "__main__":
    main()
