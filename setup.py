"""The long description of the package: the README with links that work outside of the repository."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
CODE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def described(readme: str) -> str:
    """A README whose links lead to the files of the repository on the web."""

    def absolute(link: re.Match[str]) -> str:
        picture, words, path = link.groups()
        return f"{picture}[{words}]({source()}/{'raw' if picture else 'blob'}/HEAD/{path})"

    parts = CODE.split(readme)  # every second part is a block of code
    parts[::2] = [LINK.sub(absolute, part) for part in parts[::2]]
    return "".join(parts)


def source() -> str:
    """The address of the repository, without a slash at the end."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return settings["project"]["urls"]["Source"]


if __name__ == "__main__":
    setup(
        long_description=described((ROOT / "README.md").read_text(encoding="utf-8")),
        long_description_content_type="text/markdown",
    )
