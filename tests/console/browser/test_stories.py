"""What users do on the page, from beginning to end."""

from __future__ import annotations

import json
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from playwright.sync_api import Browser, expect

from fairlane.api import auth
from fairlane.core.document import Done
from tests.api.receivers import Listener
from tests.api.running import Server, until
from tests.api.test_webhooks import listener as listener  # a fixture
from tests.api.test_webhooks import verified
from tests.client.faulty_proxy import FaultyProxy

from .browser_page import KIND, MINUS, BrowserPage, open_page

FIRST_FRAME = """async () => {
  const reader = (await fetch("/page/frames")).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ; text += (await reader.read()).value) {
    const match = /^data: (.*)$/m.exec(text.slice(0, text.lastIndexOf("\\n\\n") + 1));
    if (match) return reader.cancel(), JSON.parse(match[1]);
  }
}"""
# how much is drawn in each lane, and where the workers are: pixels that are neither empty nor road
DRAWN = """() => {
  const canvas = document.querySelector("canvas"), wide = canvas.width, tall = canvas.height;
  const pen = new OffscreenCanvas(wide, tall).getContext("2d", { willReadFrequently: true });
  pen.drawImage(canvas, 0, 0);
  const coloured = (x, y, width, height) => {
    const bits = pen.getImageData(x, y, width, height).data;
    let count = 0;
    for (let at = 0; at < bits.length; at += 4)
      if (bits[at + 3] > 200 && Math.max(...bits.slice(at, at + 3)) - Math.min(...bits.slice(at, at + 3)) > 40) count++;
    return count;
  };
  const room = 62 * devicePixelRatio, row = tall / 9;
  return {
    lanes: [...Array(9).keys()].map((lane) => coloured(0, Math.round(row * lane), Math.round(wide - room), Math.floor(row))),
    workers: coloured(Math.round(wide - room), 0, Math.floor(room), tall),
  };
}"""
SILENCE_MS = 12_000  # after which a stream counts as lost
TEXT = "Zażółć gęślą jaźń. Ação. ¿Qué? Größe.\n"


def drain(server: Server) -> None:
    """Whatever waits is done, so that the next story begins with a quiet queue."""
    while server.finish(500):
        pass


def test_a_flood_and_its_relief(operator: BrowserPage, server: Server, customer: str) -> None:
    page, big = operator.page, f"{customer}, the big one"
    small = [f"{customer}, small {number}" for number in range(6)]
    lanes, story = page.locator(".lanes li"), page.locator(".story")
    server.queue.submit_many(big, [1] * 400, kind=KIND)
    for name in small:
        server.queue.submit(name, kind=KIND)
    expect(story).to_contain_text(f"{big} has sent a lot: 400 of its documents are waiting, most of them in lane 9")
    expect(lanes.nth(0).locator("b")).to_have_text("9")  # six small ones, and the first three of the big one
    expect(lanes.nth(8).locator("b")).to_have_text("379")
    expect(page.locator(".legend li").first).to_contain_text(big)
    expect(page.locator(".scale")).to_contain_text(re.compile(r"One block is up to \d+ documents"))

    claims = server.claim(9)  # the small ones pass
    assert set(small) <= {claim.customer for claim in claims}
    expect(page.locator(".workers")).to_have_text("9 in progress")
    expect(lanes.nth(0).locator("b")).to_have_text("0")
    expect(story).to_contain_text("Other customers overtake it")

    server.queue.engine.settle([(claim, Done("null")) for claim in claims])
    drain(server)
    expect(story).to_contain_text("All quiet: nothing is waiting")
    expect(page.locator(".legend")).to_contain_text("No one is waiting")


def test_delayed_documents_are_shown_as_delayed(operator: BrowserPage, server: Server, customer: str) -> None:
    page, story = operator.page, operator.page.locator(".story")
    delayed = server.queue.submit(customer, kind=KIND, delay=3600)
    expect(story).to_have_text("1 document is delayed.")
    expect(page.locator(".legend")).not_to_contain_text("No one is waiting")
    server.queue.submit(customer, kind=KIND)
    expect(story).to_have_text(re.compile(r"1 document is waiting\.\s*1 document is delayed\.\s*0 are in progress\."))
    (claim,) = server.claim(1)
    expect(story).to_have_text(re.compile(r"1 document is delayed\.\s*1 is in progress\."))
    server.queue.engine.settle([(claim, Done("null"))])
    server.queue.cancel(delayed.id)
    expect(story).to_contain_text("All quiet: nothing is waiting")


def test_somebody_finds_a_document_and_reads_why_it_waits(patient_operator: BrowserPage, server: Server, customer: str) -> None:
    operator, page = patient_operator, patient_operator.page
    server.queue.submit_many(customer, [1] * 25, kind=KIND)
    receipt = server.queue.submit(customer, content=TEXT.encode(), name="Rechnung November.txt", kind=KIND)
    operator.open("documents")
    page.get_by_label("Search by ID, name or key").fill("rechnung nov")
    row = page.locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("waiting")
    page.get_by_label("Search by ID, name or key").fill(receipt.id[:30])
    expect(row).to_have_count(1)
    row.locator("a").first.click()
    expect(page.locator("h1")).to_have_text("Rechnung November.txt")
    answer = page.locator(".answer")
    expect(answer).to_contain_text(f"because the counter of {customer} was at {MINUS}25 when it was submitted: below {MINUS}20")
    expect(answer).to_contain_text("About 25 documents are ahead of it.")
    expect(page.locator(".life li")).to_have_count(1)

    claims = server.claim(26)
    operator.refresh()
    expect(page.locator(".badge")).to_have_text("in progress")
    server.queue.engine.settle([(claim, Done("null")) for claim in claims])
    operator.refresh()
    expect(page.locator(".badge")).to_have_text("done")
    expect(page.locator(".life li")).to_have_count(3)
    operator.open(f"documents?customer={customer}".replace(" ", "%20"))
    expect(page.locator("tbody tr")).to_have_count(26)


def test_a_customer_is_paused_and_resumed(operator: BrowserPage, server: Server, customer: str) -> None:
    page = operator.page
    receipt = server.queue.submit(customer, kind=KIND)
    operator.open(f"customers/{customer}".replace(" ", "%20"))
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.locator("dialog")).to_contain_text(
        f"No documents from {customer} will be processed until you resume; 1 document is waiting"
    )
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert not server.queue.terms(customer).paused

    page.get_by_role("button", name="Pause", exact=True).click()
    page.locator("dialog").get_by_role("button", name="Pause").click()
    expect(page.locator(".head .badge")).to_have_text("paused")
    assert server.queue.terms(customer).paused
    operator.open(f"documents/{receipt.id}")
    operator.wait_for_text("It is waiting because this customer is paused.")

    operator.open(f"customers/{customer}".replace(" ", "%20"))
    page.get_by_label("Weight").fill("2.5")
    page.locator("form.control").filter(has_text="Weight").get_by_role("button").click()
    page.locator("dialog button.main").click()
    until(lambda: server.queue.terms(customer).weight == 2.5, "the weight")
    page.get_by_role("button", name="Resume").click()
    page.locator("dialog button.main").click()
    expect(page.locator(".head .badge")).to_have_count(0)
    assert not server.queue.terms(customer).paused
    drain(server)


def test_a_customer_gets_a_limit_of_its_own(operator: BrowserPage, server: Server, customer: str) -> None:
    page = operator.page
    server.queue.submit(customer, kind=KIND)
    operator.open(f"customers/{customer}".replace(" ", "%20"))
    field = page.get_by_label("Storage limit in MB")
    field.fill("1.5")
    field.press("Enter")
    expect(page.locator("dialog")).to_contain_text(f"files of {customer} may take 1.5 MB in all")
    page.locator("dialog button.main").click()
    expect(page.locator("dl.figures").first).to_contain_text("of 1.5 MB")
    assert server.queue.terms(customer).limits.bytes_max == 1_500_000
    operator.open("customers")
    operator.open(f"customers/{customer}".replace(" ", "%20"))
    expect(field).to_have_value("1.5")
    field.fill("")
    field.press("Enter")
    expect(page.locator("dialog")).to_contain_text(f"{customer} will have the limit that everybody has")
    page.locator("dialog button.main").click()
    expect(page.locator("dl.figures").first).not_to_contain_text("of 1.5 MB")
    assert server.queue.terms(customer).limits.bytes_max is None
    drain(server)


def test_a_customer_hands_in_a_file_and_takes_the_result(
    browser: Browser, server: Server, customer: str, tmp_path: Path
) -> None:
    file = tmp_path / "Rechnung Größe.txt"
    file.write_text(TEXT, encoding="utf-8")
    with open_page(browser, server, server.key(customer)) as console:
        page = console.page
        console.wait_for_text("No documents yet")
        page.locator("#files").set_input_files(file)
        listed = page.locator(".files li")
        expect(listed).to_contain_text("Rechnung Größe.txt")
        expect(listed.locator(".badge")).to_have_text("done")
        dropped = page.evaluate_handle(
            "text => { const data = new DataTransfer(); data.items.add(new File([text], 'dropped.txt')); return data }", TEXT
        )
        page.locator(".drop").dispatch_event("drop", {"dataTransfer": dropped})
        expect(listed).to_have_count(2)
        expect(listed.first.locator(".badge")).to_have_text("done")

        page.get_by_role("link", name="Rechnung Größe.txt").click()
        console.wait_for_text("Zażółć gęślą jaźń")
        expect(page.locator(".thumbnail")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("link", name="Download text").click()
        assert download.value.suggested_filename.startswith("Rechnung Gr")
        assert "¿Qué? Größe." in download.value.path().read_text(encoding="utf-8")
        console.open("how")
        expect(page.locator("tr.here")).to_contain_text("You are here")
        expect(page.locator(".you")).to_contain_text(f"Your counter is at {MINUS}1")


def test_a_customer_sets_its_webhook_and_an_operator_sees_what_is_wrong(
    browser: Browser, patient_operator: BrowserPage, server: Server, customer: str, listener: Listener
) -> None:
    operator = patient_operator
    with open_page(browser, server, server.key(customer), clock=True) as console:
        page = console.page
        console.open("webhook")
        page.get_by_label("Address").fill(listener.url)
        page.get_by_role("button", name="Save").click()
        expect(page.locator(".secret")).to_have_text(re.compile("^whsec_"))
        server.queue.submit(customer, kind=KIND)
        server.finish()
        with server.client(server.operator) as client:
            until(lambda: client.get("/v1/webhook", params={"customer": customer}).json()["failures"], "the first try")
        console.refresh()
        # Customers' own webhooks do not lead into the network of the service.
        expect(page.locator("tbody tr")).to_contain_text("127.0.0.1 leads to no address that is public")
        first = page.locator(".secret").inner_text()
        page.get_by_role("button", name="Make a new secret").click()
        page.locator("dialog button.main").click()
        expect(page.locator(".secret")).not_to_have_text(first)
        secret = page.locator(".secret").inner_text()
        console.wait_for_text("Calls are signed with two secrets until")
        page.reload()
        page.get_by_role("button", name="Retire the old secret").click()
        page.locator("dialog button.main").click()
        expect(page.get_by_role("button", name="Make a new secret")).to_be_visible()
        expect(page.locator(".secret")).to_have_count(0)  # it is shown once

    page = operator.page
    operator.open(f"customers/{customer}".replace(" ", "%20"))
    form = page.locator("form.control").filter(has_text="Address")
    expect(form.get_by_label("Address")).to_have_value(listener.url)
    form.get_by_role("button").click()  # now it is the operator's
    until(lambda: listener.calls, "the call")
    assert verified(secret, listener.calls[0])["data"]["customer"] == customer
    page.get_by_label("Deliveries").first.select_option("delivered")
    again = page.get_by_role("button", name="Send again")
    expect(again).to_have_count(1)
    again.click()
    until(lambda: len(listener.calls) == 2, "another call")
    assert len({headers["webhook-id"] for headers, _ in listener.calls}) == 1
    page.get_by_role("button", name="Remove the webhook").click()
    page.locator("dialog button.main").click()
    expect(form.get_by_label("Address")).to_have_value("")


def test_the_connection_is_lost_and_comes_back(operator: BrowserPage, server: Server, customer: str) -> None:
    page = operator.page
    expect(page.locator(".figure")).not_to_have_count(0)
    expect(page.locator("#lost")).to_be_empty()
    server.stop(signal.SIGKILL)
    expect(page.locator("#lost")).to_contain_text("Not live.")
    server.start()
    expect(page.locator("#lost")).to_be_empty()
    server.queue.submit_many(customer, [1] * 7, kind=KIND)
    expect(page.locator(".legend")).to_contain_text(customer)
    drain(server)


def test_a_silent_connection_is_noticed_and_comes_back(browser: Browser, server: Server, customer: str) -> None:
    """Nothing is cut and nothing fails: the stream's connection stays open, only nothing comes any more."""
    proxy = FaultyProxy(server.port)
    with proxy as line, open_page(browser, server, server.operator, address=line.address, clock=True) as console:
        page = console.page
        expect(page.locator(".figure")).not_to_have_count(0)
        expect(page.locator("#lost")).to_be_empty()
        line.pause(True)
        server.queue.submit_many(customer, [1] * 40, kind=KIND)
        page.clock.fast_forward(SILENCE_MS)
        expect(page.locator("#lost")).to_contain_text("Not live.")
        expect(page.locator(".legend")).not_to_contain_text(customer)
        line.pause(False)
        expect(page.locator("#lost")).to_be_empty()
        expect(page.locator(".legend")).to_contain_text(customer)
    drain(server)


def test_the_lanes_show_while_a_large_queue_is_counted(operator: BrowserPage, server: Server, customer: str) -> None:
    server.queue.submit_many(customer, [1] * 40, kind=KIND)
    operator.wait_for_text(customer, ".legend")
    page = operator.page
    frame = page.evaluate(FIRST_FRAME)
    counting = json.dumps(frame | {"counted": 120_000})
    page.route("**/page/frames", lambda route: route.fulfill(content_type="text/event-stream", body=f"data: {counting}\n\n"))
    page.reload()
    expect(page.locator(".story")).to_have_text("Counting the queue … 120,000 documents so far.")
    expect(page.locator(".lanes li").nth(8).locator("b")).to_have_text("19")
    expect(page.locator(".figure").filter(has_text="Done today").locator("dd")).to_have_text("\N{EN DASH}")
    page.unroute("**/page/frames")
    expect(page.locator(".story")).to_contain_text("40 of its documents are waiting")
    drain(server)


def test_no_lane_with_documents_looks_empty_however_large_another_is(browser: Browser, server: Server, customer: str) -> None:
    """On a phone, where a block is hundreds of documents, and when the lanes are drawn anew from a frame that was there."""
    server.queue.submit_many(customer, [1] * 2000, kind=KIND)
    claims = server.claim(4)
    window = {"width": 390, "height": 844}
    with open_page(browser, server, server.operator, viewport=window, reduced_motion="reduce") as console:  # nothing flies
        expect(console.page.locator(".workers")).to_have_text("4 in progress")
        for language, text in (("pl", "Jeden klocek to najwyżej 200 dokumentów"), ("en", "One block is up to 200 documents")):
            console.page.locator(".switches select").select_option(language)
            expect(console.page.locator(".scale")).to_contain_text(text)
            drawn = console.page.evaluate(DRAWN)
            assert [bool(lane) for lane in drawn["lanes"]] == [False, *[True] * 8]  # the first three, and one of the next, run
            assert drawn["workers"] > 0
    server.queue.engine.settle([(claim, Done("null")) for claim in claims])
    drain(server)


def test_a_long_list_of_customers_stays_live(patient_operator: BrowserPage, server: Server, customer: str) -> None:
    with ThreadPoolExecutor(8) as threads:  # whose commits share a write to the disk
        list(threads.map(lambda number: server.queue.submit(f"{customer} {number:03}", kind=KIND), range(230)))
    operator, page = patient_operator, patient_operator.page
    operator.open("customers")
    with page.expect_response(lambda response: "search=" in response.url):  # a little after the last letter
        page.get_by_label("Search by name").fill(customer)
    operator.wait_for_text("230 customers")
    rows = page.locator("tbody tr")
    for shown in (50, 100, 150, 200):
        expect(rows).to_have_count(shown)
        page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(230)
    server.queue.submit_many(f"{customer} 229", [1] * 4, kind=KIND)
    operator.refresh()
    expect(rows.first).to_contain_text(f"{customer} 229")
    expect(rows).to_have_count(230)
    drain(server)


def test_a_key_that_is_taken_away_ends_the_session(browser: Browser, server: Server, customer: str) -> None:
    key = server.key(customer)
    with open_page(browser, server, key) as console:
        console.page.reload()
        console.wait_for_text("My documents")
        auth.revoke(server.queue.engine, key.split("_")[1])
        console.wait_for_text("Your session has ended")
    with open_page(browser, server, None) as console:
        console.page.goto(console.address)
        console.page.get_by_label("Your key").fill(key)
        console.page.locator("button.main").click()
        console.wait_for_text("This key is not valid")


def test_the_keyboard_is_enough(operator: BrowserPage, server: Server, customer: str) -> None:
    page = operator.page
    server.queue.submit(f"{customer} b", kind=KIND)
    server.queue.submit(f"{customer} a", kind=KIND)
    page.reload()
    page.locator("nav a").first.wait_for()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("nav a").nth(1).focus()
    page.keyboard.press("Enter")
    page.get_by_label("Search by name").fill(customer)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Customer").focus()
    page.keyboard.press("Enter")
    expect(rows.first).to_contain_text(f"{customer} a")
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Customer")
    page.keyboard.press("Enter")
    expect(rows.first).to_contain_text(f"{customer} b")
    rows.first.locator("a").focus()
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_have_text(f"{customer} b")
    drain(server)


def test_other_rules_are_tried_on_the_last_hours(operator: BrowserPage, server: Server, customer: str) -> None:
    server.queue.submit_many(customer, [1] * 30, kind=KIND)
    drain(server)
    operator.open("what-if")
    page = operator.page
    expect(page.get_by_label("Reset interval in minutes")).to_have_value("25")
    page.get_by_label("Reset interval in minutes").fill("5")
    page.get_by_label("Workers").fill("8")
    page.get_by_role("button", name="Try it").click()
    expect(page.locator(".compared tbody tr")).to_have_count(5, timeout=60_000)
    operator.wait_for_text("Replayed")
