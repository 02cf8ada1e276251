"""What the documentation site adds to the pages of docs/: pages that stand elsewhere in the project, and the HTTP reference.

The HTTP reference is made from the OpenAPI document, the Python reference by mkdocstrings from the code. The site needs no
server: opened as files, its search works too.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from fairlane.api.app import describe

ROOT = Path(__file__).parents[2]
ELSEWHERE = {  # pages outside docs/, by where the site has them
    "project/architecture.md": "ARCHITECTURE.md",
    "project/changelog.md": "CHANGELOG.md",
    "project/contributing.md": "CONTRIBUTING.md",
    "project/security.md": "SECURITY.md",
    **{
        f"examples/{path.parent.name}.md": str(path.relative_to(ROOT))
        for path in sorted((ROOT / "examples").glob("*/README.md"))
    },
}
ASSETS = {  # files of the site that are no pages, by where it has them
    "assets/icon.svg": "src/fairlane/console/static/icon.svg",
    "assets/site.css": "docs/site/site.css",
    "assets/worker.js": "docs/site/worker.js",
}
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(#[^)\s]*)?(?=\))")
NAMED_AFTER_FILE = re.compile(r"\[([\w./-]+\.md)\]\(([^)\s]+)\)")
LANGUAGE = re.compile(r"priorities/(\w\w)\.md")
TREE = re.compile(r"<p>([^<]*\n[├└][^<]*)</p>")
HTTP = "reference/http.md"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand elsewhere, and the one that is generated."""
    for uri, source in ELSEWHERE.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text()))
    for uri, source in ASSETS.items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / source)))
    files.append(File.generated(config, HTTP, content=http_reference(describe())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links to where the site has what they name; what it does not have (code, configuration) stays as its name."""
    uri = page.file.src_uri
    if uri.startswith(("decisions/", "project/")):
        page.meta.setdefault("search", {"boost": 0.2})  # after the pages that say how to use it
    source = posixpath.join("docs", uri) if uri not in ELSEWHERE else ELSEWHERE[uri]
    here = posixpath.dirname(source)

    def lead(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(here, found[1]))
        known = {target: uri for uri, target in ELSEWHERE.items()}
        target = known.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if target is None or files.get_file_from_path(target) is None:
            return found[0]
        return posixpath.relpath(target, posixpath.dirname(uri) or ".") + (found[2] or "")

    led = NAMED_AFTER_FILE.sub(lambda found: f"[{_title(found, uri, files)}]({found[2]})", LINK.sub(lead, markdown))
    return re.sub(r"(?<!!)\[([^\]]+)\]\((?!\w+:|#)([^)]+)\)", lambda found: _unless_missing(found, uri, files), led)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Show a tree that a docstring has drawn as it was drawn."""
    return TREE.sub(r'<div class="highlight"><pre><code>\1</code></pre></div>', html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Say in which language a page is."""
    found = LANGUAGE.fullmatch(page.file.src_uri)
    return output.replace('<html lang="en"', f'<html lang="{found[1]}"', 1) if found else output


@event_priority(-100)  # after the search has written its index
def on_post_build(config: MkDocsConfig) -> None:
    """Write the index of the search as a script too: from files, a page may load nothing else."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")


def _title(found: re.Match[str], uri: str, files: Files) -> str:
    """Return the heading of the page that a link names by its file, or the name if it leads to no page."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(uri), found[2].partition("#")[0]))
    file = files.get_file_from_path(target)
    heading = re.search(r"^# (.+)$", file.content_string, re.MULTILINE) if file is not None else None
    return heading[1] if heading else found[1]


def _unless_missing(found: re.Match[str], uri: str, files: Files) -> str:
    """Return the link, or its text alone if it leads to a file that is not part of the site."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(uri), found[2].partition("#")[0]))
    outside = (
        target.startswith("..")
        or (ROOT / "docs" / target).is_dir()
        or (files.get_file_from_path(target) is None and (ROOT / target).exists())
    )
    return f"`{found[1].strip('`')}`" if outside else found[0]


def http_reference(document: dict[str, Any]) -> str:
    """Write a page of the OpenAPI document: each call with its parameters, bodies and answers, then the schemas."""
    lines = [
        "# HTTP API",
        "",
        f"Made from the OpenAPI document of version {document['info']['version']}, which every server has at "
        "`/v1/openapi.json`. [The service](../service.md) explains keys, permissions, errors and limits.",
    ]
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            by_tag.setdefault(operation.get("tags", ["service"])[0], []).append((method.upper(), path, operation))
    for tag in sorted(by_tag):
        lines += ["", f"## {tag.capitalize()}"]
        for method, path, operation in by_tag[tag]:
            lines += ["", f"### {method} {path}", "", operation.get("description", "")]
            lines += _parameters(operation) + _bodies(operation)
    lines += ["", "## Schemas"]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += ["", f"### {name}", "", schema.get("description", "")]
        required = schema.get("required", ())
        if schema.get("properties"):
            lines += ["", "| member | type | |", "|---|---|---|"]
        for member, value in schema.get("properties", {}).items():
            mark = "" if member in required else "optional. " if name.endswith(("Body", "Form")) else ""
            lines.append(f"| `{member}` | {_type(value)} | {mark}{_cell(value.get('description', ''))} |")
    return "\n".join(lines) + "\n"


def _parameters(operation: dict[str, Any]) -> list[str]:
    parameters = operation.get("parameters", ())
    lines = ["", "| parameter | in | type | |", "|---|---|---|---|"] if parameters else []
    for parameter in parameters:
        description = parameter.get("description", "")
        lines.append(f"| `{parameter['name']}` | {parameter['in']} | {_type(parameter['schema'])} | {_cell(description)} |")
    return lines


def _bodies(operation: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        lines += ["", f"Body, `{media_type}`: {_type(content.get('schema', {}))}"]
    for status, response in sorted(operation["responses"].items()):
        if status.startswith("2"):
            types = [f"`{media}`: {_type(content.get('schema', {}))}" for media, content in response.get("content", {}).items()]
            lines += ["", f"Answers {status}{', ' if types else ''}{'; '.join(types)}"]
    refused = [status for status in sorted(operation["responses"]) if not status.startswith("2")]
    return [*lines, "", f"Refused with {', '.join(refused)}: [Problem](#problem)"] if refused else lines


def _type(schema: dict[str, Any]) -> str:
    """Say in a few words what a value is."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(choice) for choice in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return str(schema.get("type", "any JSON"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
