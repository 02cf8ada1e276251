"""Workers on the page: one is drained and set to work again, and a kind that no worker takes is named."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.api.running import Server, until

from .browser_page import BrowserPage
from .test_stories import drain


def test_a_worker_is_seen_drained_and_set_to_work_again(patient_operator: BrowserPage, server: Server) -> None:
    page = patient_operator.page
    patient_operator.open("workers")
    (worker,) = until(server.queue.workers, "the start of the worker")
    row = page.locator("tbody tr").filter(has_text=worker.name)
    expect(row).to_contain_text("working")
    expect(row).to_contain_text(f"0 / {worker.slots}")
    expect(row).to_contain_text("extract")
    row.get_by_role("button", name="Drain").click()
    expect(page.locator("dialog")).to_contain_text(f"{worker.name} has no document in progress and will take no more.")
    page.locator("dialog").get_by_role("button", name="Drain").click()
    until(lambda: server.queue.workers()[0].state == "drained", "the end of its claims")
    patient_operator.refresh()
    expect(row.locator(".badge")).to_have_text("drained")
    row.get_by_role("button", name="Resume").click()
    page.locator("dialog").get_by_role("button", name="Resume").click()
    until(lambda: server.queue.workers()[0].state == "working", "its next claim")
    patient_operator.refresh()
    expect(row.locator(".badge")).to_have_text("working")


def test_a_kind_that_no_worker_takes_is_named(operator: BrowserPage, server: Server, customer: str) -> None:
    drain(server)
    until(server.queue.workers, "the start of the worker")
    id = server.queue.submit(customer, kind="fax").id
    for view in ("lanes", "workers"):
        operator.open(view)
        warning = operator.page.locator(".warning").filter(
            has_text="Documents of kind fax are waiting, and no worker takes them."
        )
        expect(warning).to_have_count(1)
    operator.open(f"documents/{id}")
    operator.wait_for_text("No worker takes documents of this kind, so there is no estimate of when it will start.")
    server.queue.cancel(id)
    operator.open("lanes")
    expect(operator.page.locator(".warning")).to_have_count(0)
