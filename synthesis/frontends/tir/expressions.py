"""Reads expressions of a script from Python's syntax tree. Nothing is ever executed."""

import ast
import math
import operator
from collections.abc import Mapping
from fractions import Fraction
from typing import NoReturn

from shardproof.synthesis.frontends.tir.errors import fail
from shardproof.synthesis.frontends.tir.tree import (
    REAL,
    Apply,
    Const,
    Expr,
    Load,
    Place,
    TIRBuffer,
    TIRVar,
    apply,
    as_int,
)
from shardproof.verifier.kernel.program.types import FLOATS

Value = int | float | str | bool | tuple["Value", ...]
"""What a name outside the tensor program may stand for."""

DTYPES = {
    "float64": "f64",
    "float32": "f32",
    "float": "f32",
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int": "i32",
    "bool": "bool",
}
LOWEST = {
    "f64": -Fraction(2**1024 - 2**971),
    "f32": -Fraction(2**128 - 2**104),
    "bf16": -Fraction(2**128 - 2**120),
    "f16": Fraction(-65504),
    "i64": Fraction(-(2**63)),
    "i32": Fraction(-(2**31)),
}
"""The least finite value of each dtype."""
HIGHEST = {k: -v if k in FLOATS else -v - 1 for k, v in LOWEST.items()}

FUNCTIONS = {
    **{name: (name, 1) for name in (*REAL, "floor", "abs") if name != "pow"},
    "fabs": ("abs", 1),
    "max": ("maximum", 2),
    "min": ("minimum", 2),
    **{name: (f"logical_{name.lower()}", 1 + (name != "Not")) for name in ("And", "Or", "Not")},
    **{name: (name, 2) for name in ("floordiv", "floormod")},
    **dict.fromkeys(("if_then_else", "Select"), ("where", 3)),
    **{name: (name.lower(), 2) for name in ("Add", "Sub", "Mul", "Div")},
    "Max": ("maximum", 2),
    "Min": ("minimum", 2),
}
"""Name after `T.` -> op and number of operands."""
BINARY: dict[type[ast.AST], tuple[str, str]] = {
    ast.Add: ("add", "add"),
    ast.Sub: ("sub", "sub"),
    ast.Mult: ("mul", "mul"),
    ast.Div: ("div", "truediv"),
    ast.FloorDiv: ("floordiv", "floordiv"),
    ast.Mod: ("floormod", "mod"),
    ast.Pow: ("pow", "pow"),
}
"""Python's operator -> op, and its name in `operator`."""
COMPARE: dict[type[ast.AST], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}


def dotted(node: ast.AST) -> str:
    """`T.axis.spatial` as text; empty for anything but names and attributes."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


class Expressions:
    """Names in scope, and what expressions mean in it."""

    def __init__(self, file: str, constants: Mapping[str, Value]) -> None:
        self.file = file
        self.constants: dict[str, Value] = dict(constants)
        self.names: dict[str, Expr] = {}
        """Loop variables and block axes."""
        self.buffers: dict[str, TIRBuffer] = {}

    def place(self, node: ast.AST) -> Place:
        line, col = getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1
        return Place(line, col, self.file)

    def fail(
        self, node: ast.AST, what: str, *, expected: str = "", got: str = "", hint: str = ""
    ) -> NoReturn:
        fail(self.place(node), what, expected=expected, got=got, hint=hint)

    def call(self, node: ast.AST | None) -> str:
        """The name called: `grid` for `T.grid(...)`, `range` for `range(...)`; else empty."""
        if not isinstance(node, ast.Call):
            return ""
        name = dotted(node.func)
        return name.split(".", 1)[1] if "." in name else name

    def bind(self, node: ast.Call, names: tuple[str, ...], required: int) -> dict[str, ast.expr]:
        """Arguments of a call by parameter name."""
        called = dotted(node.func)
        if len(node.args) > len(names) or any(isinstance(a, ast.Starred) for a in node.args):
            self.fail(node, f"{called} takes {', '.join(names)}", got=ast.unparse(node))
        out = dict(zip(names, node.args, strict=False))
        for keyword in node.keywords:
            if keyword.arg not in names or keyword.arg in out:
                self.fail(
                    node,
                    f"argument {keyword.arg} of {called} is not understood",
                    expected=f"one of {', '.join(names)}, once",
                )
            out[keyword.arg] = keyword.value
        missing = [n for n in names[:required] if n not in out]
        if missing:
            self.fail(node, f"{called} needs {missing[0]}", got=ast.unparse(node))
        return out

    # constants

    def constant(self, node: ast.AST) -> Value | None:
        """The value of an expression of constants, None where it is none."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
            return node.value
        if isinstance(node, ast.Name):
            hidden = node.id in self.names or node.id in self.buffers
            return None if hidden else self.constants.get(node.id)
        if isinstance(node, ast.Tuple | ast.List):
            parts = [self.constant(e) for e in node.elts]
            known = tuple(p for p in parts if p is not None)
            return known if len(known) == len(parts) else None
        if isinstance(node, ast.Attribute):
            name = node.attr
            return name if dotted(node.value) == "T" and name in DTYPES else None
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            inner = self.constant(node.operand)
            return -inner if isinstance(inner, int | float) else None
        if isinstance(node, ast.BinOp):
            return self._arithmetic(node)
        if isinstance(node, ast.Call):
            return self._called_constant(node)
        return None

    def _arithmetic(self, node: ast.BinOp) -> Value | None:
        a, b = self.constant(node.left), self.constant(node.right)
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            return None
        op = type(node.op)
        if op in (ast.FloorDiv, ast.Mod, ast.Div) and b == 0:
            self.fail(node, "division by zero", got=ast.unparse(node))
        if op is ast.Pow and not (abs(a) <= 1 << 16 and 0 <= b <= 64):
            return None
        return getattr(operator, BINARY[op][1])(a, b) if op in BINARY else None

    def _called_constant(self, node: ast.Call) -> Value | None:
        name = self.call(node)
        args = [self.constant(a) for a in node.args]
        if name in ("ceildiv", "cdiv", "min", "max") and len(args) == 2:
            a, b = args
            if isinstance(a, int) and isinstance(b, int):
                if name in ("min", "max"):
                    return min(a, b) if name == "min" else max(a, b)
                if b <= 0:
                    self.fail(node, "ceildiv by a number that is not positive", got=str(b))
                return -(-a // b)
        if name in ("int32", "int64") and len(args) == 1 and isinstance(args[0], int):
            return args[0]
        return None

    def integer(self, node: ast.AST, what: str) -> int:
        value = self.constant(node)
        if not isinstance(value, int) or isinstance(value, bool):
            free = sorted(
                {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                - {"T"}
                - set(self.constants)
            )
            self.fail(
                node,
                f"{what} is not a known integer",
                expected="an integer, or a name with a given extent",
                got=ast.unparse(node),
                hint=f"give extents={{{free[0]!r}: ...}}" if free else "",
            )
        return value

    def dtype(self, node: ast.AST) -> str:
        value = self.constant(node)
        if not isinstance(value, str) or value not in DTYPES:
            self.fail(
                node, "unknown dtype", expected=f"one of {', '.join(DTYPES)}", got=ast.unparse(node)
            )
        return DTYPES[value]

    # expressions

    def expr(self, node: ast.AST) -> Expr:
        """An expression of the tensor program. Raises TirError."""
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
            return self.literal(node, node.value)
        if isinstance(node, ast.Name):
            return self._name(node)
        if isinstance(node, ast.Subscript):
            return self.load(node)
        if isinstance(node, ast.BinOp) and type(node.op) in BINARY:
            return self._binary(node)
        if isinstance(node, ast.UnaryOp):
            if isinstance(node.op, ast.USub):
                return apply("neg", (self.expr(node.operand),), place=self.place(node))
            if isinstance(node.op, ast.Not):
                return Apply("logical_not", (self.expr(node.operand),), place=self.place(node))
        if isinstance(node, ast.BoolOp):
            op = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
            out = self.expr(node.values[0])
            for value in node.values[1:]:
                out = Apply(op, (out, self.expr(value)), place=self.place(node))
            return out
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARE:
            pair = (self.expr(node.left), self.expr(node.comparators[0]))
            return Apply(COMPARE[type(node.ops[0])], pair, place=self.place(node))
        if isinstance(node, ast.Call):
            return self._call(node)
        return self.fail(
            node,
            "expression is not understood",
            expected="numbers, loop variables, buffer elements, operators or a function of T",
            got=ast.unparse(node),
        )

    def literal(self, node: ast.AST, value: float) -> Expr:
        if isinstance(value, bool):
            return Apply("cast", (Const(Fraction(int(value))),), "bool", self.place(node))
        if isinstance(value, float) and math.isnan(value):
            self.fail(node, "not a number", got=ast.unparse(node))
        if isinstance(value, float) and math.isinf(value):
            return Const(value, True)
        return Const(Fraction(value), isinstance(value, float))

    def _name(self, node: ast.Name) -> Expr:
        if node.id in self.names:
            return self.names[node.id]
        if node.id in self.buffers:
            if self.buffers[node.id].shape == ():
                return Load(node.id, (), self.place(node))
            self.fail(node, f"buffer {node.id} without indices", expected=f"{node.id}[...]")
        value = self.constants.get(node.id)
        if isinstance(value, int | float):
            return self.literal(node, value)
        return self.fail(
            node,
            f"{node.id} is not defined here",
            expected="a loop variable, block axis, buffer or constant in scope",
            hint=f"if it is an extent, give extents={{{node.id!r}: ...}}",
        )

    def buffer(self, node: ast.AST) -> TIRBuffer:
        if isinstance(node, ast.Name) and node.id in self.buffers:
            return self.buffers[node.id]
        known = ", ".join(self.buffers) or "none"
        return self.fail(node, "not a buffer", expected=f"one of {known}", got=ast.unparse(node))

    def indices(self, node: ast.Subscript) -> list[ast.expr]:
        return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]

    def load(self, node: ast.Subscript) -> Load:
        buffer = self.buffer(node.value)
        given = self.indices(node)
        if buffer.shape == () and len(given) == 1 and self.constant(given[0]) in ((), 0):
            return Load(buffer.name, (), self.place(node))
        if any(isinstance(i, ast.Slice) for i in given):
            self.fail(node, "a slice stands where one element is meant", got=ast.unparse(node))
        if len(given) != len(buffer.shape):
            self.fail(
                node,
                f"{buffer.name} has {len(buffer.shape)} dims",
                expected=f"{len(buffer.shape)} indices",
                got=str(len(given)),
            )
        return Load(buffer.name, tuple(self.expr(i) for i in given), self.place(node))

    def _binary(self, node: ast.BinOp) -> Expr:
        op, _ = BINARY[type(node.op)]
        left, right = self.expr(node.left), self.expr(node.right)
        if op == "pow":
            return self._power(node, left, right)
        if op.startswith("floor"):
            self._divisor(node, right)
        return apply(op, (left, right), place=self.place(node))

    def _divisor(self, node: ast.AST, right: Expr) -> None:
        by = as_int(right)
        if by is None or by <= 0:
            self.fail(node, "// and % need a positive integer constant on the right")

    def _power(self, node: ast.AST, base: Expr, exponent: Expr) -> Expr:
        if not isinstance(exponent, Const) or not isinstance(exponent.value, Fraction):
            self.fail(node, "the exponent of a power must be a number", got=ast.unparse(node))
        return Apply("pow", (base,), exponent.value, self.place(node))

    def _call(self, node: ast.Call) -> Expr:
        name = self.call(node)
        known = self.constant(node)
        if isinstance(known, int):
            return self.literal(node, known)
        place = self.place(node)
        if name in ("int32", "int64", "bool") or (name in DTYPES and DTYPES[name] in FLOATS):
            return self._typed(node, name)
        if name in ("Cast", "cast"):
            order = ("dtype", "value") if name == "Cast" else ("value", "dtype")
            given = self.bind(node, order, 2)
            return Apply("cast", (self.expr(given["value"]),), self.dtype(given["dtype"]), place)
        if name in ("min_value", "max_value", "infinity"):
            dtype = self.dtype(self.bind(node, ("dtype",), 1)["dtype"])
            if name == "infinity":
                return Const(math.inf, True)
            return Const((LOWEST if name == "min_value" else HIGHEST)[dtype], dtype in FLOATS)
        if name in ("pow", "power"):
            given = self.bind(node, ("x", "y"), 2)
            return self._power(node, self.expr(given["x"]), self.expr(given["y"]))
        if name in FUNCTIONS and dotted(node.func).startswith("T."):
            op, arity = FUNCTIONS[name]
            if len(node.args) != arity or node.keywords:
                self.fail(node, f"T.{name} takes {arity} operands", got=ast.unparse(node))
            args = tuple(self.expr(a) for a in node.args)
            if op.startswith("floor") and arity == 2:
                self._divisor(node, args[1])
            return apply(op, args, "eager" if name == "Select" else "", place)
        return self.fail(
            node,
            f"function {dotted(node.func) or ast.unparse(node.func)} is not understood",
            expected="one of T." + ", T.".join(sorted({*FUNCTIONS, "cast", "Cast", "pow"})),
        )

    def _typed(self, node: ast.Call, name: str) -> Expr:
        """`T.float32(x)`: a constant of that dtype, or a cast."""
        (arg,) = self.bind(node, ("value",), 1).values()
        value = self.constant(arg)
        if isinstance(value, str):
            if value.lstrip("-+") not in ("inf", "infinity"):
                self.fail(node, "a number in quotes", expected="inf or -inf", got=repr(value))
            return Const(-math.inf if value.startswith("-") else math.inf, True)
        if isinstance(value, int | float) and DTYPES[name] in FLOATS:
            return self.literal(arg, float(value)) if abs(value) < 2**53 else self._exact(value)
        inner = self.expr(arg)
        if name in ("int32", "int64") and not isinstance(inner, Load) and _integral(inner):
            return inner
        return Apply("cast", (inner,), DTYPES[name], self.place(node))

    def _exact(self, value: float) -> Expr:
        finite = not (isinstance(value, float) and math.isinf(value))
        return Const(Fraction(value) if finite else value, True)


def _integral(expr: Expr) -> bool:
    """Whether it is an index expression already: a cast to integers does nothing."""
    if isinstance(expr, Const):
        return not expr.is_float
    if isinstance(expr, Apply):
        plain = expr.op in ("add", "sub", "mul", "neg", "floordiv", "floormod")
        return plain and all(map(_integral, expr.args))
    return isinstance(expr, TIRVar)
