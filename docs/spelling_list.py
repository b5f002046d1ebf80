"""The labels with their spellings in other libraries, as tables: ``python -m docs.spelling_list``."""

from torchrank.cli.lists import MEASURES, all_spellings
from torchrank.display import Table


def tables() -> str:
    """The tables in Markdown: labels with all spellings, and names that mean something else in a library."""
    same, others = (list(zip(*rows)) for rows in all_spellings(MEASURES))
    first, second = Table(dict(zip(("label", "spellings"), same))), Table(dict(zip(("name", "here", "there"), others)))
    return f"{first.to_markdown()}\n\nNames that mean something else in a library:\n\n{second.to_markdown()}"


if __name__ == "__main__":
    print(tables())
