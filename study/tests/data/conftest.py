"""Fixtures for data sets: a made folder, an empty cache, and a server on this machine."""

import gc
import http.server
import threading
from dataclasses import replace

import pytest
from evalign_study.data import card, cards

from study.tests.data import made


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Hide the local folder, and start with an empty cache."""
    monkeypatch.delenv("EVALIGN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache" / "evalign"


class Server:
    """A server of bytes by path, which counts the requests."""

    def __init__(self):
        served = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                served.asked.append(self.path)
                content = served.files.get(self.path)
                self.send_response(404 if content is None else 200)
                length = len(content or b"") + served.missing
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *arguments):
                pass

        self.files, self.asked, self.missing = {}, [], 0
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server():
    started = Server()
    yield started
    started.stop()
    gc.collect()  # collect now, so that no other test gets the warning (see LEFT_OPEN)


@pytest.fixture
def give(monkeypatch, tmp_path, server):
    """Replace a real data set by a made one: its originals, its packed files, or both."""

    def given(name, *, public=None, packed=None, checksums=None, **changes):
        if public is not None:
            urls = [f"{server.address}/{name}/{file}" for file in public]
            server.files |= {f"/{name}/{file}": content for file, content in public.items()}
            checksums = checksums or [made.sha256(content) for content in public.values()]
            changes["public"] = dict(zip(urls, checksums, strict=True))
        if packed is not None:
            folder = tmp_path / "local"
            for path, content in packed.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
            changes["files"] = {path: made.sha256(content) for path, content in packed.items()}
            monkeypatch.setenv("EVALIGN_DATA", str(folder))
        changed = replace(card(name), **changes)
        monkeypatch.setitem(cards._cards(), name, changed)
        return changed

    return given
