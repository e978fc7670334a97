"""Functions of one real number, element by element: where each has a value, and of which sign."""

from shardproof.verifier.kernel.ops.map import elementwise
from shardproof.verifier.kernel.program.registry import REQUIRED
from shardproof.verifier.kernel.program.traits import Traits

SMOOTH = Traits(strict=True)
POSITIVE = Traits(strict=True, sign=1)
exp = elementwise("exp", 1, POSITIVE)
log = elementwise("log", 1, Traits(strict=True, needs="positive"))
log1p = elementwise("log1p", 1, Traits(strict=True, needs="above -1"))
expm1 = elementwise("expm1", 1, SMOOTH)
sqrt = elementwise("sqrt", 1, Traits(strict=True, needs="not negative", sign=0, keeps=1))
rsqrt = elementwise("rsqrt", 1, Traits(strict=True, needs="positive", sign=1))
sin = elementwise("sin", 1, SMOOTH)
cos = elementwise("cos", 1, SMOOTH)
tanh = elementwise("tanh", 1, SMOOTH)
sigmoid = elementwise("sigmoid", 1, POSITIVE)
erf = elementwise("erf", 1, SMOOTH)
abs_ = elementwise("abs", 1, Traits(strict=True, sign=0, closed="integers"))
sign = elementwise("sign", 1, Traits(closed="integers"))
floor = elementwise("floor", 1, Traits(strict=True, closed="integers"))
relu = elementwise("relu", 1, Traits(sign=0, closed="integers"))
relu_grad = elementwise("relu_grad")
silu = elementwise("silu", 1, SMOOTH)
silu_grad = elementwise("silu_grad", 1, SMOOTH)
gelu = elementwise("gelu", 1, SMOOTH)
gelu_grad = elementwise("gelu_grad", 1, SMOOTH)
gelu_tanh = elementwise("gelu_tanh", 1, SMOOTH)
gelu_tanh_grad = elementwise("gelu_tanh_grad", 1, SMOOTH)
softplus = elementwise("softplus", 1, POSITIVE)
reciprocal = elementwise("reciprocal", 1, Traits(strict=True, needs="not zero", keeps=1))
pow_ = elementwise(
    "pow",
    1,
    Traits(strict=True, needs="positive", wraps=True),
    attrs={"exponent": REQUIRED},
)
