"""The page behind an nginx that knows the service's address and nothing else."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.api.running import Server
from tests.api.test_tls import made
from tests.servers.proxies import stock_nginx

from .browser_page import KIND, open_page


def test_the_page_is_live_behind_nginx(browser: Browser, server: Server, customer: str, tmp_path: Path) -> None:
    pair = made(tmp_path, "localhost")
    proxy, address = stock_nginx(server.port, Path(pair.certificate), Path(pair.key)), "https://localhost"
    try:
        with open_page(browser, server, server.operator, f"{address}:{proxy.port}", ignore_https_errors=True) as console:
            console.open("lanes")
            receipt = server.queue.submit(customer, kind=KIND)
            expect(console.page.locator(".legend")).to_contain_text(customer)
            server.queue.cancel(receipt.id)
            expect(console.page.locator(".legend")).not_to_contain_text(customer)
            expect(console.page.locator("body")).not_to_contain_text("Not live.")
    finally:
        proxy.close()
