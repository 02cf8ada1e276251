"""A film of the page during a flood, as `make run` shows it, in docs/pictures/flood.webp: `python -m bench.film`.

Needs the program chromium. The film is played twice as fast as it was.
"""

from __future__ import annotations

import io
import socket
import subprocess
import sys
from pathlib import Path

import click
from PIL import Image
from playwright.sync_api import Page, ViewportSize
from rich.progress import track

from fairlane import Client
from tests.chromium import chromium

PATH = Path(__file__).parents[1] / "docs/pictures/flood.webp"
SIZE: ViewportSize = {"width": 960, "height": 640}
FRAMES, FRAME_MS, LIGHT, CROWD = 60, 300, 40, 150


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as line:
        return int(line.getsockname()[1])


def record(page: Page, client: Client) -> list[Image.Image]:
    """Take pictures of the lanes, one after the other, while light customers send a document each."""
    frames = []
    for number in track(range(FRAMES), "recording"):
        client.submit(content=b"One page.", name="letter.txt", customer=f"office-{number % LIGHT:02}")
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        page.wait_for_timeout(FRAME_MS)
    return frames


@click.command()
def main() -> None:
    """Record the film."""
    port = _free_port()
    demo = subprocess.Popen(
        [sys.executable, "-m", "fairlane", "demo", "--serve", "--port", str(port)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert demo.stdout is not None
        key = next(line.split()[-1] for line in demo.stdout if line.strip().startswith("admin"))
        with chromium() as browser:
            page = browser.new_page(viewport=SIZE, locale="en")
            page.goto(f"http://127.0.0.1:{port}/")
            page.locator("input[type=password]").fill(key)
            page.keyboard.press("Enter")
            page.locator("canvas").first.wait_for()
            page.evaluate("document.querySelector('main').scrollIntoView()")
            with Client(f"http://127.0.0.1:{port}", key) as client:
                while client.look("northwind").waiting < CROWD:
                    page.wait_for_timeout(FRAME_MS)
                first, *others = record(page, client)
    finally:
        demo.terminate()
        demo.wait()
    first.save(PATH, save_all=True, append_images=others, duration=FRAME_MS // 2, loop=0, quality=60, method=6)
    click.echo(f"{PATH.name}: {PATH.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
