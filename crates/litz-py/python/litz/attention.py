"""Writes the operators by which PyTorch computes attention on GPUs as the one that Litz has, where nobody uses but the result."""

import operator

import torch

aten = torch.ops.aten

# The operators, and the arguments by which they take a mask.
FUSED = {
    aten._scaled_dot_product_flash_attention.default: None,
    aten._scaled_dot_product_efficient_attention.default: "attn_bias",
    aten._scaled_dot_product_cudnn_attention.default: "attn_bias",
}


def write(writer, node) -> bool:
    """Writes a node's line, if it is such an operator, none of its weights is dropped, and its result is all that is used: sums of rows and states of
    random numbers are for gradients.
    """
    if node.target not in FUSED:
        return False
    used = {user.args[1] if user.target is operator.getitem else None for user in node.users}
    given = _arguments(node)
    if used - {0} or given["dropout_p"] != 0:
        return False
    query, key, value = (given[name] for name in ("query", "key", "value"))
    mask = given[FUSED[node.target]] if FUSED[node.target] else None
    operands = [query, key, value, mask, 0.0, given["is_causal"]]
    schema = aten.scaled_dot_product_attention.default._schema
    # Keys and values may have a head for each group of the queries'.
    keywords = {"scale": given["scale"], "enable_gqa": _heads(query) != _heads(key)}
    arguments = ", ".join(writer.arguments(schema, operands, keywords))
    result = f"{writer.name(node)}.0"
    writer.parts[node] = {0: result}
    writer.line(f"%{result}: {writer.type(node.meta['val'][0])} = aten.scaled_dot_product_attention.default({arguments})", node)
    return True


def _arguments(node) -> dict:
    """What a node gives an operator, and where it gives nothing the default, by the names of arguments."""
    names = [argument.name for argument in node.target._schema.arguments]
    defaults = {argument.name: argument.default_value for argument in node.target._schema.arguments if argument.has_default_value()}
    return defaults | dict(zip(names, node.args)) | node.kwargs


def _heads(operand):
    return operand.meta["val"].shape[-3]
