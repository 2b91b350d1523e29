"""Linear algebra: factorizations of batches of matrices, and what they say."""

from harness import *


def conditioned(*shape, dtype=f32):
    """Square matrices far from singular."""
    return rand(*shape, dtype=dtype) + 6 * torch.eye(shape[-1], dtype=dtype)


def positive(n, *batch, dtype=f32):
    x = rand(*batch, n, n, dtype=dtype)
    return x @ x.mT + torch.eye(n, dtype=dtype)


for dtype in (f32, f64):
    s, a = positive(3, 2, dtype=dtype), conditioned(2, 3, 3, dtype=dtype)
    for upper in (False, True):
        case(aten.linalg_cholesky_ex.default, s, upper=upper)
        case(aten.linalg_cholesky.default, s, upper=upper)
    case(aten.linalg_lu_factor_ex.default, a)
    case(aten.linalg_inv.default, a)
    case(aten.linalg_solve.default, a, rand(2, 3, 4, dtype=dtype))
    case(aten.linalg_det.default, a)
    case(aten.linalg_svdvals.default, rand(2, 4, 3, dtype=dtype))
    case(aten.linalg_eigvalsh.default, s)
    case(aten.geqrf.default, rand(4, 3, dtype=dtype))
    case(aten.linalg_matrix_exp.default, rand(2, 3, 3, dtype=dtype) / 2)
case(aten.linalg_cholesky.default, torch.empty(0, 3, 3))
case(aten.linalg_cholesky.default, torch.empty(0, 0))
for shape in ((4, 3), (3, 4), (2, 3, 3), (1, 1), (0, 3, 2)):
    a = rand(*shape, dtype=f64)
    case(aten.linalg_lu_factor.default, a)
    case(aten.linalg_lu_factor_ex.default, a)
    case(aten.linalg_lu.default, a)
    case(aten.geqrf.default, a)
    for mode in ("reduced", "complete", "r"):
        case(aten.linalg_qr.default, a, mode)
case(aten._lu_with_info.default, conditioned(3, 3))
lu, pivots = torch.linalg.lu_factor(rand(2, 3, 3, dtype=f64))
case(aten.lu_unpack.default, lu, pivots)
case(aten.lu_unpack.default, lu, pivots, unpack_data=False)
case(aten.lu_unpack.default, lu, pivots, unpack_pivots=False)
for adjoint in (False, True):
    case(aten.linalg_lu_solve.default, lu, pivots, rand(2, 3, 2, dtype=f64), adjoint=adjoint)
    case(aten.linalg_lu_solve.default, lu, pivots, rand(2, 2, 3, dtype=f64), left=False, adjoint=adjoint)
case(aten.linalg_lu_solve.default, lu, pivots, rand(3, 2, dtype=f64))
case(aten.lu_solve.default, rand(2, 3, 2, dtype=f64), lu, pivots)

# Solutions.
a = conditioned(2, 3, 3, dtype=f64)
case(aten.linalg_solve_ex.default, a, rand(2, 3, dtype=f64))
case(aten.linalg_solve_ex.default, a[0], rand(3, dtype=f64))
case(aten.linalg_solve.default, a, rand(3, 2, dtype=f64))
case(aten.linalg_solve.default, a, rand(2, 2, 3, dtype=f64), left=False)
case(aten.linalg_inv_ex.default, a)
case(aten.inverse.default, a[0])
for upper in (False, True):
    t = a.triu() if upper else a.tril()
    for left in (False, True):
        b = rand(2, 3, 4, dtype=f64) if left else rand(2, 4, 3, dtype=f64)
        case(aten.linalg_solve_triangular.default, t, b, upper=upper, left=left)
        case(aten.linalg_solve_triangular.default, a, b, upper=upper, left=left, unitriangular=True)
    for transpose in (False, True):
        case(aten.triangular_solve.default, rand(2, 3, 2, dtype=f64), a, upper, transpose)
    root = torch.linalg.cholesky(positive(3, 2, dtype=f64), upper=upper)
    case(aten.cholesky_solve.default, rand(2, 3, 2, dtype=f64), root, upper)
    case(aten.cholesky_inverse.default, root, upper)
case(aten.linalg_solve_triangular.default, a.tril(), rand(3, 2, dtype=f64), upper=False)
case(aten.linalg_tensorsolve.default, rand(2, 3, 6, dtype=f64), rand(2, 3, dtype=f64))
case(aten.linalg_tensorsolve.default, rand(2, 6, 3, dtype=f64), rand(2, 3, dtype=f64), [1])
case(aten.linalg_tensorinv.default, rand(2, 3, 6, dtype=f64), 2)
case(aten.linalg_matrix_power.default, a, -3)

# Orthogonal factors.
vectors, scales = torch.geqrf(rand(2, 5, 3, dtype=f64))
case(aten.linalg_householder_product.default, vectors, scales)
case(aten.linalg_householder_product.default, vectors, scales[..., :2].contiguous())
case(aten.ormqr.default, vectors, scales, rand(2, 5, 2, dtype=f64))
case(aten.ormqr.default, vectors, scales, rand(2, 5, 2, dtype=f64), True, True)
case(aten.ormqr.default, vectors, scales, rand(2, 2, 5, dtype=f64), False)
case(aten.linalg_qr.default, torch.tensor([[2.0, 1.0], [0.0, 3.0], [0.0, 0.0]]))

# Determinants.
singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]])
for f in (aten.linalg_slogdet, aten.slogdet):
    case(f.default, rand(3, 3, 3, dtype=f64))
    case(f.default, singular)
case(aten.det.default, rand(3, 4, 4, dtype=f64))
case(aten.linalg_det.default, singular)
case(aten.linalg_det.default, torch.empty(2, 0, 0))
case(aten.logdet.default, torch.stack([positive(3), -positive(3)]))

# Values.
for UPLO in "LU":
    case(aten.linalg_eigvalsh.default, rand(2, 4, 4, dtype=f64), UPLO)
case(aten.linalg_svdvals.default, rand(3, 5, dtype=f64))
case(aten.linalg_svdvals.default, torch.empty(2, 0, 3))
x, low = rand(2, 4, 3, dtype=f64), torch.tensor([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], dtype=f64)
for name in ("fro", "nuc"):
    case(aten.linalg_matrix_norm.str_ord, x, name)
    case(aten.linalg_matrix_norm.str_ord, x, name, [0, 1], True)
    case(aten.linalg_norm.ord_str, x[0], name)
    case(aten.linalg_cond.p_str, a, name)
for order in (1, -1, 2, -2, INF, -INF):
    case(aten.linalg_matrix_norm.default, x, order)
    case(aten.linalg_matrix_norm.default, x, order, [2, 0], True)
    case(aten.linalg_norm.default, x, order, [-1, 1])
    case(aten.linalg_norm.default, x, order, [1], True)
    case(aten.linalg_norm.default, x[0], order)
    case(aten.linalg_cond.default, a, order)
case(aten.linalg_norm.default, x)
case(aten.linalg_norm.default, x, None, [0, 1])
case(aten.linalg_norm.default, x[0, 0], 3, dtype=f64)
case(aten.linalg_cond.default, a)
case(aten.linalg_cond.default, singular, 1)
case(aten.linalg_pinv.atol_rtol_tensor, x)
case(aten.linalg_pinv.atol_rtol_tensor, low)
case(aten.linalg_pinv.atol_rtol_float, x, atol=2.0, rtol=0.1)
case(aten.linalg_pinv.atol_rtol_tensor, x, atol=torch.tensor([0.5, 4.0], dtype=f64))
case(aten.linalg_pinv.default, positive(3, dtype=f64), 1e-6, True)
case(aten.pinverse.default, x)
for f in (aten.linalg_matrix_rank.atol_rtol_tensor, aten.linalg_matrix_rank.atol_rtol_float):
    case(f, low)
    case(f, x)
    case(f, positive(3, 2, dtype=f64), hermitian=True)
case(aten.linalg_matrix_rank.atol_rtol_float, x, atol=4.0)
case(aten.linalg_polar.default, x)
case(aten.linalg_matrix_sqrth.default, positive(3, 2, dtype=f64))
case(aten.matrix_exp.default, rand(2, 3, 3, dtype=f64) * 4)
case(aten.matrix_exp.default, torch.zeros(2, 2))

# Without elements.
for shape in ((2, 0, 3), (2, 3, 0), (0, 0)):
    x = torch.empty(*shape)
    for order in (1, 2, INF):
        case(aten.linalg_matrix_norm.default, x, order)
    case(aten.linalg_matrix_norm.default, x, 2, [-2, -1], True)
    case(aten.linalg_norm.ord_str, x, "nuc", [-2, -1])
    case(aten.linalg_pinv.atol_rtol_tensor, x)
    case(aten.linalg_matrix_rank.atol_rtol_tensor, x)
    case(aten.linalg_cond.default, x)

# Indefinite matrices: pivots of one and of two rows.
for dtype in (f32, f64):
    x = rand(2, 5, 5, dtype=dtype)
    a = x + x.mT
    case(aten.linalg_ldl_factor.default, a)
    case(aten.linalg_ldl_factor_ex.default, torch.tensor([[0.0, 2.0, 1.0], [2.0, 0.0, 3.0], [1.0, 3.0, 0.0]], dtype=dtype))
    factors, pivots = torch.linalg.ldl_factor(a)
    case(aten.linalg_ldl_solve.default, factors, pivots, rand(2, 5, 3, dtype=dtype))
    case(aten.linalg_ldl_solve.default, factors[0], pivots[0], rand(2, 5, 1, dtype=dtype))
case(aten.linalg_ldl_factor_ex.default, torch.zeros(2, 2))
case(aten.linalg_ldl_factor.default, torch.zeros(0, 0))
case(aten.linalg_ldl_factor.default, torch.zeros(2, 0, 0))
# Nothing has no values, and any basis.
case(aten.linalg_eigvalsh.default, torch.zeros(2, 0, 0))
case(aten.linalg_eigh.default, torch.zeros(0, 0))
case(aten.linalg_svdvals.default, torch.zeros(3, 0))
case(aten.linalg_svd.default, torch.zeros(3, 0))
case(aten.linalg_svd.default, torch.zeros(0, 2, 2))
case(aten._linalg_svd.default, rand(3, 2), False, False)
case(aten._linalg_eigh.default, positive(3), "L", False)
case(aten.svd.default, rand(3, 2, dtype=f64), True, False)
case(aten.svd.default, rand(3, 2, dtype=f64), False, False)
