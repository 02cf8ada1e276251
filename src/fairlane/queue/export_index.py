"""The pages of an export that people read: an overview, and tables of documents with links to their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from html import escape
from typing import Any

from fairlane.printable import printable

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem;max-width:75rem}table{border-collapse:collapse;width:100%}"
    "td,th{border-bottom:1px solid #ccc;padding:.3rem .6rem;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
)
HOLDS = (
    ("customer.json", "Where the customer stands, and the terms it has of its own."),
    ("documents/", "Documents, newest first: for people, and with payload, result and failed attempts as JSON lines."),
    ("files/", "Files by document: what was sent (original), and what was made of it (text.md, facts.json, thumbnail.png)."),
    ("changes/", "The feed: what happened to documents and to the customer, oldest first."),
    ("records/", "Keys without their secrets, the webhook without its secrets, its deliveries, and batches."),
    ("manifest.jsonl", "Every file here with its size and SHA-256. An archive that has it is complete."),
)  # fmt: skip


def index_page(customer: str, exported_at: datetime, counts: Mapping[str, int], pages: int) -> bytes:
    """Return the overview."""
    facts = _table(("", ""), [(name, f"{count:,}") for name, count in counts.items()])
    holds = _table(("file or folder", "holds"), HOLDS)
    links = " ".join(f'<a href="documents/{number:06}.html">{number}</a>' for number in range(1, pages + 1))
    at = exported_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    lead = f"<p>Everything that the queue kept of this customer, exported {at}.</p>"
    return _page(customer, f"{lead}{facts}<h2>Documents</h2><p>{links or 'none'}</p><h2>What is here</h2>{holds}")


def document_page(customer: str, documents: Iterable[Mapping[str, Any]]) -> bytes:
    """Return a table of documents."""
    rows = []
    for document in documents:
        name = (document["file"] or {}).get("name") or document["id"]
        links = " ".join(_link(file) for file in document["files"])
        submitted = document["submitted_at"].strftime("%Y-%m-%d %H:%M:%S")
        cells = (submitted, name, document["kind"], document["state"], document["reason"] or "")
        rows.append(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in cells)}<td>{links}</td></tr>")
    head = "".join(f"<th>{name}</th>" for name in ("submitted (UTC)", "document", "kind", "state", "reason", "files"))
    return _page(customer, f'<p><a href="../index.html">overview</a></p><table><tr>{head}</tr>{"".join(rows)}</table>')


def _link(file: Mapping[str, Any]) -> str:
    if "missing" in file:
        return f"{_text(file['name'])} (missing)"
    return f'<a href="../{_text(file["path"])}">{_text(file["name"])}</a>'


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = "".join(f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in head)}</tr>{lines}</table>"


def _text(value: str) -> str:
    return escape(printable(value))


def _page(customer: str, body: str) -> bytes:
    title = _text(f"Export of {customer}")
    head = f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style>'
    return f"{head}<h1>{title}</h1>{body}</html>\n".encode(errors="replace")
