"""Operators that neither CUDA nor the CPU has for a narrow dtype, though others are computed wider.

PyTorch's own operator tests expect CUDA to refuse these dtypes (`dtypesIfCUDA` of
torch/testing/_internal/common_methods_invocations.py, 2.13): its `test_dtypes` fails where a card takes one
that is not listed. The operators are those that the samples of a refused function reach, and no sample of one
that CUDA takes.
"""

from __future__ import annotations

_INTEGERS = """
    _adaptive_avg_pool2d _adaptive_avg_pool3d _ctc_loss _histogramdd_bin_edges _histogramdd_from_bin_cts
    _histogramdd_from_bin_tensors _linalg_eigh _log_softmax _prelu_kernel _softmax
    _softmax_backward_data _sparse_mm_reduce_impl _upsample_bilinear2d_aa _upsample_nearest_exact1d
    adaptive_max_pool2d adaptive_max_pool3d bernoulli binary_cross_entropy
    binary_cross_entropy_with_logits celu cholesky cholesky_inverse cholesky_solve elu frac
    fractional_max_pool2d fractional_max_pool3d gelu geqrf glu grid_sampler_2d grid_sampler_3d
    hardshrink hardsigmoid hardswish histogram huber_loss hypot igamma igammac im2col leaky_relu lerp
    linalg_householder_product linalg_lu linalg_lu_factor_ex linalg_solve_triangular log_sigmoid_forward
    logaddexp logaddexp2 logcumsumexp max_unpool2d max_unpool3d mish mse_loss multi_margin_loss
    multilabel_margin_loss_forward native_batch_norm native_group_norm native_layer_norm nextafter
    nll_loss2d_forward nll_loss_forward normal ormqr rand randn randn_like round segment_reduce silu
    smooth_l1_loss softplus softshrink triangular_solve upsample_bicubic2d upsample_bilinear2d
    upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_trilinear3d
"""
_HALVES = """
    _cdist_backward _cdist_forward _ctc_loss _ctc_loss_backward _histogramdd_bin_edges
    _histogramdd_from_bin_cts _linalg_det _linalg_eigh _linalg_solve_ex _linalg_svd _pdist_backward
    _pdist_forward cholesky cholesky_inverse cholesky_solve geqrf histogram linalg_cholesky_ex
    linalg_eig linalg_householder_product linalg_ldl_factor_ex linalg_ldl_solve linalg_lu
    linalg_lu_factor_ex linalg_lu_solve linalg_qr linalg_solve_triangular ormqr polar special_airy_ai
    special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
    special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
    special_chebyshev_polynomial_w special_erfcx special_hermite_polynomial_h
    special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p
    special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
    special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0
    special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t
    special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v
    special_shifted_chebyshev_polynomial_w special_spherical_bessel_j0 special_zeta triangular_solve
"""
_COMPLEX_HALF = """
    _linalg_det _linalg_eigh _linalg_solve_ex _linalg_svd _trilinear addbmm addcdiv addmm addmv addr
    baddbmm bernoulli bmm channel_shuffle cholesky cholesky_inverse cholesky_solve cumprod cumsum dot
    equal exp2 expm1 eye flip gather geqrf im2col index_reduce ldexp linalg_cholesky_ex linalg_cross
    linalg_eig linalg_householder_product linalg_ldl_factor_ex linalg_ldl_solve linalg_lu
    linalg_lu_factor_ex linalg_lu_solve linalg_matrix_exp linalg_qr linalg_solve_triangular linspace
    log10 log1p log2 logcumsumexp logical_and logical_not logical_or logical_xor logsumexp lu_unpack
    masked_scatter mean mm mv nan_to_num ormqr pixel_shuffle pixel_unshuffle put reciprocal
    reflection_pad1d replication_pad1d replication_pad2d scatter scatter_add scatter_reduce silu sinc
    soft_margin_loss take triangular_solve vdot
"""

REFUSED: dict[str, frozenset[str]] = {
    **dict.fromkeys(("Byte", "Char", "Short", "Int", "Long"), frozenset(_INTEGERS.split())),
    **dict.fromkeys(("Half", "BFloat16"), frozenset(_HALVES.split())),
    "ComplexHalf": frozenset(_COMPLEX_HALF.split()),
}
"""By dtype, as C++ names it: the operators that have no kernel for it."""
