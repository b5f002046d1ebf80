"""Build the site: ``python docs/build.py FOLDER`` writes FOLDER/html. A warning is an error.

The sources are the pages and notebooks of the repository, copied to FOLDER/source with links between pages; and a page
for each public name.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import class_pages
import nbformat
from sphinx.cmd.build import build_main

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from setup import CODE, LINK, source  # noqa: E402

DOCS = Path(__file__).parent
COLAB = "https://colab.research.google.com/github"
#: the pages in the sidebar by caption; a star stands for the pages that no line before has
CONTENTS = {
    "Start": [
        "notebooks/quickstart",
        "notebooks/training",
        "notebooks/choosing",
        "notebooks/layouts",
        "cheatsheet",
        "gallery",
    ],
    "Reference": ["measures/index", "api/index", *(f"guide/{name}" for name in ("names", "statistics", "evaluation"))],
    "Guides": ["notebooks/*"],
    "Project": ["changelog", "support", "stability", "guide/*", "*"],
}


def pages() -> dict[str, str]:
    """The pages of the repository, and the place of each in the site."""
    found = {
        "README.md": "index.md",
        "CHANGELOG.md": "changelog.md",
        "torchrank/metrics/README.md": "measures/index.md",
    }
    for path in sorted([*ROOT.glob("[!.]*/README.md"), *ROOT.glob("torchrank/*/README.md"), *ROOT.glob("*.md")]):
        name = path.relative_to(ROOT)
        place = f"guide/{path.parent.name}.md" if path.name == "README.md" else f"{path.stem.lower()}.md"
        found.setdefault(str(name), place)
    found |= {f"docs/{path.name}": path.name for path in [*DOCS.glob("*.md"), *DOCS.glob("*.rst")]}
    return found | {f"notebooks/{path.name}": f"notebooks/{path.name}" for path in ROOT.glob("notebooks/*.ipynb")}


def linked(text: str, origin: str, places: dict[str, str]) -> str:
    """A page of the repository, whose links lead to pages of the site, or else to the repository on the web."""

    def moved(link: re.Match[str]) -> str:
        picture, words, address = link.groups()
        path, _, heading = address.partition("#")
        target = os.path.normpath(Path(origin).parent / path)
        if picture:
            return link[0]
        if target in places:
            target = os.path.relpath(places[target], Path(places[origin]).parent)
            return f"[{words}]({target}{'#' * bool(heading)}{heading})"
        return f"[{words}]({source()}/blob/HEAD/{target})"

    parts = CODE.split(text)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts)


def notebook(origin: str, places: dict[str, str]) -> nbformat.NotebookNode:
    """A notebook with links as in :func:`linked`, and one that opens it in Colab."""
    book = nbformat.read(ROOT / origin, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "markdown":
            cell.source = linked(cell.source, origin, places)
    title, _, text = book.cells[0].source.partition("\n")
    colab = f"[Open in Colab]({source().replace('https://github.com', COLAB)}/blob/HEAD/{origin})"
    book.cells[0].source = f"{title}\n\n{colab}\n{text}"
    return book


def write(folder: Path) -> None:
    """All sources of the site."""
    places = pages()
    for origin, place in places.items():
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if origin.endswith(".ipynb"):
            nbformat.write(notebook(origin, places), target)
        else:
            target.write_text(linked((ROOT / origin).read_text(encoding="utf-8"), origin, places), encoding="utf-8")
    readme, measures = folder / "index.md", folder / "measures/index.md"
    choosing = nbformat.read(folder / "notebooks/choosing.ipynb", as_version=4).cells[0].source
    families = class_pages.families(choosing)
    before, _, rest = measures.read_text(encoding="utf-8").partition("<!-- measures -->")
    text = before + families + rest.partition("<!-- /measures -->")[2]
    headings = "|".join(name.lower() for name in class_pages.measures())
    measures.write_text(re.sub(rf"\(#({headings})\)", r"(\1.rst)", text), encoding="utf-8")  # they have pages here
    for picture in ROOT.glob("notebooks/*.png"):
        shutil.copy(picture, folder / "notebooks")
    (folder / "api").mkdir()
    questions = class_pages.questions(choosing)
    for name, place in class_pages.addresses().items():
        asked = questions.get(name.lower(), "")
        is_measure = name in class_pages.measures()
        page = class_pages.measure_page(name, asked) if is_measure else class_pages.other_page(name)
        (folder / f"{place}.rst").write_text(page, encoding="utf-8")
    cheat_sheet = class_pages.cheat_sheet(readme.read_text(encoding="utf-8"))
    (folder / "cheatsheet.md").write_text(cheat_sheet, encoding="utf-8")
    (folder / "api/index.rst").write_text(class_pages.index_page(), encoding="utf-8")
    (folder / "api/families.rst").write_text(class_pages.families_page(), encoding="utf-8")
    trees = "".join(_toctree(caption, names, folder) for caption, names in CONTENTS.items())
    readme.write_text(f"---\nhide-toc: true\n---\n{readme.read_text(encoding='utf-8')}{trees}", encoding="utf-8")


def _toctree(caption: str, names: list[str], folder: Path) -> str:
    lines = [f"\n\n```{{toctree}}\n:hidden:\n:caption: {caption}\n", *_pages(names, folder), "```\n"]
    return "\n".join(lines)


def _pages(names: list[str], folder: Path) -> list[str]:
    """Pages by name; for a name with a star all that are in no caption by their names."""
    named = {"index", *(name for several in CONTENTS.values() for name in several)}
    pages = []
    for name in names:
        found = [str(path.relative_to(folder).with_suffix("")) for path in sorted(folder.glob(f"{name}.[imr]*"))]
        pages += [name] if name in named and "*" not in name else [one for one in found if one not in named]
    return pages


def main(folder: Path) -> int:
    """Write the sources, and build the site from them."""
    for part in ("source", "html", "doctrees"):
        shutil.rmtree(folder / part, ignore_errors=True)
    write(folder / "source")
    options = ["-c", str(DOCS), "-W", "--keep-going", "-q", "-d", str(folder / "doctrees")]
    return build_main([*options, str(folder / "source"), str(folder / "html")])


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
