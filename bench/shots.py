"""Screenshots of every view in five languages, light and dark, wide and narrow, in build/shots/: `python -m bench.shots`.

A server with a made-up hour behind it, in which one customer drops 3,000 documents on 300 light ones, with a document of each
state and files that a real worker has read; and a second one that nobody has used yet. `--docs` draws only the few pictures
that the documentation shows. Needs the program chromium.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import click
import httpx
from PIL import Image
from playwright.sync_api import Browser, Page

from fairlane import Queue
from fairlane.api import auth
from fairlane.api.permissions import Role
from fairlane.engine.protocol import DocumentFilter
from fairlane.engine.walk import walk_documents
from tests.chromium import chromium

from .shots_queue import (
    BIG,
    MINE,
    PAUSED,
    STEADY,
    Traffic,
    change_settings,
    fill_hour,
    limit_kinds,
    make_keys,
    make_states,
    register_worker,
    submit_files,
)

ROOT = Path(__file__).parents[1]
LANGUAGES, SCHEMES, WIDTHS = ("en", "pl", "pt", "es", "de"), ("light", "dark"), (1440, 390)
SETTLED_MS = 700
ROLES: tuple[Role, ...] = ("admin", "viewer")
KEY_NAME = "picture"  # of the key that is made for a picture

Action = Callable[[Page, "DemoServer"], None]


class View(NamedTuple):
    """A view, who sees it, and what is done there before the picture is taken."""

    name: str
    hash: str
    who: str = "admin"
    act: Action | None = None


class DemoServer(NamedTuple):
    """A running server, the address and key of each who looks at it (the newcomers at an empty one), and the views."""

    address: str
    keys: dict[str, tuple[str, str]]
    queue: Queue
    views: tuple[View, ...]


# -- what is done before a picture --------------------------------------------------------------------------------------


def _press(selector: str, index: int = 0) -> Action:
    return lambda page, server: page.locator(selector).nth(index).click()


def _choose_provider(page: Page, server: DemoServer) -> None:
    ways = {"oidc": {"name": "Example ID", "url": "#"}, "proxy": None}
    page.route("**/page/sign-in", lambda route: route.fulfill(json=ways))
    page.goto(f"{server.address}/?sign_in=no_role")
    page.locator(".provider .button").wait_for()


def _fail_to_sign_in(page: Page, server: DemoServer) -> None:
    page.locator("input").fill("fl_0123456789abcdef_wrong")
    page.locator("button.main").click()
    page.locator(".wrong:not(:empty)").wait_for()


def _search(page: Page, server: DemoServer) -> None:
    page.locator(".figure").first.wait_for()
    page.keyboard.press("/")
    page.locator("main.view-documents").wait_for()
    page.keyboard.type("invoice-00")
    page.wait_for_url("**search=invoice-00**")


def _search_nothing(page: Page, server: DemoServer) -> None:
    page.locator("input[type=search]").first.fill("nobody has this name")
    page.locator(".empty-state").wait_for()


def _submit_fax(page: Page, server: DemoServer) -> None:
    """Let a document wait that no worker takes."""
    fax = server.queue.submit(STEADY, {"path": "fax-17.tif"}, kind="faxes")
    page.reload()
    page.locator(".warning").wait_for()
    page.wait_for_timeout(SETTLED_MS)
    server.queue.cancel(fax.id)  # other views shall not show it; this one shows it until it is drawn again


def _ask_what_if(page: Page, server: DemoServer) -> None:
    page.locator("form input").nth(1).fill("20")
    page.locator("form button").click()
    page.locator(".compared").wait_for(timeout=120_000)


def _lose_connection(page: Page, server: DemoServer) -> None:
    page.route("**/page/frames", lambda route: route.abort())
    page.reload()
    page.locator("#lost:not(:empty)").wait_for()


def _make_key(page: Page, server: DemoServer) -> None:
    page.locator("summary").click()
    page.locator("form input").nth(0).fill("florist")
    page.locator("form input").nth(1).fill(KEY_NAME)
    page.locator("form button").click()
    page.locator(".secret").wait_for()
    for key in list(auth.list_keys(server.queue.engine)):
        if key.name == KEY_NAME:
            auth.revoke(server.queue.engine, key.id)


def _upload(page: Page, server: DemoServer) -> None:
    """Upload two files: one fails, one is on its way."""
    page.route("**/v1/documents", lambda route: route.abort())
    page.locator("#files").set_input_files({"name": "contract.pdf", "mimeType": "application/pdf", "buffer": b"1" * 70_000})
    page.locator(".sending .failed").wait_for()
    page.unroute("**/v1/documents")
    page.evaluate("XMLHttpRequest.prototype.send = () => {}")  # the next one stays on its way
    page.locator("#files").set_input_files({"name": "Größenvergleich.docx", "mimeType": "text/plain", "buffer": b"1" * 900_000})


# -- the servers --------------------------------------------------------------------------------------------------------


def _start(folder: Path, url: str, *options: str) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "fairlane.cli", "serve", "--url", url, "--port", "0", "--json", *options,
               "--limit", "requests_a_second=100000", "--limit", "requests_burst=100000"]  # fmt: skip
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder)
    assert server.stdout is not None
    return server, json.loads(server.stdout.readline())["address"]


def _call_service(address: str, key: str, damaged: str) -> str:
    """Set a webhook that nobody answers, and send a batch of a paused customer; return the batch's id."""
    with httpx.Client(base_url=address, headers={"Authorization": f"Bearer {key}"}, trust_env=False) as client:
        client.put("/v1/webhook", params={"customer": MINE}, json={"url": "https://clinic.example/fairlane"})
        client.post("/v1/webhook/deliveries", json={"document": damaged})
        documents = [{"payload": {"path": f"page-{number:02}.tif"}} for number in range(1, 41)]
        body = {"customer": PAUSED, "documents": documents}
        response = client.post("/v1/batches", json=body, headers={"Idempotency-Key": "Archive 2026"})
        assert response.status_code == 202, response.text
        return str(response.json()["id"])


def _staff_views(ids: dict[str, str]) -> Iterator[View]:
    """The views of staff."""
    for name in ("lanes", "customers", "documents", "waits", "kinds", "keys", "audit", "how"):
        yield View(name if name != "how" else "how-staff", name)
    yield View("workers", "workers", act=_submit_fax)
    yield View("what-if", "what-if", act=_ask_what_if)
    yield View("lost", "lanes", act=_lose_connection)
    yield View("search", "lanes", act=_search)
    yield View("search-nothing", "documents", act=_search_nothing)
    yield View("documents-bulk", f"documents?customer={quote(BIG)}")
    yield View("customers-nothing", "customers", act=_search_nothing)
    yield View("customer", f"customers/{quote(STEADY)}")
    yield View("customer-paused", f"customers/{quote(PAUSED)}")
    yield View("customer-viewer", f"customers/{quote(PAUSED)}", "viewer")
    yield View("customer-webhook", f"customers/{quote(MINE)}")
    yield View("document", f"documents/{ids.pop('waiting')}")
    for name, id in ids.items():
        yield View(f"document-{name}", f"batches/{id}" if name == "batch" else f"documents/{id}")
    yield View("document-missing", "documents/nothing")
    yield View("dialog-pause", f"customers/{quote(STEADY)}", act=_press(".control button"))
    yield View("dialog-counter", f"customers/{quote(STEADY)}", act=_press(".control button", 8))
    yield View("dialog-priority", f"documents/{ids['delayed']}", act=_press(".answer button"))
    yield View("dialog-kind", "kinds", act=_press("tbody button", 4))
    yield View("dialog-drain", "workers", act=_press("tbody button"))
    yield View("dialog-rotate", "keys", act=_press("tbody button"))
    yield View("dialog-revoke", "keys", act=_press("tbody button", 1))
    yield View("key-made", "keys", act=_make_key)


def _views(ids: dict[str, str]) -> tuple[View, ...]:
    """All views."""
    mine = [View(name, name, "customer") for name in ("mine", "how", "webhook")]
    own = {"result": "result", "mine-failed": "damaged"}
    return (
        View("sign-in", "", "nobody"),
        View("sign-in-wrong", "", "nobody", _fail_to_sign_in),
        View("sign-in-provider", "", "nobody", _choose_provider),
        *_staff_views({name: id for name, id in ids.items() if name != "damaged"}),
        *mine,
        *(View(name, f"mine/{ids[key]}", "customer") for name, key in own.items()),
        View("mine-sending", "mine", "customer", _upload),
        *(
            View(f"first-{name}", name, "first")
            for name in ("lanes", "customers", "documents", "workers", "kinds", "waits", "keys")
        ),
        View("first-what-if", "what-if", "first", _press("form button")),
        *(View(f"newcomer-{name}", name, "newcomer") for name in ("mine", "how", "webhook")),
    )


@contextmanager
def serve(folder: Path) -> Iterator[DemoServer]:
    """Run a server with an hour behind it, and an empty one."""
    url, empty_url = (f"sqlite:///{folder}/{name}.db" for name in ("queue", "empty"))
    with Queue(url) as queue, Queue(empty_url) as empty:
        fill_hour(queue, random.Random(1))
        result, damaged = submit_files(queue, folder / "inbox")
        register_worker(queue, "machine-3", {}, silent_ms=9 * 60_000)
        make_keys(queue)
        limit_kinds(queue)
        ids = make_states(queue)
        admin, viewer = (auth.create(queue.engine, role=role)[0] for role in ROLES)
        server, address = _start(folder, url, "--slots", "1")
        second, empty_address = _start(folder, empty_url, "--no-work")
        traffic = Traffic(url, [ids["running"]])
        keys = {
            "nobody": (address, ""), "admin": (address, admin), "viewer": (address, viewer),
            "customer": (address, auth.create(queue.engine, customer=MINE)[0]),
            "first": (empty_address, auth.create(empty.engine, role="admin")[0]),
            "newcomer": (empty_address, auth.create(empty.engine, customer="acme")[0]),
        }  # fmt: skip
        try:
            while queue.document(result).state != "done" or queue.document(damaged).state != "failed":
                time.sleep(0.2)
            waiting = next(walk_documents(queue.engine, DocumentFilter(customer=BIG, state="ready"))).id
            ids |= {"waiting": waiting, "batch": _call_service(address, admin, damaged), "result": result, "damaged": damaged}
            yield DemoServer(address, keys, queue, _views(ids))
        finally:
            traffic.close()
            for process in (server, second):
                process.terminate()
                process.wait()


def sign_in(page: Page, server: DemoServer, who: str) -> None:
    """Exchange a key for a cookie, as the form does."""
    address, key = server.keys[who]
    page.goto(address)
    if not key:
        return
    page.evaluate(
        """key => fetch("/page/session", { method: "POST", headers: { "Content-Type": "application/json" },
                    body: JSON.stringify({ key }) }).then((response) => { if (!response.ok) throw Error(response.status) })""",
        key,
    )


# -- pictures -----------------------------------------------------------------------------------------------------------


def _screenshot(page: Page, server: DemoServer, view: View) -> tuple[bytes, int]:
    """Take a screenshot of a view; return also by how many pixels it is too wide."""
    if view.name == "audit":
        change_settings(server.queue)
    page.goto(f"{server.keys[view.who][0]}/#/{view.hash}")
    page.reload()
    if view.name in ("keys", "audit") or view.name.startswith("dialog"):
        page.locator("tbody tr, .answer").first.wait_for()
    if view.act:
        view.act(page, server)
    page.wait_for_timeout(SETTLED_MS)
    too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    is_whole = view.name.partition("-")[0] != "dialog"
    picture = page.screenshot(full_page=is_whole and page.viewport_size == {"width": 390, "height": 844})
    page.unroute_all()
    return picture, int(too_wide)


def screenshots(
    browser: Browser, server: DemoServer, language: str, scheme: str, width: int, names: frozenset[str]
) -> Iterator[tuple[str, bytes]]:
    """Take screenshots of views in one language, colour scheme and width."""
    for who in server.keys:
        views = [view for view in server.views if view.who == who and (not names or view.name in names)]
        if not views:
            continue
        context = browser.new_context(
            locale=language, color_scheme="dark" if scheme == "dark" else "light",
            viewport={"width": width, "height": 844 if width < 600 else 1000}, is_mobile=width < 600, has_touch=width < 600,
        )  # fmt: skip
        page = context.new_page()
        sign_in(page, server, who)
        for view in views:
            picture, too_wide = _screenshot(page, server, view)
            if too_wide > 0:
                click.echo(f"too wide by {too_wide} pixels: {view.name}, {language}, {scheme}, {width}")
            yield view.name, picture
        context.close()


DOCS = {  # file name: language, colours, width, view
    "page-lanes.png": ("en", "light", 1180, "lanes"),
    "page-lanes-phone.png": ("de", "dark", 390, "lanes"),
    "page-document.png": ("en", "light", 1180, "document"),
    "page-customers.png": ("es", "light", 1180, "customers"),
    "page-workers.png": ("en", "light", 1180, "workers"),
    "page-kinds.png": ("en", "light", 1180, "kinds"),
    "page-waits.png": ("pt", "dark", 1180, "waits"),
    "page-keys.png": ("en", "light", 1180, "keys"),
    "page-audit.png": ("en", "light", 1180, "audit"),
    "page-mine.png": ("pl", "light", 1180, "mine"),
}


@click.command()
@click.option("--docs", is_flag=True, help="Only the screenshots of the documentation, to docs/pictures/.")
@click.option("--only", multiple=True, help="Only this view.")
@click.option("--language", multiple=True, default=LANGUAGES, help="Only this language.")
@click.option("--scheme", multiple=True, default=SCHEMES, help="Only light or dark.")
@click.option("--width", multiple=True, default=WIDTHS, help="Only this width.")
def main(docs: bool, only: tuple[str, ...], language: tuple[str, ...], scheme: tuple[str, ...], width: tuple[int, ...]) -> None:
    """Take screenshots of the page."""
    with tempfile.TemporaryDirectory() as folder, serve(Path(folder)) as server, chromium() as browser:
        if docs:
            for name, (code, colours, pixels, view) in DOCS.items():
                for _, picture in screenshots(browser, server, code, colours, pixels, frozenset({view})):
                    _save_small(picture, ROOT / "docs/pictures" / name)
            return
        target = ROOT / "build/shots"
        target.mkdir(parents=True, exist_ok=True)
        for code, colours, pixels in itertools.product(language, scheme, width):
            for view, picture in screenshots(browser, server, code, colours, pixels, frozenset(only)):
                (target / f"{view}-{code}-{colours}-{pixels}.png").write_bytes(picture)
        click.echo(f"wrote {target}")


def _save_small(picture: bytes, path: Path) -> None:
    """Save a screenshot with 128 colours, which is enough for a page."""
    with Image.open(io.BytesIO(picture)) as shot:
        shot.convert("RGB").quantize(128, method=Image.Quantize.MEDIANCUT).save(path, optimize=True)


if __name__ == "__main__":
    main()
