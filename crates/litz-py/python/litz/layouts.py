"""Says how elements lie in memory, of arrays of any library."""


def are_alike(a, b) -> bool:
    """Whether arrays of one size have the same elements; what is no number is the same as another such."""
    return not ((a != b) & ((a == a) | (b == b))).any().item()


def are_distinct(sizes, strides) -> bool:
    """Whether each stride steps over all that smaller strides reach, so that no elements share memory."""
    reach = 0
    for stride, size in sorted((stride, size) for size, stride in zip(sizes, strides) if size > 1):
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True
