"""Files of the command: checked before the work begins, and written whole or not at all."""

from __future__ import annotations

import gzip
import io
import os
import re
import secrets
import sys
from pathlib import Path

from torchrank.statistics.table import printable
from torchrank.tables.id_columns import encode

#: standard input, or standard output
STANDARD = "-"


#: ways out of errors that only Python has, and the calls that have them
IN_PYTHON = {
    "by tr.read_qrels(": "tr.evaluate(tr.read_qrels(path, columns=...), run)",
    "by tr.read_run(": "tr.evaluate(qrels, tr.read_run(path, columns=...))",
}
#: arguments of Python that are options of the command
OPTIONS = (
    *("queries", "precision", "ties", "ignore_identical_ids", "depth", "relevance_level", "unjudged", "preset"),
    *("duplicates", "expansion", "parent"),
    *("baseline", "test", "correction", "family", "alpha", "seed", "power", "delta"),
)
_ARGUMENT = re.compile(rf"(?<![^ ])({'|'.join(OPTIONS)})=('[^']*'(?: or '\w+')?|True|[\d.]+\b)")
_CALL = re.compile(rf"\bby tr\.read_\w+\(source, ((?:{'|'.join(OPTIONS)})=[^)]+)\)")


def refused(command: str, error: Exception, status: int) -> int:
    """Print an error as :func:`in_shell`; the exit status."""
    print(f"torchrank{command and ' '}{command}: {printable(in_shell(error))}", file=sys.stderr)
    return status


def in_shell(message: object) -> str:
    """A message with options of the command for arguments of Python, and the call of ways out that only Python has."""

    def option(argument: re.Match[str]) -> str:
        value = argument[2].replace("'", "")
        return f"--{argument[1].replace('_', '-')}" + ("" if value == "True" else f" {value}")

    text = _ARGUMENT.sub(option, _CALL.sub(r"with \1", str(message)))
    calls = [call for way_out, call in IN_PYTHON.items() if way_out in text]
    return f"{text}; in Python: {calls[0]}" if calls else text


class Input(io.BytesIO):
    """The content of a source that can be read once, with its name for messages."""

    def __init__(self, data: bytes, name: str) -> None:
        super().__init__(data)
        self.name = name


def check_readable(path: str, folder: bool = False) -> None:
    """Check that a path can be read. Names of other sources, as ``irds:...``, are not checked.

    Args:
        path: the path, or - for standard input.
        folder: whether a folder with files in JSON is accepted: the predictions that MTEB writes.

    Raises:
        OSError: the file does not exist, is a folder, or is not readable.
    """
    place = Path(path)
    if path == STANDARD or path.startswith("irds:"):
        return
    if not place.exists():
        raise FileNotFoundError(f"Expected a file that exists, got {path}")
    if place.is_dir() and not (folder and next(place.rglob("*.json"), None)):
        raise IsADirectoryError(f"Expected a file, got the folder {path}; name a file in it")
    if not os.access(place, os.R_OK):
        raise PermissionError(f"Expected a file that can be read, got {path}; change its permissions")


def source_of(path: str) -> str | Input:
    """The path of a file, or the content of standard input and of pipes, which can be read once."""
    if path == STANDARD:
        return Input(sys.stdin.buffer.read(), "<stdin>")
    place = Path(path)
    return Input(place.read_bytes(), path) if place.exists() and not (place.is_file() or place.is_dir()) else path


def write(path: str, text: str) -> None:
    """Write a text, compressed if the path ends in .gz: a file under another name, which gets its name at the end.

    Raises:
        OSError: the file cannot be written.
    """
    data = encode(text)
    if path.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    place = Path(path).resolve()
    if place.exists() and not place.is_file():  # a pipe, or /dev/stdout
        place.write_bytes(data)
        return
    part = place.with_name(f".{secrets.token_hex(16)}.part")  # nobody can have put a link there
    try:
        with part.open("xb") as file:
            file.write(data)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
