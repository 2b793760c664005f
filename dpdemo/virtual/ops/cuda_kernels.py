"""Which kernels for CUDA compare the devices of all operands before they run: torch 2.13.0.

Written by tests/virtual/cuda_kernels.py from native_functions.yaml; do not edit. The name of an operator's
overload follows a dot. STRUCTURED and PLAIN kernels name themselves in two ways. All others leave the
comparison to TensorIterator, or make it themselves.
"""

# ruff: noqa: SIM905 - a thousand names are easier to read, and to compare, as text

STRUCTURED = frozenset(
    """
    _addmm_activation _addmm_activation.out _convert_indices_from_coo_to_csr
    _convert_indices_from_coo_to_csr.out _convert_indices_from_csr_to_coo _convert_indices_from_csr_to_coo.out
    _linalg_det _linalg_det.result _linalg_eigh _linalg_eigh.eigenvalues _linalg_slogdet _linalg_slogdet.sign
    _linalg_solve_ex _linalg_solve_ex.result _linalg_svd _linalg_svd.U _log_softmax _log_softmax.out
    _log_softmax_backward_data _log_softmax_backward_data.out _softmax _softmax.out _softmax_backward_data
    _softmax_backward_data.out _upsample_bicubic2d_aa _upsample_bicubic2d_aa.out
    _upsample_bicubic2d_aa_backward _upsample_bicubic2d_aa_backward.grad_input _upsample_bilinear2d_aa
    _upsample_bilinear2d_aa.out _upsample_bilinear2d_aa_backward _upsample_bilinear2d_aa_backward.grad_input
    _upsample_nearest_exact1d _upsample_nearest_exact1d.out _upsample_nearest_exact1d_backward
    _upsample_nearest_exact1d_backward.grad_input _upsample_nearest_exact2d _upsample_nearest_exact2d.out
    _upsample_nearest_exact2d_backward _upsample_nearest_exact2d_backward.grad_input _upsample_nearest_exact3d
    _upsample_nearest_exact3d.out _upsample_nearest_exact3d_backward
    _upsample_nearest_exact3d_backward.grad_input acosh acosh.out acosh_ adaptive_max_pool2d
    adaptive_max_pool2d.out adaptive_max_pool2d_backward adaptive_max_pool2d_backward.grad_input
    adaptive_max_pool3d adaptive_max_pool3d.out adaptive_max_pool3d_backward
    adaptive_max_pool3d_backward.grad_input addmm addmm.out addmm_ addmv addmv.out addmv_ amax amax.out amin
    amin.out argmax.out argmin.out asinh asinh.out asinh_ atanh atanh.out atanh_ avg_pool2d avg_pool2d.out
    avg_pool2d_backward avg_pool2d_backward.grad_input avg_pool3d avg_pool3d.out avg_pool3d_backward
    avg_pool3d_backward.grad_input baddbmm baddbmm.out baddbmm_ bmm bmm.out cat cat.out clamp.Tensor
    clamp_.Tensor clamp_max.Tensor clamp_max_.Tensor clamp_min.Tensor clamp_min_.Tensor cumprod_ cumsum_
    elu_backward elu_backward.grad_input exp2 exp2.out exp2_ fractional_max_pool2d
    fractional_max_pool2d.output fractional_max_pool2d_backward fractional_max_pool2d_backward.grad_input
    fractional_max_pool3d fractional_max_pool3d.output gather gather.out gcd gcd.out gcd_ gelu_backward
    gelu_backward.grad_input glu.out hardshrink_backward hardshrink_backward.grad_input hardsigmoid_backward
    hardsigmoid_backward.grad_input hash_tensor hash_tensor.out i0 i0.out i0_ igamma igamma.out igamma_
    igammac igammac.out igammac_ index_add index_add.out index_add_ index_copy index_copy.out index_copy_
    index_reduce index_reduce.out index_reduce_ isin.Scalar_Tensor isin.Scalar_Tensor_out isin.Tensor_Scalar
    isin.Tensor_Scalar_out isin.Tensor_Tensor isin.Tensor_Tensor_out isneginf isneginf.out isposinf
    isposinf.out lcm lcm.out lcm_ leaky_relu_backward leaky_relu_backward.grad_input linalg_cholesky_ex
    linalg_cholesky_ex.L linalg_cross linalg_cross.out linalg_inv_ex linalg_inv_ex.inverse
    linalg_ldl_factor_ex linalg_ldl_factor_ex.out linalg_ldl_solve linalg_ldl_solve.out linalg_lu
    linalg_lu.out linalg_lu_factor_ex linalg_lu_factor_ex.out linalg_lu_solve linalg_lu_solve.out linalg_qr
    linalg_qr.out linalg_vector_norm linalg_vector_norm.out logaddexp logaddexp.out logaddexp2 logaddexp2.out
    logit_backward logit_backward.grad_input lu_unpack lu_unpack.out max_pool2d_with_indices
    max_pool2d_with_indices.out max_pool2d_with_indices_backward max_pool2d_with_indices_backward.grad_input
    mish mish.out mish_ mm mm.out nextafter nextafter.out nextafter_ nll_loss_backward
    nll_loss_backward.grad_input nll_loss_forward nll_loss_forward.output reflection_pad1d
    reflection_pad1d.out reflection_pad1d_backward reflection_pad1d_backward.grad_input reflection_pad3d
    reflection_pad3d.out reflection_pad3d_backward reflection_pad3d_backward.grad_input replication_pad1d
    replication_pad1d.out replication_pad1d_backward replication_pad1d_backward.grad_input replication_pad2d
    replication_pad2d.out replication_pad3d replication_pad3d.out scatter.reduce scatter.reduce_out
    scatter.src scatter.src_out scatter.value scatter.value_out scatter.value_reduce scatter.value_reduce_out
    scatter_.reduce scatter_.src scatter_.value scatter_.value_reduce scatter_add scatter_add.out scatter_add_
    scatter_reduce.two scatter_reduce.two_out scatter_reduce_.two sgn sgn.out sgn_ sigmoid_backward
    sigmoid_backward.grad_input signbit signbit.out silu silu.out silu_ silu_backward silu_backward.grad_input
    sinc sinc.out sinc_ slow_conv_transpose2d slow_conv_transpose2d.out softplus_backward
    softplus_backward.grad_input softshrink_backward softshrink_backward.grad_input sort.stable
    sort.values_stable special_airy_ai special_airy_ai.out special_bessel_j0 special_bessel_j0.out
    special_bessel_j1 special_bessel_j1.out special_bessel_y0 special_bessel_y0.out special_bessel_y1
    special_bessel_y1.out special_entr special_entr.out special_erfcx special_erfcx.out special_i0e
    special_i0e.out special_i1 special_i1.out special_i1e special_i1e.out special_log_ndtr
    special_log_ndtr.out special_modified_bessel_i0 special_modified_bessel_i0.out special_modified_bessel_i1
    special_modified_bessel_i1.out special_modified_bessel_k0 special_modified_bessel_k0.out
    special_modified_bessel_k1 special_modified_bessel_k1.out special_ndtri special_ndtri.out
    special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k0.out special_scaled_modified_bessel_k1
    special_scaled_modified_bessel_k1.out special_spherical_bessel_j0 special_spherical_bessel_j0.out
    tanh_backward tanh_backward.grad_input threshold_backward threshold_backward.grad_input topk topk.values
    triangular_solve triangular_solve.X tril tril.out tril_ triu triu.out triu_ upsample_bicubic2d
    upsample_bicubic2d.out upsample_bicubic2d_backward upsample_bicubic2d_backward.grad_input
    upsample_bilinear2d upsample_bilinear2d.out upsample_bilinear2d_backward
    upsample_bilinear2d_backward.grad_input upsample_linear1d upsample_linear1d.out upsample_linear1d_backward
    upsample_linear1d_backward.grad_input upsample_nearest1d upsample_nearest1d.out
    upsample_nearest1d_backward upsample_nearest1d_backward.grad_input upsample_nearest2d
    upsample_nearest2d.out upsample_nearest2d_backward upsample_nearest2d_backward.grad_input
    upsample_nearest3d upsample_nearest3d.out upsample_nearest3d_backward
    upsample_nearest3d_backward.grad_input upsample_trilinear3d upsample_trilinear3d.out
    upsample_trilinear3d_backward upsample_trilinear3d_backward.grad_input
    """.split()
)
PLAIN = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward
    _aminmax _aminmax.dim _amp_foreach_non_finite_check_and_unscale_ _amp_update_scale_ _assert_async
    _assert_async.msg _batch_norm_with_update _batch_norm_with_update.out _cdist_backward _cdist_forward
    _cholesky_solve_helper _chunk_cat _chunk_cat.out _compute_linear_combination
    _compute_linear_combination.out _conv_depthwise2d _conv_depthwise2d.out _convert_weight_to_int4pack
    _cslt_compress _cslt_sparse_mm _cslt_sparse_mm_search _ctc_loss _ctc_loss.Tensor _ctc_loss_backward
    _ctc_loss_backward.Tensor _cudnn_attention_backward _cudnn_attention_forward _cudnn_init_dropout_state
    _cudnn_rnn_backward _cudnn_rnn_flatten_weight _cummax_helper _cummin_helper _dirichlet_grad
    _efficient_attention_forward _efficientzerotensor _embedding_bag _embedding_bag_backward
    _embedding_bag_dense_backward _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward
    _fake_quantize_learnable_per_channel_affine _fake_quantize_learnable_per_channel_affine_backward
    _fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_tensor_affine_backward
    _fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fft_c2c _fft_c2c.out _fft_c2r _fft_c2r.out
    _fft_r2c _fft_r2c.out _fill_mem_eff_dropout_mask_ _flash_attention_forward
    _flash_attention_forward.quantized _flash_attention_forward_no_dropout_inplace _fused_adagrad_
    _fused_adam_ _fused_adamw_ _fused_dropout _fused_moving_avg_obs_fq_helper _fused_rms_norm
    _fused_rms_norm_backward _fused_sdp_choice _fused_sgd_ _grouped_mm _int_mm _int_mm.out
    _jagged_to_padded_dense_forward _linalg_eigvals _local_scalar_dense _logcumsumexp _logcumsumexp.out
    _make_per_channel_quantized_tensor _make_per_tensor_quantized_tensor _masked_scale _masked_softmax
    _masked_softmax_backward _mixed_dtypes_linear _native_batch_norm_legit _native_batch_norm_legit.no_stats
    _native_batch_norm_legit.no_stats_out _native_batch_norm_legit.out _native_multi_head_attention
    _nested_tensor_from_mask _nested_tensor_from_mask_left_aligned _padded_dense_to_jagged_forward
    _pdist_backward _pdist_forward _philox_key_fold_in _philox_key_split _philox_normal_ _philox_uniform_
    _prelu_kernel _prelu_kernel_backward _sample_dirichlet _scaled_dot_product_cudnn_attention
    _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention.quantized _scaled_grouped_mm
    _scaled_grouped_mm_v2 _scaled_mm _scaled_mm.out _scaled_mm_v2 _scaled_mm_v2.out _segment_reduce_backward
    _slow_conv2d_backward.grad_input _slow_conv2d_backward.output_mask _slow_conv2d_forward
    _slow_conv2d_forward.output _sparse_semi_structured_addmm _sparse_semi_structured_apply
    _sparse_semi_structured_apply_dense _sparse_semi_structured_linear _sparse_semi_structured_mm
    _sparse_semi_structured_tile _standard_gamma _standard_gamma_grad _thnn_fused_gru_cell
    _thnn_fused_gru_cell_backward _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl _to_sparse
    _to_sparse.sparse_dim _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr
    _to_sparse_semi_structured _transform_bias_rescale_qkv _transformer_encoder_layer_fwd
    _triton_multi_head_attention _triton_scaled_dot_attention _unique _unique2 _weight_int4pack_mm
    _weight_int8pack_mm _weight_norm_interface _weight_norm_interface_backward adaptive_avg_pool2d.out
    adaptive_avg_pool3d.out adaptive_avg_pool3d_backward.grad_input addbmm addbmm.out addbmm_ addmm.dtype
    addmm.dtype_out addr addr.out arange.start_out baddbmm.dtype baddbmm.dtype_out batch_norm_backward
    batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_elemt.out
    batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats
    binary_cross_entropy_backward binary_cross_entropy_backward.grad_input bincount bmm.dtype bmm.dtype_out
    bucketize.Scalar bucketize.Tensor bucketize.Tensor_out channel_shuffle cholesky cholesky.out
    cholesky_inverse cholesky_inverse.out col2im col2im.out complex.out conj_physical.out conv_depthwise3d
    convolution_backward count_nonzero.dim_IntList cudnn_affine_grid_generator
    cudnn_affine_grid_generator_backward cudnn_batch_norm cudnn_batch_norm.out cudnn_batch_norm_backward
    cudnn_convolution cudnn_convolution.out cudnn_convolution_add_relu cudnn_convolution_relu
    cudnn_convolution_transpose cudnn_grid_sampler cudnn_grid_sampler_backward dequantize.self dot
    embedding_dense_backward embedding_renorm_ empty.memory_format empty_strided equal eye.m_out eye.out
    fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask flip
    fractional_max_pool3d_backward fractional_max_pool3d_backward.grad_input frexp.Tensor_out geqrf geqrf.a
    glu_backward glu_backward.grad_input glu_backward_jvp glu_jvp grid_sampler_2d grid_sampler_2d_backward
    grid_sampler_3d grid_sampler_3d_backward hardswish_backward hardtanh_backward hardtanh_backward.grad_input
    histc histc.out huber_loss huber_loss.out huber_loss_backward.out im2col im2col.out index_select
    index_select.out kthvalue.values linalg__powsum linalg_eig linalg_eig.out linalg_eigvals.out
    linalg_householder_product linalg_householder_product.out linalg_lstsq.out linalg_matrix_exp
    linalg_solve_triangular linalg_solve_triangular.out linspace.out log_sigmoid_backward
    log_sigmoid_backward.grad_input logit logit.out logit_ logspace.out masked_scatter_ masked_select
    masked_select.out max_pool3d_with_indices max_pool3d_with_indices.out max_pool3d_with_indices_backward
    max_pool3d_with_indices_backward.grad_input max_unpool2d max_unpool2d.out max_unpool3d max_unpool3d.out
    median median.dim_values miopen_batch_norm miopen_batch_norm_backward miopen_convolution
    miopen_convolution_add_relu miopen_convolution_relu miopen_convolution_transpose
    miopen_depthwise_convolution miopen_rnn miopen_rnn_backward mish_backward mm.dtype mm.dtype_out mode
    mse_loss_backward mse_loss_backward.grad_input multi_margin_loss multi_margin_loss.out
    multi_margin_loss_backward multi_margin_loss_backward.grad_input multilabel_margin_loss_backward
    multilabel_margin_loss_backward.grad_input multilabel_margin_loss_forward
    multilabel_margin_loss_forward.output multinomial multinomial.out mvlgamma.out nan_to_num.out nanmedian
    nanmedian.dim_values nansum nansum.out native_batch_norm native_batch_norm.out native_batch_norm_backward
    native_dropout native_dropout_backward native_group_norm native_group_norm_backward native_layer_norm
    native_layer_norm_backward nll_loss2d_backward nll_loss2d_backward.grad_input nll_loss2d_forward
    nll_loss2d_forward.output nonzero nonzero.out nonzero_static nonzero_static.out normal.Tensor_Tensor
    normal.Tensor_Tensor_out normal.Tensor_float normal.Tensor_float_out normal.float_Tensor
    normal.float_Tensor_out ormqr ormqr.out polar.out put_ quantize_per_channel quantize_per_tensor
    quantize_per_tensor.tensor_qparams quantize_per_tensor_dynamic randperm.generator_out range.out
    record_stream reflection_pad2d reflection_pad2d.out reflection_pad2d_backward
    reflection_pad2d_backward.grad_input repeat_interleave.Tensor replication_pad2d_backward
    replication_pad2d_backward.grad_input replication_pad3d_backward replication_pad3d_backward.grad_input
    roll rrelu_with_noise rrelu_with_noise.out rrelu_with_noise_ searchsorted.Scalar searchsorted.Scalar_out
    searchsorted.Tensor searchsorted.Tensor_out segment_reduce set_ slow_conv_dilated2d slow_conv_dilated3d
    slow_conv_transpose3d slow_conv_transpose3d.out smooth_l1_loss_backward.grad_input
    split_with_sizes_copy.out sspaddmm.out take take.out trace tril_indices triu_indices unfold_backward
    unique_consecutive unique_dim unique_dim_consecutive vdot view_as_complex view_as_real
    """.split()
)
