"""A web server for one person on one machine, and the checks that every request passes before a page sees it.

The standard library's server is enough: one person, pages of a few kilobytes, one download at a time. It needs no package that a hospital
would have to approve, and it starts in milliseconds. What it lacks is here: a limit on connections, a deadline for each request, a limit on
what is sent, and these checks:

- It listens on 127.0.0.1 alone, and the header Host must say so, or `localhost`: another site's name that is made to point here is refused.
- Every page needs the session's cookie (HttpOnly, SameSite=Strict). The address that the command prints, with a random token, gives it
  once the token is compared in constant time; the browser is then sent to an address without the token.
- What changes something is a POST with the session's form token, from a page of this server by the headers Origin and Sec-Fetch-Site.
  Pages that another site asks for are refused too.
- Each answer has a Content-Security-Policy that allows this server's own style sheet and script, and nothing from elsewhere.

A browser sends a cookie to all ports of 127.0.0.1: other servers that the same person opens on this machine could read it.
"""

from __future__ import annotations

import hmac
import io
import logging
import secrets
import shutil
import socket
import threading
import time
import traceback
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from typing import IO, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from gpate.errors import GpateError

_log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"
MOST_BYTES = 2**18
"""Of what a form sends."""
MOST_FIELDS = 500
MOST_CONNECTIONS = 32
SECONDS = 20.0
"""In which a request must have arrived, and between two parts of an answer that are taken."""

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer."""


class Refused(GpateError):
    """A request that is refused, with the status that says why."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request that passed all checks.

    Attributes:
        method: GET or POST.
        path: without the query.
        query: the fields of the address.
        form: the fields that were sent.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)

    def get(self, name: str) -> str:
        """A field of the form, or of the address; empty if there is none."""
        return self.form.get(name, self.query.get(name, "")).strip()


@dataclass(frozen=True, kw_only=True)
class Response:
    """An answer: bytes, or a file that is sent as it is read."""

    body: bytes = b""
    file: IO[bytes] | None = None
    kind: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def to(cls, path: str, **query: str) -> Response:
        """Sends the browser to another page, which it asks for with GET."""
        return cls(status=HTTPStatus.SEE_OTHER, headers={"Location": address(path, **query)})

    @classmethod
    def download(cls, file: Path, name: str) -> Response:
        """A file to keep."""
        return cls(file=file.open("rb"), kind="application/octet-stream", headers=attachment(name))


def attachment(name: str) -> dict[str, str]:
    """The header by which a browser keeps an answer as a file of this name."""
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}


def address(path: str, **query: str) -> str:
    """An address on this server."""
    said = {name: value for name, value in query.items() if value}
    return path + (f"?{urlencode(said)}" if said else "")


class Session:
    """The secrets of one server: the token of its first address, the cookie and the token of its forms."""

    def __init__(self) -> None:
        self.token, self.cookie, self.form_token = (secrets.token_urlsafe(32) for _ in range(3))


Pages = Callable[[Request], Response]


class Server(ThreadingHTTPServer):
    """Answers requests by `pages`, which is given those alone that passed the checks.

    Args:
        pages: makes an answer; a `Refused` it raises is shown by `problem`.
        problem: the page about a refused request.
        session: its secrets.
        public: paths that need no cookie, because they are the same in every installation.
        port: 0 for any that is free.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self,
        pages: Pages,
        problem: Callable[[Refused], bytes],
        session: Session,
        *,
        public: Container[str] = (),
        port: int = 0,
    ) -> None:
        self.pages, self.problem, self.session, self.public = pages, problem, session, public
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__((ADDRESS, port), _Handler)

    @property
    def address(self) -> str:
        """Where it answers."""
        return f"http://{ADDRESS}:{self.server_port}"

    @property
    def first_address(self) -> str:
        """The address that opens a session."""
        return f"{self.address}/?token={self.session.token}"

    def server_bind(self) -> None:
        """Without the look-up of the machine's name, which may wait for a network."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = ADDRESS, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """One thread for each connection, as long as there are not too many."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Frees the place of the connection at its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes a connection is no event, and an error in a page has been answered."""


class _UntilDeadline(io.RawIOBase):
    """Reads a socket until a deadline, however slowly it sends."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._end = connection, time.monotonic() + SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(SECONDS)


class _Handler(BaseHTTPRequestHandler):
    """One request, one answer, one connection."""

    server: Server
    server_version, sys_version = "gpate", ""
    timeout = SECONDS

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_UntilDeadline(self.connection))  # type: ignore[assignment]

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses hold names of files, and one holds the token."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses: a line that is no request, a method that is not known."""
        self.close_connection = True
        self._answer(self._problem(Refused(HTTPStatus(code), "This is not a request that the desk understands.")))

    def do_GET(self) -> None:
        self._respond()

    def do_HEAD(self) -> None:
        self._respond()

    def do_POST(self) -> None:
        self._respond()

    def _respond(self) -> None:
        try:
            answer = self._page()
        except Refused as problem:
            answer = self._problem(problem)
        except TimeoutError:
            self.close_connection = True
            return
        except Exception as problem:  # noqa: BLE001 - its text may quote anything, so only its kind and place are shown
            place = "".join(traceback.format_tb(problem.__traceback__))
            _log.error("%s while a page was made:\n%s", type(problem).__name__, place)
            refused = Refused(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                f"The desk met an error that it does not know ({type(problem).__name__}). Nothing was started by this request unless the "
                "list of runs says so. Fix: go back and try again; the same can be done with the command.",
            )
            answer = self._problem(refused)
        self._answer(answer)

    def _page(self) -> Response:
        """Checks in the order in which they protect: whom the request is for, where it comes from, who asks."""
        if self.headers.get("Host", "") not in self._hosts:
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "The desk answers on 127.0.0.1 and localhost alone.")
        parts = urlsplit(self.path)
        if parts.scheme or parts.netloc:
            raise Refused(HTTPStatus.BAD_REQUEST, "The desk is not a proxy.")
        query = _fields(parts.query)
        if self.command != "POST" and parts.path == "/" and "token" in query:
            return self._entered(query["token"])
        posted = self.command == "POST"
        self._check_origin(strict=posted)
        if parts.path not in self.server.public and not _same(self._cookie, self.server.session.cookie):
            raise Refused(
                HTTPStatus.UNAUTHORIZED,
                "This browser has not opened the desk yet, or the desk was started again. Fix: open the whole address that `gpate desk` "
                "printed in the terminal.",
            )
        form = self._form() if posted else {}
        if posted and not _same(form.pop("form_token", ""), self.server.session.form_token):
            raise Refused(
                HTTPStatus.FORBIDDEN, "This form is of another session. Fix: reload the page, and send it again."
            )
        return self.server.pages(Request(method="POST" if posted else "GET", path=parts.path, query=query, form=form))

    @cached_property
    def _hosts(self) -> tuple[str, str]:
        return f"{ADDRESS}:{self.server.server_port}", f"localhost:{self.server.server_port}"

    @property
    def _cookie_name(self) -> str:
        return f"gpate-desk-{self.server.server_port}"

    @property
    def _cookie(self) -> str:
        """Ours among those of all servers on this machine, whatever they wrote into theirs."""
        pairs = (pair.strip().partition("=") for pair in self.headers.get("Cookie", "").split(";"))
        return next((value for name, _, value in pairs if name == self._cookie_name), "")

    def _entered(self, token: str) -> Response:
        """The cookie for the right token, and an address without it."""
        if not _same(token, self.server.session.token):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "The token in this address is not the desk's. Fix: open the whole address that `gpate desk` printed last.",
            )
        cookie = f"{self._cookie_name}={self.server.session.cookie}; Path=/; HttpOnly; SameSite=Strict"
        return Response(status=HTTPStatus.SEE_OTHER, headers={"Location": "/", "Set-Cookie": cookie})

    def _check_origin(self, *, strict: bool) -> None:
        """Whether a page of this server asks; not strictly, also a person who typed the address."""
        site, origin = self.headers.get("Sec-Fetch-Site"), self.headers.get("Origin")
        ours = {f"http://{host}" for host in self._hosts} & {f"http://{self.headers['Host']}"}
        wrong = site not in (None, "same-origin", *(() if strict else ("none",)))
        wrong |= origin is not None and origin not in ours and not (origin == "null" and site == "same-origin")
        if wrong or (strict and site is None and origin is None):
            raise Refused(HTTPStatus.FORBIDDEN, "Another site asked for this. Nothing was done.")

    def _form(self) -> dict[str, str]:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdecimal()) or self.headers.get("Transfer-Encoding"):
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "A form states its length.")
        if len(length) > 9 or int(length) > MOST_BYTES:
            self.rfile.read(min(int(length[:9]), 4 * MOST_BYTES))  # or whoever sends it hears no answer
            raise Refused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"A form has at most {MOST_BYTES:,} bytes; nothing was kept. Fix: data stay where they are, and are chosen by name.",
            )
        if self.headers.get_content_type() != "application/x-www-form-urlencoded":
            raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "A form is sent as application/x-www-form-urlencoded.")
        raw = self.rfile.read(int(length))
        if len(raw) < int(length):
            raise Refused(HTTPStatus.BAD_REQUEST, "The form did not arrive in full.")
        try:
            return _fields(raw.decode("ascii"))
        except UnicodeDecodeError:
            raise Refused(HTTPStatus.BAD_REQUEST, "This is not a form.") from None

    def _problem(self, problem: Refused) -> Response:
        return Response(body=self.server.problem(problem), status=problem.status)

    def _answer(self, answer: Response) -> None:
        try:
            self.send_response(answer.status)
            length = len(answer.body)
            if answer.file is not None:
                length = answer.file.seek(0, io.SEEK_END)
                answer.file.seek(0)
            given = {"Content-Security-Policy": POLICY, "Content-Type": answer.kind, "Content-Length": str(length)}
            for name, value in {**HEADERS, **given, **answer.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if answer.file is None:
                self.wfile.write(answer.body)
            else:
                shutil.copyfileobj(answer.file, self.wfile, 2**18)
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            self.close_connection = True  # nobody takes the answer any more
        finally:
            if answer.file is not None:
                answer.file.close()


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), secret.encode())


def _fields(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict")
    except (ValueError, UnicodeDecodeError):
        raise Refused(HTTPStatus.BAD_REQUEST, "This is not a form, or it has too many fields.") from None
    if any("\0" in value for _, value in pairs):
        raise Refused(HTTPStatus.BAD_REQUEST, "A field contains a character that no name has.")
    return dict(pairs)
