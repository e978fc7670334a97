"""Terms in index notation: sums of products of entries, each entry named by where it stands.

`(x + y) W` and `x W + y W`, a product of flattened rows, a sum taken in chunks and a softmax
shifted by another value are different terms and the same function. Written as a sum over indices of
products of entries of the inputs they are the same expression, up to the names of the indices.
`Keys` (`keys.py`) gives every term such an expression in a canonical form: terms with equal keys
are equal functions, for all values on which the outputs of one device are defined. Different keys
say nothing.
"""
