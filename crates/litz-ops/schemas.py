"""Turns the operator names in src/ops into src/schemas.txt: one PyTorch schema for each, sorted.

The tags that passes go by follow a schema behind ` # `.
"""

import pathlib
import re
import sys

import torch
import torch.ao.quantization.fx._decomposed  # registers operators

here = pathlib.Path(__file__).parent
lines = [str(schema) for schema in torch._C._jit_get_all_schemas()]

# Operators that earlier releases have.
earlier = [
    "aten::cholesky(Tensor self, bool upper=False) -> Tensor",
    "aten::qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)",
]
lines += earlier

# Operators of other libraries. Instead of the number of an element type, nothing stands for f32.
lines += [
    # Operators that call graphs. Each of their lists of results is a result for each item.
    "higher_order::cond(Any pred, Any true_fn, Any false_fn, Any[] operands) -> Tensor[]",
    "higher_order::while_loop(Any cond_fn, Any body_fn, Any[] carried_inputs, Any[] additional_inputs) -> Tensor[]",
    "higher_order::map_impl(Any f, Any[] xs, Any[] pos_args) -> Tensor[]",
    "higher_order::scan(Any combine_fn, Any[] init, Any[] xs, Any[] additional_inputs) -> Tensor[]",
    "higher_order::associative_scan(Any combine_fn, Any[] xs, Any[] additional_inputs) -> Tensor[]",
    # Random numbers of a seed.
    *(f"litz::{name}(Tensor seed, int stream, SymInt[] size, *, ScalarType? dtype=None) -> Tensor" for name in "uniform normal".split()),
    "litz::integers(Tensor seed, int stream, SymInt low, SymInt high, SymInt[] size, *, ScalarType? dtype=None) -> Tensor",
    # Its operand, whose elements are checked.
    "litz::within(Tensor self, float low, float high) -> Tensor",
    "litz::mm_rounding(Tensor self, Tensor mat2, int? terms=None) -> Tensor",
    # The norm of training, with new running statistics.
    "litz::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool use_input_stats, "
    "float momentum, float eps) -> (Tensor, Tensor running_mean_out, Tensor running_var_out)",
    # The operand's memory with other sizes.
    "litz::resized(Tensor(a) self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor(a)",
    "litz::resized_as(Tensor(a) self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor(a)",
    # Factors whose signs are nobody's.
    "litz::svd(Tensor A) -> (Tensor U, Tensor S, Tensor Vh)",
    "litz::eigh(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)",
    # Functions of Python's numbers.
    *(f"_operator::{name}(Scalar a, Scalar b) -> Scalar"
      for name in "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor eq ne lt le gt ge".split()),
    *(f"_operator::{name}(Scalar a) -> Scalar" for name in "neg pos abs".split()),
    *(f"math::{name}(Scalar x) -> Scalar" for name in "trunc floor ceil".split()),
    "builtins::round(Scalar number, Scalar? ndigits=None) -> Scalar",
    *(f"torch::{name}(Scalar a) -> Scalar" for name in "sym_not sym_float sym_int".split()),
    *(f"torch::{name}(Scalar a, Scalar b) -> Scalar" for name in "sym_max sym_min".split()),
    "torch::sym_ite(Scalar b, Scalar t, Scalar f) -> Scalar",
    *(f"torch::_sym_{name}(Scalar a) -> Scalar"
      for name in "sqrt cos cosh sin sinh tan tanh asin acos atan asinh exp log log2".split()),
    "transformers::grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor",
    "torchao::dequantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType input_dtype, "
    "Scalar? quant_min=None, Scalar? quant_max=None, ScalarType? output_dtype=None) -> Tensor",
    "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor",
    "torchvision::ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
    "SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)",
    *(f"torchvision::{name}(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)"
      for name in "roi_pool ps_roi_pool".split()),
    "torchvision::deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, "
    "SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
]

known = {}
for line in lines:
    found = re.match(r"(\w+)::(\w+)(?:\.(\w+))?\(", line)
    if found:
        # Some defaults are printed as the number of an enumerator.
        line = line.replace("MemoryFormat memory_format=0", "MemoryFormat memory_format=contiguous_format")
        known.setdefault(f"{found[1]}.{found[2]}.{found[3] or 'default'}", line)
text = "".join(path.read_text() for path in sorted((here / "src/ops").glob("*.rs")))
names = sorted(set(re.findall(r'"((?:aten|litz|prims|quantized_decomposed|torchao|torchvision|transformers|higher_order)\.\w+\.\w+|(?:_operator|torch|math|builtins)\.\w+)"', text)))
def qualified(name):
    """Namespace, name and overload."""
    return name if name.count(".") == 2 else f"{name}.default"


missing = [name for name in names if qualified(name) not in known]
if missing:
    sys.exit(f"no schema for {', '.join(missing)}")


def tags(name):
    """The tags of PyTorch's own operators; those of other libraries have none."""
    namespace, base, overload = qualified(name).split(".")
    if namespace not in ("aten", "prims") or known[qualified(name)] in earlier:
        return ""
    found = {tag.name for tag in getattr(getattr(getattr(torch.ops, namespace), base), overload).tags}
    kept = sorted(found & {"nondeterministic_seeded", "maybe_aliasing_or_mutating"})
    return " # " + " ".join(kept) if kept else ""


(here / "src/schemas.txt").write_text("".join(f"{known[qualified(name)]}{tags(name)}\n" for name in names))
