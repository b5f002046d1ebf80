"""The pages, and the commands that print their tables. ``python tests/support/pages.py`` rewrites all tables."""

import contextlib
import importlib
import io
import re
import runpy
import sys
from pathlib import Path

from tests.support import descriptions

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
WRITE = "python tests/support/pages.py"

#: page, name of the block between ``<!-- name -->`` and ``<!-- /name -->``, command that prints it
BLOCKS = [
    ("README.md", "speed", "python -m benchmarks --table --short"),
    ("benchmarks/README.md", "benchmarks", "python -m benchmarks --table"),
    ("benchmarks/ACCELERATORS.md", "measured", "python -m benchmarks --visit --table --device cuda"),
    ("torchrank/metrics/README.md", "measures", "python -m docs.measure_list"),
    ("torchrank/names/README.md", "presets", "python -m docs.preset_list"),
    ("torchrank/names/README.md", "spellings", "python -m docs.spelling_list"),
    ("torchrank/tables/README.md", "hostile", "python -m tests.support.hostile_files"),
]
PAGES = [ROOT / page for page in dict.fromkeys(page for page, _, _ in BLOCKS)]
#: pages without generated tables
GUIDES = [ROOT / f"torchrank/{room}/README.md" for room in ("evaluation", "statistics")]


def printed(command):
    """The output of a command of :data:`BLOCKS`, run in this clone and in this process, which has imported torch."""
    _, *arguments = command.split()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if arguments[:2] == ["-m", "benchmarks"]:
            sys.path.insert(0, str(ROOT))
            try:
                importlib.import_module("benchmarks.__main__").main(arguments[2:])
            finally:
                sys.path.remove(str(ROOT))
        else:
            runpy.run_path(str(ROOT / f"{arguments[1].replace('.', '/')}.py"), run_name="__main__")
    return out.getvalue().strip()


def shown(page, block):
    """A block of a page."""
    return _place(page.read_text(encoding="utf-8"), page, block)[1].strip()


def write():
    """Replace every block by the output of its command, after the descriptions that commands print."""
    descriptions.write()
    for name, block, command in BLOCKS:
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        place = _place(text, page, block)
        page.write_text(f"{text[: place.start(1)]}{printed(command)}\n{text[place.end(1) :]}", encoding="utf-8")


def _place(text, page, block):
    found = re.search(rf"<!-- {block} -->\n(.*?)<!-- /{block} -->", text, re.DOTALL)
    if found is None:
        raise ValueError(f"Expected a block <!-- {block} --> ... <!-- /{block} --> in {page}, got none")
    return found


if __name__ == "__main__":
    write()
