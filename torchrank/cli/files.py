"""Files of the command: checked before the work begins, and written whole or not at all."""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
from pathlib import Path

#: standard input, or standard output
STANDARD = "-"


#: ways out of errors that only Python has, and the calls that have them
IN_PYTHON = {
    "by tr.read_qrels(": "tr.evaluate(tr.read_qrels(path, columns=...), run)",
    "by tr.read_run(": "tr.evaluate(qrels, tr.read_run(path, columns=...))",
    "as a data frame": "tr.evaluate(qrels, frame)",
}


def in_shell(message: object) -> str:
    """A message with options of the command for arguments of Python, and the call of ways out that only Python has."""
    options = re.compile(r"\b(duplicates|ties)=('\w+'(?: or '\w+')?)")
    text = options.sub(lambda found: f"--{found[1]} {found[2]}".replace("'", ""), str(message))
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
    data = text.encode()
    if path.endswith(".gz"):
        data = gzip.compress(data, mtime=0)
    place = Path(path).resolve()
    if place.exists() and not place.is_file():  # a pipe, or /dev/stdout
        place.write_bytes(data)
        return
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
