"""Settings of the site; :mod:`build` writes its sources and starts Sphinx."""

from __future__ import annotations

import re
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import class_pages
from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.nodes import make_refnode

from torchrank.version import __version__

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
URLS = PROJECT["urls"]

project = "torchrank"
version = release = __version__
extensions = ["sphinx.ext.autodoc", "myst_nb", "sphinx_copybutton", "matplotlib.sphinxext.plot_directive"]
suppress_warnings = ["mystnb.unknown_mime_type"]  # of widgets, which have a picture or a text, too
nitpicky = True
#: names of other libraries, and of the code behind the public names
nitpick_ignore_regex = [("py:.*", r"(torch|torchmetrics|numpy|collections|typing)\b.*")]

autodoc_typehints = "none"  # docstrings describe the arguments
#: libraries whose base classes the pages of integrations need, if they are not installed
autodoc_mock_imports = [
    name
    for name in ("ir_measures", "lightning", "mlflow", "optuna", "pykeen", "ray", "sentence_transformers", "sklearn")
    if find_spec(name) is None
]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "off"
nb_merge_streams = True
plot_include_source = True
plot_html_show_formats = plot_html_show_source_link = False
plot_formats = [("png", 110)]
plot_rcparams = {"figure.facecolor": "white"}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"torchrank {version}"
html_static_path = [str(Path(__file__).with_name("site.css"))]
html_css_files = ["site.css"]
html_copy_source = html_use_index = html_domain_indices = False
html_math_renderer = "mathml"
html_baseurl = URLS["Documentation"]
html_theme_options = {"footer_icons": [{"name": "Source", "url": URLS["Source"], "html": "Source", "class": ""}]}


class LinkNames(SphinxPostTransform):
    """A public name that stands as code in the text of a page becomes a link to its page."""

    default_priority = 5

    def run(self, **_: Any) -> None:
        for literal in list(self.document.findall(nodes.literal)):
            page = class_pages.page_of(literal.astext(), self.env.docname == "measures/index")
            # Other tables have names of other libraries.
            kinds = (
                nodes.reference,
                nodes.title,
                *[nodes.table] * (self.env.docname not in ("index", "measures/index")),
            )
            inside = any(isinstance(one, kinds) for one in _above(literal))
            if page and not inside and page != self.env.docname:
                link = make_refnode(self.app.builder, self.env.docname, page, "", literal.deepcopy())
                literal.replace_self(link)


def _above(node: nodes.Node) -> list[nodes.Node]:
    return [] if node.parent is None else [node.parent, *_above(node.parent)]


TABLE = re.compile(r"^\|.*\|\n\|[-| ]+\|\n((?:\|.*\|\n?)+)", re.MULTILINE)
MANY = re.compile(r"^    (\w+,\s+)+\w+(?=:)", re.MULTILINE)  # names of arguments in several lines
STYLE = Config(napoleon_custom_sections=[("Source", "Source")], napoleon_use_rtype=False)


def _docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Sections in Google's style, and tables in Markdown, as reStructuredText."""

    def table(found: re.Match[str]) -> str:
        rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in found[0].split("\n") if row]
        cells = ["\n".join(f"   {'*' if at == 0 else ' '} - {cell}" for at, cell in enumerate(row)) for row in rows]
        return "\n".join([".. list-table::\n   :header-rows: 1\n", cells[0], *cells[2:], ""])

    if getattr(thing, "__name__", None) in class_pages.measures():
        lines[:] = lines[lines.index("") :]  # its summary and formula begin the page
    text = MANY.sub(lambda found: " ".join(found[0].split()).join(("    ", "")), "\n".join(lines))
    lines[:] = GoogleDocstring(TABLE.sub(table, text), STYLE).lines()


def _missing(app: Sphinx, env: Any, node: Any, words: nodes.Element) -> nodes.Element | None:
    """A link by the last part of a name: of a base class, or of a method in the docstring of its class."""
    last = node.get("reftarget", "").rsplit(".", 1)[-1]
    objects = env.domains["py"].objects
    found = [name for name in objects if name.rsplit(".", 1)[-1] == last]
    found.sort(key=lambda name: (not name.startswith("torchrank.RankingMetric."), name))
    if not found or node["refdomain"] != "py":
        return None
    one = objects[found[0]]
    return make_refnode(app.builder, node["refdoc"], one.docname, one.node_id, words, found[0])


#: a command, or a word that is not one: an italic word would look like a product of its letters
WORD = re.compile(r"(\\(?:text|mathrm|operatorname|begin|end)\{[^}]*\}|\\[A-Za-z]+)|([A-Za-z]{2,})")


def _math(self: Any, node: nodes.Element) -> None:
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    formula = WORD.sub(lambda found: found[1] or rf"\text{{{found[2]}}}", node.astext())
    mathml = re.sub(r' xmlns="[^"]*"', "", convert(formula, display=display))
    mathml = mathml.replace("><", "> <")  # blanks between the symbols where the search shows them as text
    self.body.append(f'<div class="formula">{mathml}</div>' if display == "block" else mathml)
    raise nodes.SkipNode


def _index_for_models(app: Sphinx, error: Exception | None) -> None:
    """``llms.txt``, the index of the site for language models: https://llmstxt.org."""
    about = {f"measures/{name.lower()}": f": {one.summary}" for name, one in class_pages.measures().items()}
    titles = {name: title.astext() for name, title in app.env.titles.items()}
    lines = [f"# {project}", f"> {PROJECT['description']}"]
    for head, names in ("Pages", titles.keys() - about.keys()), ("Measures", about):
        lines.append(f"## {head}\n")
        lines[-1] += "\n".join(
            f"- [{titles[name]}]({html_baseurl}/{name}.html){about.get(name, '')}"
            for name in sorted(names, key=lambda name: (name != "index", name))
        )
    (Path(app.outdir) / "llms.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> None:
    """MathML, which browsers draw without a script, and links of names."""
    app.add_html_math_renderer("mathml", inline_renderers=(_math, None), block_renderers=(_math, None))
    app.add_post_transform(LinkNames)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("missing-reference", _missing)
    app.connect("build-finished", _index_for_models)
