"""The long description of the package: the README with links that work outside of the repository."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def described(readme: str, source: str | None) -> str:
    """A README whose links lead to the files of a repository on the web.

    Args:
        readme: Markdown with links to files of the repository.
        source: the address of the repository, without a slash at the end. Without it only the words of the links stay.
    """

    def absolute(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        if source is None:
            return f"*{words}*" if picture else words
        return f"{picture}[{words}]({source}/{'raw' if picture else 'blob'}/HEAD/{path})"

    parts = CODE.split(readme)  # every second part is a block of code
    parts[::2] = [LINK.sub(absolute, part) for part in parts[::2]]
    return "".join(parts) + ("" if source else "\nThe pages named here are files of the source distribution.\n")


if __name__ == "__main__":
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {})
    setup(
        long_description=described((ROOT / "README.md").read_text(encoding="utf-8"), urls.get("Source")),
        long_description_content_type="text/markdown",
    )
