"""The log: every line that the service writes to standard error is JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from .running import Server, until

NOISE = """
import asyncio, logging, threading, warnings
from fairlane.api.logging import Log

class Bad:
    def __del__(self):
        raise ValueError("in a finalizer")

def fail():
    raise ValueError("in a thread")

async def forget():
    asyncio.get_running_loop().create_future().set_exception(ValueError("in a future"))

log = Log()
log.capture()
log.event("of ours")
logging.getLogger("psycopg.pool").warning("of a library\\nin two lines")
logging.getLogger("uvicorn.error").error("with an error", exc_info=ValueError("of a library"))
logging.getLogger("quiet").info("not for the log")
warnings.warn("of Python", stacklevel=1)
thread = threading.Thread(target=fail)
thread.start()
thread.join()
Bad()
asyncio.run(forget())
raise ValueError("at the end")
"""


def test_what_python_and_libraries_print_is_json_too() -> None:
    ran = subprocess.run([sys.executable, "-c", NOISE], capture_output=True, text=True, timeout=60, check=False)
    lines = [json.loads(line) for line in ran.stderr.splitlines()]
    assert [(line["event"], line.get("told", "").split("\n")[0]) for line in lines if line.get("by") != "py.warnings"] == [
        ("of ours", ""),
        ("warned", "of a library"),
        ("broken", "of a library"),
        ("broken", "in a thread"),
        ("broken", "in a finalizer"),
        ("broken", "in a future"),
        ("broken", "at the end"),
    ]
    assert sum("of Python" in line.get("told", "") for line in lines) == 1
    assert ran.returncode == 1


def test_what_the_worker_prints_is_in_the_log(tmp_path: Path) -> None:
    server = Server(tmp_path, "--slots", "0", work=True)
    try:
        printed = until(lambda: [line for line in server.logged() if line["event"] == "worker"])
        assert printed[0]["said"].startswith("fairlane: slots is 0; it must be a whole number")
    finally:
        server.close()


def test_what_a_worker_reports_is_in_the_log_as_it_is(tmp_path: Path) -> None:
    server = Server(tmp_path, work=True)
    try:
        with server.client(server.key("acme")) as client:
            headers = {"Content-Type": "application/pdf"}
            id = client.post("/v1/documents", content=b"%PDF-1.7 broken", headers=headers).json()["id"]
        printed = until(lambda: [line["said"] for line in server.logged() if line["event"] == "worker"])
        assert (printed[0]["event"], printed[0]["id"], printed[0]["outcome"]) == ("unfinished", id, "failed")
    finally:
        server.close()
