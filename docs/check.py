"""Check a built site, ``python docs/check.py FOLDER``: its links and, in Chromium if it is installed, its pages."""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

#: on a page of the site, in a frame as wide as a phone: opens pages, and searches as a reader does
VISIT = """<!doctype html><iframe id="phone" style="width: 420px; height: 800px; border: 0"></iframe><script>
const phone = document.getElementById("phone"), problems = [], pages = PAGES;
const open = address => new Promise(done => { phone.onload = done; phone.src = address; });
const until = async (found) => { for (let i = 0; i < 200 && !found(); i++) await new Promise(r => setTimeout(r, 50)); };
function isWide(element) {
  if (element.getBoundingClientRect().right <= 421) return false;
  for (let box = element.parentElement; box.localName !== "article"; box = box.parentElement)
    if (phone.contentWindow.getComputedStyle(box).overflowX !== "visible") return false;  // scrolls inside
  return true;
}
(async () => {
  for (const address of pages) {
    await open(address);
    const wide = [...phone.contentDocument.querySelectorAll("article *")].find(isWide);
    if (wide) problems.push(`${address} is wider than 420 pixels at ${wide.outerHTML.slice(0, 100)}`);
  }
  await open("search.html?q=ndcg");
  const hit = () => phone.contentDocument.querySelector("#search-results li a");
  await until(() => /found/.test(phone.contentDocument.querySelector(".search-summary")?.textContent));
  await new Promise(done => { phone.onload = done; hit().click(); });
  const title = phone.contentDocument.querySelector("h1").childNodes[0].textContent;
  if (title !== "NDCG") problems.push(`The first hit of ndcg is ${title}`);
  document.body.innerHTML = ""; document.body.textContent = JSON.stringify(problems);
})();</script>"""


class Links(HTMLParser):
    """The targets of the links of a page, and the places in it that links can name."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if key == "id":
                self.places.add(value or "")
            elif key in ("href", "src") and not re.match(r"[a-z]+:|//", value or ""):
                self.links.append(value or "")


def broken(site: Path) -> list[str]:
    """Links to a page, file or heading that the site does not have."""
    pages = {page: Links(page) for page in site.rglob("*.html")}
    found = []
    for page, read in pages.items():
        for link in read.links:
            path, place = urldefrag(link)
            target = (page.parent / unquote(path.split("?")[0])).resolve() if path else page
            known = pages.get(target)
            if not target.exists() or (known and unquote(place) not in known.places):
                found.append(f"{page.relative_to(site)} links to {link}")
    return found


def seen(site: Path) -> list[str] | None:
    """Problems that a browser shows; None where no browser is installed."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        return None
    visit = site / "visit.html"
    pages = [str(page.relative_to(site)) for page in sorted(site.rglob("*.html"))]
    visit.write_text(VISIT.replace("PAGES", json.dumps(pages)), encoding="utf-8")
    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = (
            "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
            " --disable-component-update --disable-sync --dump-dom --enable-logging=stderr --virtual-time-budget=600000"
        )
        address = f"http://127.0.0.1:{server.server_port}/visit.html"
        command = [browser, *options.split(), f"--user-data-dir={profile}", address]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        server.shutdown()
    visit.unlink()
    result = re.search(r"<body>(\[.*\])</body>", ran.stdout, re.DOTALL)
    said = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    return [*said, *(json.loads(result[1]) if result else [f"The visit did not end: {ran.stdout[-500:]}"])]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server that does not print its requests."""

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    folder = Path(sys.argv[1]).resolve()
    problems = broken(folder)
    looked = seen(folder)
    if looked is None:
        print("no chromium: the pages of the site were not opened in a browser")
    problems += looked or []
    print(*problems, sep="\n", end="\n" * bool(problems))
    sys.exit(bool(problems))
