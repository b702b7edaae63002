"""Hostile requests: whatever is sent, by another site, another program or a browser with a stale page, is refused and changes nothing."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import socket
import time
from pathlib import Path
from urllib.parse import quote

import pytest

from gpate.desk import jobs, server
from gpate.desk.app import _routes
from gpate.desk.jobs import DeskRunning
from tests.command import gpate
from tests.desk.client import CANARY, RECORDS, Client, serving

ROUTES = sorted(_routes())
FORM = "application/x-www-form-urlencoded"


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_it_listens_on_this_machine_alone(client: Client) -> None:
    assert client.server.server_address[0] == "127.0.0.1"
    assert client.server.first_address.startswith(f"http://127.0.0.1:{client.server.server_port}/?token=")


def test_the_token_is_exchanged_for_a_cookie_and_leaves_the_address(client: Client) -> None:
    answer = client.ask("GET", f"/?token={client.server.session.token}")
    assert (answer.status, answer.headers["Location"], answer.body) == (303, "/", b"")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert client.server.session.token not in cookie
    assert len(client.server.session.token) >= 43
    for path in ("/", "/fit", "/?token=wrong", "/?token="):
        assert client.server.session.token not in client.get(path).text


def test_a_wrong_token_opens_nothing(client: Client) -> None:
    for token in ("", "wrong", "ü" * 43, "%ff"):
        answer = client.ask("GET", f"/?token={quote(token, safe='%')}")
        assert answer.status in (400, 403)
        assert "Set-Cookie" not in answer.headers


def test_no_page_without_the_cookie(client: Client) -> None:
    before = everything_in(client.app.workspace.root)
    cookies = ("", "gpate-desk=1", f"{client.cookie}x", client.cookie.upper(), ";;=\x7f")
    for (method, path), cookie in itertools.product(ROUTES, cookies):
        body = b"form_token=x" if method == "POST" else None
        answer = client.ask(
            method,
            path,
            body,
            Cookie=cookie,
            Sec_Fetch_Site="same-origin",
            Origin=f"http://{client.host}",
            Content_Type=FORM,
        )
        assert answer.status == 401
        assert "visits.csv" not in answer.text
    assert everything_in(client.app.workspace.root) == before


def test_cookies_of_other_servers_on_this_machine_do_not_matter(client: Client) -> None:
    for others in ('json={"a": [1]}', "a=b=c", "=", ";;", '"', "x\x7f=1"):
        assert client.ask("GET", "/", Cookie=f"{others}; {client.cookie}; {others}").status == 200


def test_no_answer_by_another_name(client: Client) -> None:
    port = client.server.server_port
    hosts = [
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        "localhost",
        f"127.0.0.1:{port + 1}",
        f"127.0.0.1.evil:{port}",
        "",
    ]
    for (method, path), host in itertools.product(ROUTES, hosts):
        answer = client.ask(method, path, b"" if method == "POST" else None, Cookie=client.cookie, Host=host)
        assert answer.status == 421
    assert client.ask("GET", "/", Cookie=client.cookie, Host=f"localhost:{port}").status == 200


def test_no_post_from_another_site_or_without_the_form_token(client: Client) -> None:
    before = everything_in(client.app.workspace.root)
    token = client.server.session.form_token
    good = {
        "Cookie": client.cookie,
        "Origin": f"http://{client.host}",
        "Sec_Fetch_Site": "same-origin",
        "Content_Type": FORM,
    }
    wrong: list[dict[str, str]] = [
        {"Origin": "https://evil.example"},
        {"Origin": "http://127.0.0.1"},
        {"Origin": f"https://{client.host}"},
        {"Origin": "null", "Sec_Fetch_Site": ""},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Sec_Fetch_Site": "none"},
        {"Origin": "", "Sec_Fetch_Site": ""},
    ]
    for path in [path for method, path in ROUTES if method == "POST"]:
        for change in wrong:
            headers = {name: value for name, value in {**good, **change}.items() if value}
            answer = client.ask("POST", path, f"form_token={token}&data=visits.csv".encode(), **headers)
            assert answer.status == 403, change
        for body in (b"", b"form_token=", b"form_token=wrong", f"form_token={token[:-1]}".encode()):
            assert client.ask("POST", path, body, **good).status == 403
    assert everything_in(client.app.workspace.root) == before
    assert client.app.jobs.runs() == []


def test_pages_for_another_site_are_refused(client: Client) -> None:
    for site in ("cross-site", "same-site"):
        assert client.ask("GET", "/", Cookie=client.cookie, Sec_Fetch_Site=site).status == 403
    assert client.ask("GET", "/", Cookie=client.cookie, Sec_Fetch_Site="none").status == 200


def test_huge_and_broken_forms_are_refused_without_being_kept(client: Client) -> None:
    good = {"Cookie": client.cookie, "Origin": f"http://{client.host}", "Content_Type": FORM}
    assert client.ask("POST", "/fit", b"x" * (server.MOST_BYTES + 1), **good).status == 413
    assert client.ask("POST", "/fit", b"x" * 2**21, **{**good, "Content_Length": "9" * 30}).status == 413
    assert client.ask("POST", "/fit", b"x", **{**good, "Content_Length": "-1"}).status == 411
    assert client.ask("POST", "/fit", b"x", **{**good, "Content_Length": "²"}).status in (400, 411)
    assert client.ask("POST", "/fit", b"0\r\n\r\n", **{**good, "Transfer_Encoding": "chunked"}).status == 411
    assert client.ask("POST", "/fit", b"{}", **{**good, "Content_Type": "text/plain"}).status == 415
    assert client.ask("POST", "/fit", b"a=%ff&form_token=x", **good).status == 400
    assert client.ask("POST", "/fit", b"a&" * (server.MOST_FIELDS + 1), **good).status == 400
    assert client.ask("POST", "/fit", b"a=%00", **good).status == 400
    assert client.ask("POST", "/fit", "ü".encode("latin-1"), **good).status == 400


def test_a_request_that_comes_too_slowly_is_cut(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", client.server.server_port), timeout=30) as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        for _ in range(200):  # a header without end, a byte at a time
            try:
                slow.sendall(b"x")
            except OSError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("It still listens.")
    assert client.get("/").status == 200


def test_too_many_connections_do_not_close_the_desk(client: Client) -> None:
    held = [socket.create_connection(("127.0.0.1", client.server.server_port), timeout=30) for _ in range(80)]
    time.sleep(0.3)
    for each in held:
        each.close()
    for _ in range(100):
        try:
            answer = client.get("/")
        except OSError:
            time.sleep(0.05)
        else:
            break
    assert answer.status == 200


@pytest.mark.parametrize(
    "line",
    [b"\x16\x03\x01\x02", b"GET\r\n\r\n", b"BREW / HTTP/1.1\r\n\r\n", b"GET " + b"/" * 70000 + b" HTTP/1.1\r\n\r\n"],
)
def test_what_is_no_request_gets_a_short_answer(client: Client, line: bytes) -> None:
    with socket.create_connection(("127.0.0.1", client.server.server_port), timeout=30) as wire:
        wire.sendall(line + b"\r\n\r\n")
        said = b""
        while chunk := wire.recv(65536):
            said += chunk
    assert len(said) < 5000
    assert client.get("/").status == 200


def test_another_method_is_refused(client: Client) -> None:
    for method in ("PUT", "DELETE", "OPTIONS", "CONNECT", "TRACE"):
        assert client.ask(method, "/", Cookie=client.cookie).status in (400, 501)
    assert client.post("/").status == 405
    assert client.get("/schema/draft").status == 405
    assert client.get("/nowhere").status == 404
    assert client.ask("GET", "http://evil.example/", Cookie=client.cookie).status in (400, 421)


def test_every_answer_forbids_what_is_not_its_own(client: Client) -> None:
    paths = [
        "/",
        "/fit",
        "/meaning",
        "/desk.css",
        "/desk.js",
        "/report.css",
        "/nowhere",
        "/budget/new",
        "/?token=wrong",
    ]
    for path in paths:
        headers = client.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cache-Control"] == "no-store"
        assert "Python" not in headers["Server"]


def test_no_page_names_another_site(client: Client) -> None:
    for path in (
        "/",
        "/fit?data=visits.csv&schema=people.yaml",
        "/budget/new",
        "/schema?file=people.yaml",
        "/desk.css",
        "/desk.js",
    ):
        text = client.get(path).text
        assert "http:" not in text
        assert "https:" not in text
        assert " style=" not in text
        assert " onclick=" not in text


HOSTILE = [
    "../secret.yaml",
    "..%2fsecret.yaml",
    "/etc/passwd",
    "people.yaml/../../secret.yaml",
    "out/secret.yaml",
    "file-out.yaml",
    ".gpate-desk/jobs",
    ".hidden.yaml",
    "run/private/run.json",
    "run/private",
    "",
    ".",
    "..",
    "a" * 5000,
    "\\..\\secret.yaml",
    "~/secret.yaml",
    "file:///etc/passwd",
    "C:\\secret.yaml",
]


@pytest.fixture
def traps(client: Client) -> Client:
    """Beside and in the workspace: files that no request may reach."""
    root = client.app.workspace.root
    for place in (root.parent / "secret.yaml", root / ".hidden.yaml", root / "run" / "private" / "run.json"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"kind: image\nheight: 8\nwidth: 8\nchannels: 1\ndescription: {CANARY}\n")
    (root / "run" / "release").mkdir()
    (root / "out").symlink_to(root.parent)
    (root / "file-out.yaml").symlink_to(root.parent / "secret.yaml")
    return client


def test_no_path_leads_out_of_the_folder(traps: Client) -> None:
    before = everything_in(traps.app.workspace.root.parent)
    keys = ("file", "name", "data", "schema", "budget", "output", "run", "train", "test")
    for (method, path), name in itertools.product(ROUTES, HOSTILE):
        if path in ("/", "/budget/new") and method == "GET":
            continue
        fields = dict.fromkeys(keys, name)
        answer = traps.get(path, **fields) if method == "GET" else traps.post(path, **fields)
        assert answer.status in (303, 200, 400, 403, 404, 405, 409, 422), (path, answer.text)
        assert answer.status != 303, path
        assert CANARY not in answer.text, path
        if answer.status == 200:  # the form shows what was typed, and starts nothing
            assert path in ("/fit", "/meaning", "/fit/meaning")
    assert everything_in(traps.app.workspace.root.parent) == before
    assert not (traps.app.workspace.root / "began").exists()


def test_a_data_file_is_opened_as_data_alone(client: Client) -> None:
    """As a schema, a book or a run it is refused by its name, before a parser could quote it."""
    keys = ("file", "schema", "budget", "name")
    for method, path in ROUTES:
        for key in keys:
            fields = {
                "data": "visits.csv",
                "epsilon": "1",
                "delta": "1e-6",
                "run": "r",
                "schema": "people.yaml",
                key: "visits.csv",
            }
            answer = client.get(path, **fields) if method == "GET" else client.post(path, **fields)
            assert CANARY not in answer.text
            assert "48151" not in answer.text
        (client.app.workspace.root / "go").touch()
        client.until("fit", "r")
    assert (client.app.workspace.root / "visits.csv").read_text() == RECORDS


def test_links_and_hidden_files_are_not_listed(traps: Client) -> None:
    text = traps.get("/").text
    assert "people.yaml" in text
    for name in ("file-out.yaml", "secret", ".hidden", ".gpate-desk"):
        assert name not in text


def test_what_a_form_says_is_text_and_nothing_else(client: Client) -> None:
    attack = '"><script>alert(1)</script>{{ 123456 * 1000 }}'
    answers = [
        client.get("/fit", data=attack, epsilon=attack, run=attack, budget=attack),
        client.get("/meaning", epsilon=attack),
        client.get("/run", name=attack),
        client.post("/fit", data="visits.csv", schema="people.yaml", epsilon=attack, delta="1e-6", run="r"),
        client.post("/budget/new", name=attack, epsilon="1", delta="1e-6"),
    ]
    for answer in answers:
        assert "<script>alert" not in answer.text
        assert "123456000" not in answer.text


def test_an_error_that_has_no_name_shows_nothing_of_it(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError(CANARY)

    monkeypatch.setattr(client.app.workspace, "contents", fail)
    answer = client.get("/")
    assert answer.status == 500
    assert "ValueError" in answer.text
    assert CANARY not in answer.text + caplog.text


def test_a_full_disk_is_named(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), CANARY)

    monkeypatch.setattr(jobs, "write_durably", full)
    answer = client.post("/fit", data="visits.csv", schema="people.yaml", epsilon="1", delta="1e-6", run="r")
    assert answer.status == 507
    assert "No space left" in answer.text
    assert CANARY not in answer.text
    assert not (client.app.workspace.root / "began").exists()


def test_another_desk_of_the_same_folder_is_refused(client: Client) -> None:
    with pytest.raises(DeskRunning, match="open in"), serving(client.app.workspace.root):
        pytest.fail("There are two.")


def test_the_command_prints_the_address_and_ends_with_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: server.Server) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(server.Server, "serve_forever", interrupted)
    for _ in range(2):  # the folder is free again
        assert gpate("desk", tmp_path, "--json") == 130
        said = capsys.readouterr()
        facts = json.loads(said.out)
        assert facts["folder"] == str(tmp_path.resolve())
        assert facts["address"].startswith("http://127.0.0.1:")
        assert "go on" in said.err
    assert gpate("desk", tmp_path) == 130
    assert "http://127.0.0.1:" in capsys.readouterr().out
    assert gpate("desk", tmp_path, "--quiet") == 130
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=\S+\n", capsys.readouterr().out)
    assert gpate("desk", tmp_path / "nowhere") == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert gpate("desk", tmp_path, "--port", taken.getsockname()[1]) == 2
    assert "free" in capsys.readouterr().err
