"""The program @mlp as a listing for NumPy: `build()` makes it."""

from litz.listings import beside, listing

TARGET = "cpu(isa=avx2, threads=2)"

KERNELS = r'''
kernel @pack0 {
  read w: f32[2359296]
  write wp: f32[2359296]
}
kernel @k0 {
  read x: f32[768*s0]
  read wp: f32[2359296]
  write h: f32[3072*s0]
  update y: f32[3072*s0]
  size s0 in [2, 1024]
}
'''


def load(m):
    w = m.constant("fc1.weight", "f32", 2359296, [3072, 768])
    cache = m.state("cache", "f32", 4, [2, 2], [1, 2])
    wp = m.empty("f32", 2359296)
    m.launch("pack0", [w], [wp], [])
    return {"cache": cache, "wp": wp}


def mlp(m, x, lambda_1, turned, total_of_all, gone):
    cache = m.kept("cache")
    wp = m.kept("wp")
    s2 = 3
    s0 = m.size(x, 0, within=(2, 1024))
    s1 = m.size(lambda_1, 0, rest=1, coefficient=2, within=(1, 64), multiple=8)
    x = m.input("x", x, "f32", 768*s0, [s0, 768])
    lambda_1 = m.input("lambda", lambda_1, "f32", 2*s1*s2 + s2, [2*s1 + 1, s2])
    turned = m.input("turned", turned, "bf16", 2*s0, [2, s0], [1, 2])
    total_of_all = m.input("total of all", total_of_all, "i64", 1, [])
    gone = m.input("gone", gone, "f32", 4, [4])
    m.check([s0 < s1, s1 == 8], "expected s0 < s1 or s1 == 8 (asked for by aten.add.Tensor)")
    lambda_1 = m.own(lambda_1)
    gone = m.own(gone)
    m.check([s0 <= 1024], "expected s0 <= 1024 (asked for by x: size 0)")
    p0 = m.empty("u8", 12288*s0)
    h = m.part(p0, "f32", 3072*s0, 0)
    y = m.empty("f32", 3072*s0)
    m.launch("k0", [x, wp], [h, y], [s0])
    rest = m.part(gone, "f32", 2, 8)
    m.routine("sort", [h], [y, lambda_1], [s0, 3072, 1, 0])
    m.copy(h, y)
    m.routine("assert", [turned], [], [], message="positive")
    del p0
    results = [m.shaped(y, [s0, 3072]), m.clone(y, [s0], [3072], offset=1), m.clone(x, [s0, 768]), m.number(total_of_all), s1*m.min(s0, 4) + ((s0 - s1) // 2) - (s0 % 3), float("nan"), -1, False, None, "it's \"5\"\n"]
    m.copy(x, total_of_all)
    m.give(total_of_all)
    m.copy(y, cache)
    return results


def build(constants=None):
    """Makes it of constants by their names; without any, of those in the file beside this one."""
    given = beside(__file__) if constants is None else constants
    return listing(mlp, load, KERNELS, TARGET, given)
