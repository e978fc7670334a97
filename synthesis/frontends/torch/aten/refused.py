"""Why some aten ops have no meaning in the language, by their names without an overload."""

DRAWS = "it draws random numbers"
PASS_IT = "pass what is drawn as an argument"
_WHY = {
    "what it gives has as many entries as values of a tensor say": (
        *("nonzero", "masked_select", "unique", "_unique2", "repeat_interleave", "masked_scatter"),
    ),
    DRAWS: (
        *("rand", "randn", "randperm", "rand_like", "randn_like", "bernoulli", "multinomial"),
        *("uniform", "normal", "exponential", "randint", "randint_like"),
    ),
    "it gives a number of Python, on which what follows would depend": (
        *("_local_scalar_dense", "item", "sym_size", "sym_numel", "sym_stride"),
        *("sym_storage_offset", "sym_is_contiguous"),
    ),
    "its function of a real number is not in the language": (
        *("acos", "acosh", "asin", "asinh", "atan2", "atanh", "round", "pow"),
        *("erfinv", "lgamma", "digamma"),
    ),
    "it works on the bits of integers": ("bitwise_and", "bitwise_or", "bitwise_xor"),
    "transforms of Fourier are not in the language": ("_fft_r2c", "_fft_c2r", "_fft_c2c"),
    "distances of pairs are not in the language": (
        *("_cdist_forward", "_cdist_backward", "_pdist_forward", "_pdist_backward"),
    ),
    "what it reads depends on values between entries": (
        *("grid_sampler_2d_backward", "grid_sampler_3d", "grid_sampler_3d_backward"),
    ),
    "its memory holds nothing before it is written": (
        *("empty", "empty_strided", "empty_like", "empty_permuted"),
    ),
}
REFUSED = {name: why for why, names in _WHY.items() for name in names}
