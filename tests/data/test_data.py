"""Embedded data are right, and downloads are complete, verified and made once."""

import functools
import hashlib
import http.server
import threading

import numpy as np
import pytest

from ppl.data import SCHOOLS, eight_schools, fetch
from ppl.errors import DataError

CONTENT = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(tmp_path):
    """A file server on this machine, which counts what it serves."""
    root = tmp_path / "served"
    root.mkdir()
    (root / "table.csv").write_bytes(CONTENT)
    served = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            served.append(self.path)

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(root)))
    thread = threading.Thread(target=web.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{web.server_port}", served
    web.shutdown()
    thread.join()
    web.server_close()


def test_eight_schools_are_those_of_the_paper():
    data = eight_schools()
    np.testing.assert_array_equal(data["y"], [28, 8, -3, 7, -1, 1, 18, 12])
    np.testing.assert_array_equal(data["sigma"], [15, 10, 16, 11, 9, 11, 10, 18])
    assert len(SCHOOLS) == 8 and data["y"].dtype == np.float32


def test_a_file_is_downloaded_once(server, tmp_path):
    url, served = server
    for _ in range(3):
        path = fetch("table.csv", url + "/table.csv", SHA256, tmp_path / "cache")
    assert path.read_bytes() == CONTENT and len(served) == 1
    assert [p.name for p in path.parent.iterdir()] == ["table.csv"]


def test_a_file_address_works_too(tmp_path):
    (tmp_path / "table.csv").write_bytes(CONTENT)
    path = fetch("copy.csv", (tmp_path / "table.csv").as_uri(), SHA256, tmp_path / "cache")
    assert path.read_bytes() == CONTENT


def test_a_damaged_copy_is_downloaded_again(server, tmp_path):
    url, served = server
    path = fetch("table.csv", url + "/table.csv", SHA256, tmp_path)
    path.write_bytes(CONTENT[:100])
    assert fetch("table.csv", url + "/table.csv", SHA256, tmp_path).read_bytes() == CONTENT
    assert len(served) == 2


def test_another_file_than_promised_is_refused_and_leaves_nothing(server, tmp_path):
    url, _ = server
    with pytest.raises(DataError, match="table.csv from .* has SHA-256 .* and not 0000000000000000.*It was not used"):
        fetch("table.csv", url + "/table.csv", "0" * 64, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_without_a_network_the_error_names_the_file_and_the_folder(tmp_path):
    with pytest.raises(DataError) as caught:
        fetch("table.csv", "http://127.0.0.1:9/table.csv", SHA256, tmp_path / "cache")
    text = str(caught.value)
    assert "table.csv could not be downloaded from http://127.0.0.1:9" in text
    assert f"put the file at {tmp_path / 'cache' / 'table.csv'}" in text and "pass local=" in text
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_missing_page_is_an_error_that_says_so(server, tmp_path):
    url, _ = server
    with pytest.raises(DataError, match="File not found"):
        fetch("missing.csv", url + "/missing.csv", SHA256, tmp_path)


@pytest.mark.parametrize("as_folder", [True, False], ids=["folder", "file"])
def test_a_copy_of_the_user_is_used_in_place(tmp_path, as_folder):
    (tmp_path / "table.csv").write_bytes(CONTENT)
    local = tmp_path if as_folder else tmp_path / "table.csv"
    assert fetch("table.csv", "http://127.0.0.1:9/", SHA256, local=local) == tmp_path / "table.csv"


def test_a_copy_of_the_user_is_verified(tmp_path):
    (tmp_path / "table.csv").write_bytes(CONTENT + b"x")
    with pytest.raises(DataError, match="SHA-256"):
        fetch("table.csv", "http://127.0.0.1:9/", SHA256, local=tmp_path / "table.csv")
    with pytest.raises(DataError, match="there is no file"):
        fetch("table.csv", "http://127.0.0.1:9/", SHA256, local=tmp_path / "other.csv")


def test_the_default_folder_is_in_the_users_cache(server, tmp_path, monkeypatch):
    url, _ = server
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    path = fetch("table.csv", url + "/table.csv", SHA256)
    assert path == tmp_path / "home" / "ppl" / "data" / "table.csv"
