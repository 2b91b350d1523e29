"""Says why PyTorch rightly runs a graph as a whole: what random programs and sweeps do not count as a fault."""

import re

# Patterns of reasons, each with why no text of Litz says such a graph.
RIGHTLY = {
    r"fake tensors, which have no data": "nothing is compiled for tensors without memory",
    r"a tensor of layout torch\.": "sparse tensors, and those of libraries with layouts of their own, are not of strides",
    r"elements of type torch\.(complex32|quint|qint|uint1|uint2|uint3|uint4|bits)": "types of elements that Litz does not have",
    r"an input with a pending conjugation or negation that is written or returned": "its elements are not those in its memory",
    r"error\[unsupported\]: aten\.as_strided.*: a tensor with gaps between its elements": "no text says what lies between the elements of an input",
    r"elements behind the last one of a tensor": "no text says what lies there, if anything does",
    r"error\[unsupported\]: aten\.as_strided_scatter.*: an operand that is a part of its storage": "what is written may lie beside the part",
    r"a view of an argument as a type of another size": "AOTAutograd makes it wrongly",
    r".*, which changes what an input is, and not its elements": "the caller's tensor object is changed itself",
}


def unexpected(reasons) -> list[str]:
    """Those of some reasons that nothing says are right: mistakes of Litz among them."""
    return [reason for reason in reasons if not any(re.match(pattern, reason) for pattern in RIGHTLY)]
