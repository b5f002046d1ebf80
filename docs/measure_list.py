"""The measures by family, for the site, and as a list in Markdown: ``python -m docs.measure_list`` prints it."""

from __future__ import annotations

import textwrap

import torchrank.public as public
from torchrank.cli.lists import BY_LABEL
from torchrank.names.registry import Description, known

#: families of measures: the question that they answer, and the files with their classes
FAMILIES = {
    "Binary relevance": (
        "Each candidate is relevant or not. Are the relevant ones at the top?",
        ("binary",),
    ),
    "Graded relevance": (
        "Some candidates are better than others. Are the best at the top?",
        ("graded",),
    ),
    "Models of users": (
        "A user reads from the top and may stop at any rank. How much does the user gain?",
        ("user_models",),
    ),
    "Curves and pairs": (
        "All ranks have the same weight. How often is a relevant candidate above an irrelevant one?",
        ("curves",),
    ),
    "Incomplete data and counts": (
        "Only a part was judged, clicked or ranked. How much of the number can be trusted?",
        ("incomplete_judgments", "sampled_ranks"),
    ),
    "Diversity of subtopics": (
        "A query has several meanings. Does the list serve all of them?",
        ("subtopics",),
    ),
    "Comparison of two rankings": (
        "Do two rankings agree?",
        ("rank_correlation",),
    ),
    "Lists of recommendations": (
        "Do the lists use the catalogue? Are they new, varied and surprising?",
        ("beyond_accuracy",),
    ),
    "Popularity, fairness and calibration": (
        "Who gets the attention: popular items, each group of items, each taste of a user?",
        ("fairness",),
    ),
}


def families() -> dict[str, list[Description]]:
    """The measures of each family; the ones that most other libraries have come first.

    Raises:
        ValueError: the file of a measure is in no family.
    """
    members: dict[str, list[Description]] = {family: [] for family in FAMILIES}
    for one in sorted(BY_LABEL, key=_libraries, reverse=True):
        module = getattr(public, one.class_name).__module__.rpartition(".")[2]
        family = next((family for family, (_, modules) in FAMILIES.items() if module in modules), None)
        if family is None:
            raise ValueError(f"Expected {module}.py in a family of {__file__}, got none; add it to FAMILIES")
        members[family].append(one)
    return members


def _libraries(measure: Description) -> int:
    """How many other libraries have a measure."""
    return len({one.library for one in known(measure) if one.same})


def page() -> str:
    """All families: first which measure is in which, then an entry for each measure."""
    contents, sections = [], []
    for family, members in families().items():
        question = FAMILIES[family][0]
        names = ", ".join(f"[{one.class_name}]({_anchor(one.class_name)})" for one in members)
        contents.append(_wrapped(f"- [{family}]({_anchor(family)}): {question} {names}.", "  "))
        sections.append("\n\n".join([f"### {family}", question, *map(entry, members)]))
    return "\n\n".join(["\n".join(contents), *sections])


def entry(one: Description) -> str:
    """A measure: its label, meaning, formula, source and names elsewhere, under a heading."""
    meaning = f"`{one.label}`. {one.summary}. Values: {one.range}."
    source, elsewhere = f"Source: {one.source}", f"In other libraries: {one.also_in}"
    # Markdown would change `\,` and `\{` between dollars.
    formula = f"```math\n{_wrapped(one.formula)}\n```"
    return "\n\n".join([f"#### {one.class_name}", _wrapped(meaning), formula, _wrapped(source), _wrapped(elsewhere)])


def _wrapped(text: str, indent: str = "") -> str:
    """A paragraph in lines of at most 100 characters."""
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _anchor(heading: str) -> str:
    return "#" + heading.lower().replace(",", "").replace(" ", "-")


if __name__ == "__main__":
    print(page())
