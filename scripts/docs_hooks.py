"""What mkdocs.yml calls while the site is built; the checks of links need no mkdocs and are used by the tests, too.

Some pages of the site are files of the repository (`extra.files` in mkdocs.yml). Their links, and links of other pages to
them, are right on both sides: as files in a checkout, and as pages of the site.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"^(```|~~~).*?^\1[ \t]*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def slug(heading: str) -> str:
    """The anchor of a heading, as Python-Markdown and code hosts make it."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    ascii_ = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_).strip().lower())


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings. A second heading of the same name is not told apart: link to the first only."""
    without_blocks = _CODE.sub(lambda m: "" if m[1] else m[0], text)
    return {slug(heading) for heading in re.findall(r"^#{1,6} (.+)$", without_blocks, re.MULTILINE)}


def links(text: str) -> list[str]:
    """Targets of the links of a page, those inside code left out."""
    return [target for _, target in LINK.findall(_CODE.sub("", text))]


def broken_links(file: Path) -> list[str]:
    """Links of a Markdown file that lead nowhere in the checkout: no such file, or no such heading in it."""
    broken = []
    for target in links(file.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (file.parent / path).resolve() if path else file
        fits = there.exists() and (not anchor or anchor in anchors(there.read_text(encoding="utf-8")))
        if not fits:
            broken.append(f"{file.relative_to(ROOT)}: {target}")
    return broken


# ------------------------------------------------------------------------------------------------------ called by mkdocs


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are files of the repository."""
    from mkdocs.structure.files import File

    for page, source in config["extra"]["files"].items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=content))
    broken = broken_links(ROOT / "README.md")
    if broken:
        from mkdocs.exceptions import PluginError

        raise PluginError("links that lead nowhere: " + "; ".join(broken))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Turn links between files of the repository into links between pages; other files are named, not linked."""
    made = config["extra"]["files"]
    name = page.file.src_uri
    place = made.get(name, f"docs/{name}")  # of this page in the repository
    page_of = {source: target for target, source in made.items()}

    def turn(match: re.Match[str]) -> str:
        text, target = match[1], match[2]
        path, hash_, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(place), path))
        if file in page_of:
            to = page_of[file]
        elif file.startswith("docs/"):
            to = file.removeprefix("docs/")
        elif (ROOT / file).exists():
            return text if "`" in text else f"{text} (`{file}`)"
        else:
            return match[0]
        return f"[{text}]({posixpath.relpath(to, posixpath.dirname(name) or '.')}{hash_}{anchor})"

    parts, last = [], 0
    for code in _CODE.finditer(markdown):  # code stays as it is
        parts += [LINK.sub(turn, markdown[last : code.start()]), code[0]]
        last = code.end()
    parts.append(LINK.sub(turn, markdown[last:]))
    return _unescape("".join(parts))


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Refuse a page that would load something from elsewhere."""
    found = re.search(r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=[\"']?(https?:[^\"' >]+)", output)
    if found:
        from mkdocs.exceptions import PluginError

        raise PluginError(f"{page.file.src_uri} loads {found[1]}")
    return output


def _unescape(markdown: str) -> str:
    """A bar inside code in a table: code hosts want it escaped, Python-Markdown shows the backslash."""
    return re.sub(r"`[^`\n]*\\\|[^`\n]*`", lambda m: m[0].replace("\\|", "|"), markdown)
