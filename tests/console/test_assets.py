"""The files of the page: in the package, compressed, with an ETag, and nothing else."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fairlane.console.assets import static_files
from tests.api.running import Server

ROOT = Path(__file__).parents[2]


def test_a_browser_gets_the_page_and_a_program_the_links(server: Server) -> None:
    with server.client(None) as client:
        page = client.get("/", headers={"Accept": "text/html,application/xhtml+xml"})
        assert page.headers["content-type"].startswith("text/html")
        assert page.headers["vary"] == "Accept, Accept-Encoding"
        assert client.get("/").json()["name"] == "fairlane"
        for address in re.findall(r'(?:src|href)="(/[^"]+)"', page.text):
            assert client.get(address).status_code == 200, address


def test_files_are_compressed_once_and_known_again(server: Server) -> None:
    with server.client(None) as client:
        for name, file in static_files().items():
            plain = client.get(f"/static/{name}", headers={"Accept-Encoding": "identity"})
            assert plain.content == file.content
            assert plain.headers["content-type"] == file.media_type
            assert plain.headers.get_list("cache-control") == ["no-cache"]
            again = client.get(f"/static/{name}", headers={"If-None-Match": plain.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            with client.stream("GET", f"/static/{name}", headers={"Accept-Encoding": "gzip, br"}) as answer:
                sent = b"".join(answer.iter_raw())
            if answer.headers.get("content-encoding") == "gzip":
                assert len(sent) < len(file.content)
                sent = gzip.decompress(sent)
            assert sent == file.content


@pytest.mark.parametrize("name", ["", "../app.py", "%2e%2e/app.py", "..%2fapp.py", "locales", "nothing.js", "/etc/passwd"])
def test_nothing_else_is_served(server: Server, name: str) -> None:
    with server.client(None) as client:
        assert client.get(f"/static/{name}").status_code in (401, 404)  # a client that shortens the path asks for another one


def test_the_wheel_holds_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    assert {f"fairlane/console/static/{name}" for name in static_files()} <= names
    assert "index.html" in static_files()
