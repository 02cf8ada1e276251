"""OpenID providers for tests: oidc-provider-mock as a process of its own, and a provider that says whatever a test wants."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

from joserfc import jws
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "fairlane-tests", "a secret of the tests"


class MockProvider:
    """A real provider (oidc-provider-mock) on a free port; its users have the claims that a test gives them."""

    def __init__(self, *users: dict[str, Any]) -> None:
        claims = [part for user in users for part in ("--user-claims", json.dumps(user))]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "oidc_provider_mock", "--port", "0", "--require-nonce", "true", *claims],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stderr is not None
        lines = []
        for line in self._process.stderr:
            lines.append(line)
            if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", line):
                self.issuer = f"http://localhost:{found[1]}"
                break
        else:
            raise RuntimeError(f"oidc-provider-mock did not start: {''.join(lines)[-1000:]}")
        self._drain = threading.Thread(target=self._process.stderr.read, daemon=True)  # or its log would fill the pipe
        self._drain.start()

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        self._drain.join(timeout=30)
        assert self._process.stderr is not None
        self._process.stderr.close()


class ForgingProvider:
    """A provider of one user, which can be made to break every rule; it verifies PKCE, and a code counts once."""

    def __init__(self) -> None:
        self.key = new_key("first")
        self.published: list[RSAKey] = [self.key]
        self.metadata: dict[str, Any] = {}
        self.user: dict[str, Any] = {"sub": "ada", "name": "Ada Lovelace", "groups": ["staff"]}
        self.user_info: dict[str, Any] | None = None
        self.header: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.forge: Callable[[dict[str, Any], dict[str, Any]], str] = self.sign
        self.is_broken = False
        self.token_requests: list[dict[str, str]] = []
        self.paths: list[str] = []
        self._codes: dict[str, tuple[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(timeout=30)
        self._server.server_close()

    def reset(self) -> None:
        """Be honest again."""
        self.published, self.header, self.claims, self.forge = [self.key], {}, {}, self.sign
        self.user = {"sub": "ada", "name": "Ada Lovelace", "groups": ["staff"]}
        self.user_info, self.is_broken, self.metadata = None, False, {}

    def authorize(self, url: str) -> dict[str, str]:
        """Let the user sign in, as the browser that was sent to this URL; return what it brings back."""
        query = dict(parse_qsl(urlsplit(url).query))
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = (query["nonce"], query["code_challenge"])
        return {"code": code, "state": query["state"]}

    def sign(self, header: dict[str, Any], claims: dict[str, Any], key: RSAKey | None = None) -> str:
        return jws.serialize_compact(header, json.dumps(claims), key or self.key)

    # -- endpoints -----------------------------------------------------------------------------------------------------

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
            "jwks_uri": f"{self.issuer}/jwks",
            "id_token_signing_alg_values_supported": ["none", "HS256", "RS256"],
        } | self.metadata

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.token_requests.append(form)
        nonce, challenge = self._codes.pop(form["code"], ("", ""))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if not challenge or base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != challenge:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        times = {"iat": now, "exp": now + 300}
        claims = {"iss": self.issuer, "aud": CLIENT_ID, "nonce": nonce, **times, **self.user, **self.claims}
        wanted = {name: value for name, value in claims.items() if value is not None}
        id_token = self.forge({"alg": "RS256", "kid": self.key.kid} | self.header, wanted)
        return 200, {"access_token": "opaque", "token_type": "Bearer", "expires_in": 300, "id_token": id_token}

    def answer(self, path: str, form: dict[str, str]) -> tuple[int, Any]:
        self.paths.append(path)
        match path:
            case _ if self.is_broken:
                return 503, {}
            case "/.well-known/openid-configuration":
                return 200, self.discovery()
            case "/jwks":
                return 200, {"keys": [key.as_dict(private=False) for key in self.published]}
            case "/token":
                return self.token(form)
            case "/userinfo" if self.user_info is not None:
                return 200, self.user_info
        return 404, {}


def new_key(name: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": name, "use": "sig"}, private=True)


def _handler(provider: ForgingProvider) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond({})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._respond({name: values[-1] for name, values in parse_qs(body).items()})

        def _respond(self, form: dict[str, str]) -> None:
            status, value = provider.answer(urlsplit(self.path).path, form)
            body = json.dumps(value).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
