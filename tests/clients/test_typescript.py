"""The TypeScript client: its types are those of the service, and it does with a real server what its README says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from fairlane.api.app import describe
from tests.api.running import OPEN_LIMITS, Server, until
from tests.conftest import missing
from tests.docs.snippets import snippet
from tests.terminal import bash

from .node import NO_NODE, find_node

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients/typescript"
SCHEMA = (CLIENT / "src/schema.ts").read_text(encoding="utf-8")
SECONDS_MAX = 120.0  # of a program
RECEIPT = {"id": "1", "customer": "acme", "priority": 1, "counter": 0, "ahead": 0, "repeated": False, "links": {}}
CONVERSATION = """
import { Fairlane, FairlaneError } from "./dist/index.js";
const [address, key, operatorKey] = process.argv.slice(2);
const client = new Fairlane(address + "/", key);
const seen = {};
const first = await client.submit({ page: 1 }, { key: "k1", kind: "default", cost: 2 });
const again = await client.submit({ page: 1 }, { key: "k1", kind: "default", cost: 2 });
seen.receipts = [first.priority, first.repeated, again.id === first.id, again.repeated];
seen.own_key = (await client.submit(null)).repeated;
try { await client.submit(null, { cost: -1 }); } catch (error) {
  seen.bad = [error instanceof FairlaneError, error.code, error.status, error.message];
}
try { await client.document("nothing"); } catch (error) { seen.unknown = error.code; }
try { await client.api.GET("/v1/workers"); } catch (error) { seen.staff = error.status; }
seen.sentence = (await client.explain(first.id)).sentence;
seen.waited = (await client.wait(first.id, 0.1)).state;
await client.cancel(first.id);
seen.cancelled = (await client.wait(first.id)).state;
const stop = new AbortController();
seen.events = [];
for await (const event of client.events("0", stop.signal)) {
  seen.events.push([event.event, event.data.document === first.id]);
  if (event.event === "cancelled") stop.abort();
}
const operator = new Fairlane(address, operatorKey);
const { data } = await operator.api.GET("/v1/customers/{customer}", { params: { path: { customer: "acme" } } });
seen.waiting = data.waiting;
console.log(JSON.stringify(seen));
"""


def test_the_types_have_every_path_and_every_member_of_the_service() -> None:
    document = describe()
    for path, operations in document["paths"].items():
        block = SCHEMA[SCHEMA.index(f'"{path}": {{') :].partition("\n    };")[0]
        assert set(re.findall(r"^        (get|post|put|patch|delete): ", block, re.MULTILINE)) == set(operations), path
    for name, schema in document["components"]["schemas"].items():
        block = SCHEMA[re.search(rf"^        {name}: \{{$", SCHEMA, re.MULTILINE).end() :].partition("\n        };")[0]  # type: ignore[union-attr]
        written = {member.strip('"') for member in re.findall(r'^            ("?[\w.-]+"?)\??: ', block, re.MULTILINE)}
        assert written == set(schema.get("properties", {})), name


def test_nothing_names_a_registry() -> None:
    lock = json.loads((CLIENT / "package-lock.json").read_text())
    assert all("resolved" not in package for package in lock["packages"].values())
    assert all("integrity" in package for path, package in lock["packages"].items() if path)
    assert "omit-lockfile-registry-resolved=true" in (CLIENT / ".npmrc").read_text().splitlines()


@pytest.fixture(scope="module")
def node() -> str:
    found = find_node()
    if found is None:
        missing(f"{NO_NODE}, so the TypeScript client cannot be tested")
    assert found is not None
    if not (CLIENT / "node_modules").is_dir():
        missing("clients/typescript/node_modules is missing, so the TypeScript client cannot be tested; run: make client")
    return found.program


@pytest.fixture(scope="module")
def built(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client, its example and the program of its README, compiled by a strict compiler as the README says."""
    root = tmp_path_factory.mktemp("typescript")
    folder = root / "clients/typescript"
    shutil.copytree(CLIENT, folder, ignore=shutil.ignore_patterns("node_modules", "dist", "build"))
    (folder / "node_modules").symlink_to(CLIENT / "node_modules")
    (folder / "readme.ts").write_text(snippet("clients/typescript/README.md", "import { Fairlane }"), encoding="utf-8")
    examples = folder / "tsconfig.example.json"
    examples.write_text(examples.read_text().replace('"example.ts"', '"example.ts", "readme.ts"'))
    commands = snippet("clients/typescript/README.md", "cd clients/typescript")
    commands = commands.replace("npm ci\n", "").replace("npm ", "python -m tests.clients.node ")  # make client did the first
    bash(commands, root, npm_config_cache=str(root), PYTHONPATH=str(ROOT))
    (folder / "conversation.js").write_text(CONVERSATION)
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("typescript-server"), work=True, limits=OPEN_LIMITS)
    yield running
    running.close()


def run(node: str, folder: Path, *arguments: str, **variables: str) -> str:
    environment = {"PATH": "/usr/bin:/bin", **variables}
    done = subprocess.run(
        [node, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_generated_types_are_fresh(node: str, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(describe()))
    generator = CLIENT / "node_modules/openapi-typescript/bin/cli.js"
    run(node, tmp_path, str(generator), "openapi.json", "--output", "schema.ts")
    assert (tmp_path / "schema.ts").read_text(encoding="utf-8") == SCHEMA, "run: make client-types"


def test_it_submits_explains_waits_cancels_and_watches(node: str, built: Path, server: Server) -> None:
    seen = json.loads(run(node, built, "conversation.js", server.address, server.key("acme"), server.operator))
    message = seen["bad"].pop()
    assert seen["bad"] == [True, "bad-value", 422]
    assert "cost" in message
    assert "acme" in seen.pop("sentence")
    assert {name: seen[name] for name in sorted(set(seen) - {"bad", "events"})} == {
        "cancelled": "cancelled", "own_key": False, "receipts": [1, False, True, True], "staff": 404, "unknown": "nothing-here",
        "waited": "ready", "waiting": 1,
    }  # fmt: skip
    assert [event for event in seen["events"] if event[1]] == [["submitted", True], ["cancelled", True]]


def test_the_example_uploads_a_file_and_prints_its_text(node: str, built: Path, server: Server) -> None:
    (built / "letter.txt").write_text("Sehr geehrte Frau Kowalska")
    variables = {"FAIRLANE_SERVER": server.address, "FAIRLANE_KEY": server.key("bakery")}
    printed = run(node, built, "build/example.js", "letter.txt", **variables).splitlines()
    assert printed[0].endswith("has priority 1")
    assert printed[-1] == "Sehr geehrte Frau Kowalska"


def test_the_program_of_the_readme_submits_explains_waits_and_watches(node: str, built: Path, server: Server) -> None:
    program = built / "build/readme.js"
    program.write_text(program.read_text().replace("http://127.0.0.1:8000", server.address))
    environment = {"PATH": "/usr/bin:/bin", "FAIRLANE_KEY": server.key("reader")}
    for _ in range(3):
        server.queue.check("reader")
    with subprocess.Popen([node, program], cwd=built, env=environment, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            id, priority, counter = running.stdout.readline().split()
            assert (priority, counter) == ("2", "-3")
            assert "reader" in running.stdout.readline()
            until(lambda: server.finish() and server.queue.document(id).state == "done", "the end of the document")
            assert [running.stdout.readline() for _ in range(7)] == [
                "done\n", *["checked null\n"] * 3, f"submitted {id}\n", f"started {id}\n", f"done {id}\n",
            ]  # fmt: skip
        finally:
            running.kill()  # it would watch for ever


def test_a_submission_is_repeated_with_its_key_while_the_server_is_busy(node: str, built: Path) -> None:
    keys: list[str | None] = []

    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            keys.append(self.headers["Idempotency-Key"])
            body = json.dumps(RECEIPT).encode()
            self.send_response(503 if len(keys) < 3 else 202)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        code = (
            'import("./dist/index.js").then(async ({ Fairlane }) => { '
            f'const client = new Fairlane("http://127.0.0.1:{http.server_port}", "k");'
            "console.log((await client.submit({})).id) })"
        )
        printed = run(node, built, "-e", code).split()
        http.shutdown()
        thread.join()
    assert printed[0] == "1"
    assert len(set(keys[:3])) == 1
    assert keys[0]
