"""The program @control as a listing for NumPy: `build()` makes it."""

from litz.listings import beside, listing

TARGET = "cpu(isa=avx2, threads=2)"

KERNELS = r'''
kernel @less {
  read i: i64[1]
  write p: bool[1]
}
kernel @next {
  update i: i64[1]
}
'''


def load(m):
    return {}


def more(m, i):
    p = m.empty("bool", 1)
    m.launch("less", [i], [p], [])
    results = [m.shaped(p, [1])]
    return results


def inner(m, x, s1):
    results = [m.clone(x, [s1])]
    return results


def each(m, i, x, s1):
    i = m.own(i)
    x = m.own(x)
    y = m.empty("f32", s1)
    m.invoke((inner, [x], [s1]), [y])
    m.launch("next", [], [i], [])
    results = []
    m.copy(y, x)
    return results + [i, x]


def yes(m, x, s1):
    y = m.empty("f32", s1)
    m.copy(x, y)
    results = [m.shaped(y, [s1])]
    return results


def control(m, p, x):
    s0 = m.size(x, 0, within=(1, 64))
    p = m.input("p", p, "bool", 1, [])
    x = m.input("x", x, "f32", s0, [s0])
    i = m.empty("i64", 1)
    q = m.empty("bool", 1)
    y = m.empty("f32", s0)
    m.routine("fresh", [], [i], [])
    m.branch(p, (yes, [x], [s0]), (yes, [y], [s0]), [y])
    m.loop(q, (more, [i], []), (each, [i, y], [s0]), [i, y])
    m.call("mylib.foo.default", [m.shaped(x, [s0]), m.strided(y, [s0 - 1], offset=1), [7, None, "text", 0.5, True, ("dtype", "i64"), ("device", "cpu"), ("layout", "strided"), ("memory_format", "channels_last")]], [m.shaped(y, [s0]), None], message="model.py:3")
    sizes = m.empty("i64", 2)
    m.call("mylib.keep.default", [m.shaped(y, [s0])], [m.sizes(sizes, "f32")])
    u0 = m.integer(i, within=(0, 64), message="too many")
    z = m.empty("f32", u0)
    m.call("litz.take.default", [m.shaped(sizes, [2])], [m.shaped(z, [u0])])
    results = [m.shaped(z, [u0])]
    return results


def build(constants=None):
    """Makes it of constants by their names; without any, of those in the file beside this one."""
    given = beside(__file__) if constants is None else constants
    return listing(control, load, KERNELS, TARGET, given)
