"""How often "what" and "whatever" stand in the prose of the code: ``python tests/prose.py [PATH ...]``.

Counts the words of docstrings and comments (and of Markdown pages), without doctests, code and the sections ``Source``
and ``Also in``. More than :data:`MOST` in 1,000 words of a whole is an error; every place is printed.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: allowed in 1,000 words
MOST = 2.0
PLACES = ("torchrank", "tests", "benchmarks", "README.md", "CHANGELOG.md")

_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_WHAT = re.compile(r"\b(what|whatever)\b", re.IGNORECASE)
_SKIPPED = re.compile(r"^ *(Source|Also in):\n(?:(?: +[^\n]*)?\n)*?(?=^ *\w[\w ]*:\n|\Z)", re.MULTILINE)
_DOCTEST = re.compile(r"^ *(?:>>>|\.\.\.)[^\n]*\n(?:(?! *>>>)[^\n]*\S[^\n]*\n)*", re.MULTILINE)


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Pieces of prose of a file, with the line where each begins."""
    text = path.read_text()
    if path.suffix == ".md":
        for number, line in enumerate(re.sub(r"^```.*?^```", _blank, text, flags=re.DOTALL | re.MULTILINE).split("\n")):
            yield number + 1, "" if line.startswith("|") else line
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (doc := ast.get_docstring(node)):
            start = node.body[0].lineno
            yield start, _SKIPPED.sub(_blank, _DOCTEST.sub(_blank, doc + "\n"))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#: ")


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def count(paths: list[Path]) -> tuple[int, list[str]]:
    """How many words the prose of some files has, and the places of "what" and "whatever"."""
    words, places = 0, []
    for path in paths:
        for start, text in prose(path):
            words += len(_WORD.findall(text))
            for number, line in enumerate(text.split("\n"), start):
                places += [f"{path.relative_to(ROOT)}:{number}: {line.strip()}"] * len(_WHAT.findall(line))
    return words, places


def files(places: list[Path]) -> list[Path]:
    """The Python files and pages in some places."""
    found = [p for place in places for p in ([place] if place.is_file() else sorted(place.rglob("*")))]
    return [path for path in found if path.suffix in (".py", ".md")]


if __name__ == "__main__":
    given = [Path(path).resolve() for path in sys.argv[1:]] or [ROOT / name for name in PLACES]
    shares = []
    for place in given:
        words, found = count(files([place]))
        shares.append(1000 * len(found) / max(1, words))
        print(*found, sep="\n", end="\n" * bool(found))
        print(f"{place.relative_to(ROOT)}: {len(found)} in {words:,} words, {shares[-1]:.1f} in 1,000")
    sys.exit(max(shares) > MOST)
