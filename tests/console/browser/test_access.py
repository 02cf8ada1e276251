"""A customer's page shows nothing of other customers, and hostile names do no harm."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.api.running import Server

from .browser_page import KIND, OPERATOR_VIEWS, BrowserPage, open_page
from .test_stories import drain

HOSTILE = (
    "<script>window.harmed = 1</script>",
    '"><img src=x onerror="window.harmed = 1">',
    "\u202eevil.exe \u05e9\u05dc\u05d5\u05dd",
    "x" * 200,
    "{count} ${1+1} %s",
    "../../etc/passwd?x=1#y",
)


def test_a_customer_cannot_reach_what_is_for_operators(browser: Browser, server: Server, customer: str) -> None:
    other = f"{customer}, somebody else"
    receipt = server.queue.submit(other, content=b"secret", name="secret of others.txt", kind=KIND)
    with open_page(browser, server, server.key(customer)) as console:
        page = console.page
        expect(page.locator("nav a")).to_have_count(3)
        for view in (*OPERATOR_VIEWS[:-1], f"customers/{other}", f"documents/{receipt.id}"):
            page.evaluate("hash => { location.hash = hash }", f"#/{view}")
            page.locator("main.view-mine").wait_for()
        page.evaluate("hash => { location.hash = hash }", f"#/mine/{receipt.id}")
        console.wait_for_text("Document not found")
        assert other not in page.content()
        assert "secret" not in page.content()
        for address in (
            "/page/frames", "/page/customers", f"/page/customers/{other}", "/page/history", f"/page/documents/{receipt.id}",
            "/v1/customers", "/v1/policy", f"/v1/documents/{receipt.id}", f"/v1/documents/{receipt.id}/text", "/metrics",
        ):  # fmt: skip
            assert page.evaluate("address => fetch(address).then(response => response.status)", address) == 404, address
    drain(server)


def test_hostile_names_do_no_harm(browser: Browser, server: Server) -> None:
    receipts = [server.queue.submit(name, content=b"x", name=name[-90:], kind=KIND) for name in HOSTILE]
    with open_page(browser, server, server.operator) as console:
        page = console.page
        for name in HOSTILE:
            console.wait_for_text(name, ".legend")
        for view in ("customers", "documents", *(f"documents/{receipt.id}" for receipt in receipts)):
            console.open(view)
            assert console.overflows() == [], view
        for name in HOSTILE:
            console.open(f"customers/{page.evaluate('name => encodeURIComponent(name)', name)}")
            expect(page.locator("h1 bdi")).to_have_text(name)
            assert page.locator("h1 bdi").get_attribute("title") == name
            page.get_by_role("button", name="Pause", exact=True).click()
            expect(page.locator("dialog bdi")).to_have_text(name)
            assert console.overflows() == [], name
            page.keyboard.press("Escape")
        assert page.evaluate("window.harmed") is None
        assert page.locator("script:not([src])").count() == page.locator("img[onerror]").count() == 0
    drain(server)


def test_hostile_names_of_files_do_no_harm_to_their_customer(browser: Browser, server: Server, customer: str) -> None:
    with open_page(browser, server, server.key(customer), viewport={"width": 390, "height": 800}) as console:
        page = console.page
        names = [name.replace("/", "")[-120:] for name in HOSTILE]
        for name in names:
            dropped = page.evaluate_handle(
                "name => { const data = new DataTransfer(); data.items.add(new File(['text'], name)); return data }", name
            )
            page.locator(".drop").dispatch_event("drop", {"dataTransfer": dropped})
        expect(page.locator(".files li")).to_have_count(len(names))
        expect(page.locator(".files .badge.done, .files .badge.failed")).to_have_count(len(names))
        assert console.overflow() == 0
        page.locator(".files a").first.click()
        page.locator("main h1").wait_for()
        assert console.overflow() == 0
        assert page.evaluate("window.harmed") is None


def test_the_content_security_policy_stops_inline_scripts(operator: BrowserPage) -> None:
    directive = operator.page.evaluate(
        """() => new Promise((resolve) => {
          addEventListener("securitypolicyviolation", (event) => resolve(event.effectiveDirective), { once: true });
          const script = document.createElement("script");
          script.textContent = "window.harmed = 1";
          document.head.append(script);
        })"""
    )
    operator.problems.clear()  # Chromium logs the violation
    assert directive == "script-src-elem"
    assert operator.page.evaluate("window.harmed") is None
