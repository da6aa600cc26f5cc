import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from datamodules import downloads
from datamodules.downloads import DownloadError, fetch

CONTENT = bytes(range(256)) * 2000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """/whole serves ranges; /cut breaks off in the middle of the first answer; /norange ignores
    ranges; /wrong serves something else; /nothing ends at once; everything else is missing."""

    requests: list[tuple[str, str | None]] = []

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.requests.append((self.path, wanted))
        if self.path not in ("/whole", "/cut", "/norange", "/wrong", "/nothing"):
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if self.path == "/norange":
            start = 0
        if start >= len(CONTENT):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(CONTENT)}")
            self.end_headers()
            return
        body = (b"x" * len(CONTENT) if self.path == "/wrong" else CONTENT)[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/nothing":
            return
        self.wfile.write(body[: len(body) // 2] if self.path == "/cut" and not start else body)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    Handler.requests.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_file_is_fetched_once(server, tmp_path):
    target = tmp_path / "new" / "file"
    assert fetch([f"{server}/whole"], MD5, target).read_bytes() == CONTENT
    fetch([f"{server}/whole"], MD5, target)
    assert len(Handler.requests) == 1


def test_a_broken_download_goes_on_where_it_stopped(server, tmp_path):
    assert fetch([f"{server}/cut"], MD5, tmp_path / "file").read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert Handler.requests == [("/cut", None), ("/cut", f"bytes={half}-")]


def test_a_part_of_an_earlier_process_is_used(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    fetch([f"{server}/whole"], MD5, tmp_path / "file")
    assert Handler.requests == [("/whole", "bytes=1000-")]


def test_a_whole_part_needs_no_bytes(server, tmp_path):
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert fetch([f"{server}/whole"], MD5, tmp_path / "file").read_bytes() == CONTENT


def test_a_server_without_ranges_starts_anew(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"something else")
    assert fetch([f"{server}/norange"], MD5, tmp_path / "file").read_bytes() == CONTENT


def test_a_part_of_another_file_is_thrown_away(server, tmp_path):
    (tmp_path / "file.part").write_bytes(b"something else")
    assert fetch([f"{server}/whole"], MD5, tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_checksum_is_refused(server, tmp_path):
    with pytest.raises(DownloadError, match="wrong checksum .* expected .* refused"):
        fetch([f"{server}/wrong"], MD5, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    assert not (tmp_path / "file.part").exists()


def test_the_next_address_is_tried(server, tmp_path):
    addresses = [f"{server}/missing", f"{server}/whole"]
    assert fetch(addresses, MD5, tmp_path / "file").read_bytes() == CONTENT


def test_every_fault_is_told_once(server, tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "ATTEMPTS", 2)
    with pytest.raises(DownloadError) as caught:
        fetch([f"{server}/missing", "file:///etc/passwd"], MD5, tmp_path / "file")
    assert str(caught.value).count("/missing") == 1
    assert "only http and https" in str(caught.value)


def test_several_processes_fetch_once(server, tmp_path):
    threads = [
        threading.Thread(target=fetch, args=([f"{server}/whole"], MD5, tmp_path / "file"))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert len(Handler.requests) == 1


@pytest.mark.parametrize("path", ["/missing", "/wrong", "/nothing", None])
def test_a_failed_download_leaves_nothing_in_the_folder(server, tmp_path, path):
    address = f"{server}{path}" if path else "http://127.0.0.1:9/refuses"
    with pytest.raises(DownloadError):
        fetch([address], MD5, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_download_leaves_its_file_alone(server, tmp_path):
    fetch([f"{server}/whole"], MD5, tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
