"""Mutants of the code: faults of one token, in random places."""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

OPERATORS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.MatMult: ast.Mult,
}  # fmt: skip
PAIRS = "min max, minimum maximum, amin amax, argmin argmax, cummin cummax, any all, floor ceil, zeros ones, first last"
PAIRS += ", zeros_like ones_like, new_zeros new_ones, startswith endswith, lt le, gt ge, logical_and logical_or"
NAMES = {a: b for pair in PAIRS.split(", ") for a, b in (pair.split(), pair.split()[::-1])}

#: arguments of plots whose constants are a matter of taste; dx and dy are distances of texts from their places
LOOKS = [
    *("alpha", "dpi", "dx", "dy", "fontsize", "framealpha", "handlelength", "linewidth", "markersize", "nbins"),
    *("rotation", "zorder"),
]


@dataclass
class Mutant:
    """Bytes ``start`` to ``end`` of a file, with ``after`` in their place."""

    file: str
    line: int
    start: int
    end: int
    before: str
    after: str
    statement: bool
    label: str = ""
    caught_by: str = ""

    @property
    def folder(self) -> str:
        return self.label.rpartition("-")[0]

    def applied(self, source: bytes) -> bytes:
        lines = b"\n" * source[self.start : self.end].count(b"\n")  # all other lines have the same numbers
        after = self.after.encode() + lines
        return source[: self.start] + (after if self.statement else b"(" + after + b")") + source[self.end :]

    def __str__(self) -> str:
        fate = f"caught by {self.caught_by}" if self.caught_by else "not caught"
        return f"{self.label}  {self.file}:{self.line}  {self.before}  ->  {self.after}\n      {fate}"


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """(part of a node, the part in its place)."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=right):
            yield node, ast.Compare(left, [OPERATORS[type(op)]()], right)
        case ast.BinOp(left=left, op=op, right=right) if not any(map(is_text, (left, right))):
            yield node, ast.BinOp(left, OPERATORS[type(op)](), right)
        case ast.BoolOp(op=op, values=values):
            yield node, ast.BoolOp(OPERATORS[type(op)](), values)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=1)):
            pass  # the last dimension of a matrix is also its dimension 1
        case ast.UnaryOp(operand=operand):
            yield node, operand
        case ast.Constant(value=bool() | None as value):
            yield node, ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield from ((node, ast.Constant(value + by)) for by in (1, -1))
        case ast.Name(id=name, ctx=ast.Load()) if name in NAMES:
            yield node, ast.Name(NAMES[name])
        case ast.Attribute(value=value, attr=name, ctx=ast.Load()) if name in NAMES:
            yield node, ast.Attribute(value, NAMES[name])
        case ast.Slice(lower=lower, upper=upper):
            yield from ((bound, ast.Constant(None)) for bound in (lower, upper) if bound)
        case ast.Return(value=value) if value and not (isinstance(value, ast.Constant) and value.value is None):
            yield value, ast.Constant(None)
        case ast.AugAssign(target=target, op=op, value=value) if not is_text(value):
            yield node, ast.AugAssign(target, OPERATORS[type(op)](), value)
            yield node, ast.Pass()
        case ast.Expr() | ast.Raise():
            yield node, ast.Pass()
        case ast.Break():
            yield node, ast.Continue()
        case ast.Continue():
            yield node, ast.Break()
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield test, ast.UnaryOp(ast.Not(), test)
        case ast.comprehension(ifs=tests):
            yield from ((test, ast.UnaryOp(ast.Not(), test)) for test in tests)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def changed(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """The changes of a node and of all in it but words, annotations, code for type checkers, and looks of plots."""
    match node:
        case ast.JoinedStr() | ast.MatchValue() | ast.Expr(value=ast.Constant()):
            return
        case ast.If(test=ast.Name(id="TYPE_CHECKING")) | ast.FunctionDef(decorator_list=[ast.Name(id="overload")]):
            return
        case ast.Call(func=ast.Name(id="dataclass" | "dataclass_transform" | "field" | "cast" | "TypeVar")):
            return
        case ast.ClassDef(name="Costs"):  # numbers on which no result depends
            return
        case ast.Raise(exc=ast.Name(id="NotImplementedError")):  # of a method that subclasses define
            return
        case ast.keyword(arg=name, value=ast.Constant() | ast.UnaryOp()) if name in LOOKS:
            return
        case ast.Assert(msg=None):  # for type checkers
            return
        case ast.keyword(arg="stable"):  # torch's sorts are stable on the CPU
            return
    yield from changes(node)
    warns = isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    if not isinstance(node, ast.Raise) and not warns:
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns"):
                for part in value if isinstance(value, list) else [value]:
                    if isinstance(part, ast.AST):
                        yield from changed(part)


def places(root: Path, file: Path) -> list[list[Mutant]]:
    """For each place of a file that can be changed, its mutants."""
    source, name = file.read_bytes(), str(file.relative_to(root))
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    of_place: dict[tuple[int, int], dict[str, Mutant]] = {}
    for part, after in changed(ast.parse(source)):
        start, end = (starts[row - 1] + column for row, column in position(part))
        before, text = " ".join(source[start:end].decode().split()), ast.unparse(ast.fix_missing_locations(after))
        mutant = Mutant(name, part.lineno, start, end, before, text, isinstance(after, ast.stmt))
        of_place.setdefault((start, end), {})[text] = mutant
    return [list(mutants.values()) for mutants in of_place.values()]


def position(node: ast.AST) -> list[tuple[int, int]]:
    return [(node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)]


def drawn(root: Path, folder: str, number: int, seed: int) -> list[Mutant]:
    """Mutants of random places of a folder, in the order of the code."""
    draw = random.Random(f"{seed} {folder}")
    files = sorted([*(root / "torchrank" / folder).rglob("*.py"), *(root / "torchrank").glob(f"{folder}.py")])
    every = [place for file in files for place in places(root, file)]
    mutants = [draw.choice(every[i]) for i in sorted(draw.sample(range(len(every)), min(number, len(every))))]
    for i, mutant in enumerate(mutants, 1):
        mutant.label = f"{folder}-{i}"
    return mutants


def with_calls(source: bytes, calls: dict[str, Mutant]) -> bytes:
    """The source with calls that return None, each in front of the place of its mutant."""
    parts = []  # of a place in a place, the outer one begins first and ends last
    for call, mutant in calls.items():
        opening, closing = (f"{call}; ", "") if mutant.statement else (f"({call} or (", "))")
        parts += [(mutant.start, 1, -mutant.end, opening), (mutant.end, 0, -mutant.start, closing)]
    for at, _, _, text in sorted(parts, reverse=True):
        source = source[:at] + text.encode() + source[at:]
    return source
