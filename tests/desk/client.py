"""A desk in this process, a browser's part of the conversation with it, and a stand-in for the command."""

from __future__ import annotations

import contextlib
import http.client
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from gpate.desk.app import STATIC, Desk
from gpate.desk.jobs import PROGRAM, Jobs
from gpate.desk.server import Server, Session
from gpate.desk.workspace import Workspace

CANARY = "Zebediah-Quatermain"
"""A value of a record: no page may show it."""
RECORDS = f"""patient_id,age,ward,died
p1,48151,surgery,no
p1,62342,{CANARY},yes
p2,48151,surgery,no
"""
SCHEMA = """kind: table
target: died
columns:
  age: {type: integer, bounds: [0, 120]}
  ward: {type: categorical, categories: [surgery, medicine, other], other: other}
  died: {type: categorical, categories: ["no", "yes"]}
"""
STAND_IN = (sys.executable, "-S", "-E", str(Path(__file__).parent / "stand_in.py"))
"""In place of the command: it starts in milliseconds, and ends when a file says so."""


@dataclass
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Client:
    """Sends requests as a browser does that has the session's cookie, unless it is asked to do otherwise."""

    def __init__(self, server: Server, app: Desk) -> None:
        self.server, self.app = server, app
        self.host = f"127.0.0.1:{server.server_port}"
        self.cookie = ""

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """One request, with these headers alone; an underscore in a name stands for a dash."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.server_port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.putrequest(method, path, skip_host="Host" in given, skip_accept_encoding=True)
            for name, value in given.items():
                connection.putheader(name, value)
            if body is not None and "Content-Length" not in given and "Transfer-Encoding" not in given:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.send(body or b"")
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def enter(self) -> None:
        """Opens the address that the command prints."""
        answer = self.ask("GET", f"/?token={self.server.session.token}")
        assert answer.status == 303
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def get(self, path: str, **query: str) -> Answer:
        asked = f"{path}?{urlencode(query)}" if query else path
        return self.ask("GET", asked, Cookie=self.cookie, Sec_Fetch_Site="same-origin")

    def post(self, path: str, **form: str) -> Answer:
        fields = {"form_token": self.server.session.form_token, **form}
        return self.ask(
            "POST",
            path,
            urlencode(fields).encode(),
            Cookie=self.cookie,
            Origin=f"http://{self.host}",
            Sec_Fetch_Site="same-origin",
            Content_Type="application/x-www-form-urlencoded",
        )

    def until(self, kind: str, run: str) -> None:
        """Waits for the end of a command."""
        end = time.monotonic() + 300
        while (status := self.app.jobs.status(kind, run)) is not None and status.running:
            assert time.monotonic() < end
            time.sleep(0.02)


@contextlib.contextmanager
def serving(folder: Path, *, program: tuple[str, ...] = PROGRAM) -> Iterator[Client]:
    """A desk of a folder, in threads of this process."""
    session = Session()
    workspace = Workspace(folder)
    jobs = Jobs(workspace, program=program)
    app = Desk(workspace=workspace, jobs=jobs, session=session)
    server = Server(app, app.refusal, session, public=STATIC)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        client = Client(server, app)
        client.enter()
        yield client
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        jobs.close()


def filled(folder: Path) -> Path:
    """A workspace with data and a schema."""
    folder.mkdir(exist_ok=True)
    (folder / "visits.csv").write_text(RECORDS)
    (folder / "people.yaml").write_text(SCHEMA)
    return folder


def inputs_without_label(page: str) -> list[str]:
    """Fields of a page that no label is for."""
    fields = re.findall(r"<(?:input|select|textarea)\b[^>]*>", page)
    shown = [field for field in fields if 'type="hidden"' not in field]
    named = [re.search(r'\bid="([^"]+)"', field) for field in shown]
    return [
        field for field, name in zip(shown, named, strict=True) if name is None or f'<label for="{name[1]}"' not in page
    ]
