"""The measures of all libraries with a preset, as a table: ``python -m docs.preset_list``."""

from torchrank.display import Table
from torchrank.names.parse import ALWAYS, EXCEPT, LIBRARIES, Cell, rows
from torchrank.names.registry import described, plain


def table() -> str:
    """The table in Markdown. The first two rows are about all measures of a library."""
    always = {name: ", ".join(f"`{key}={value}`" for key, value in each.items()) for name, each in ALWAYS.items()}
    lines = [["all of these", *(always.get(name, "") for name in LIBRARIES)]]
    lines.append(["except", *(EXCEPT.get(name, "") for name in LIBRARIES)])
    for measure, row in rows(described()).items():
        lines.append([measure, *("; ".join(map(_shown, row.get(name, []))) for name in LIBRARIES)])
    return Table(dict(zip(["", *LIBRARIES.values()], zip(*lines)))).to_markdown()


def _shown(cell: Cell) -> str:
    return plain(f"none: {cell.why}" if cell.ours is None else f"`{cell.ours}`")


if __name__ == "__main__":
    print(table())
