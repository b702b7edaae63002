"""The pages of the desk: which function answers which address, and how pages are rendered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from importlib.resources import files
from typing import Any

import jinja2

from gpate.desk.jobs import Jobs
from gpate.desk.server import Refused, Request, Response, Session, address
from gpate.desk.workspace import Workspace
from gpate.errors import GpateError
from gpate.report import formatting as words
from gpate.version import __version__

Page = Callable[["Desk", Request], Response]

STATIC = {
    "/report.css": ("gpate.report", "style.css", "text/css; charset=utf-8"),
    "/desk.css": ("gpate.desk", "desk.css", "text/css; charset=utf-8"),
    "/desk.js": ("gpate.desk", "desk.js", "text/javascript; charset=utf-8"),
}
"""Files of the package, which need no cookie."""


@dataclass(frozen=True, kw_only=True)
class Desk:
    """What all pages share: the folder, the commands that were started, the secrets of the session."""

    workspace: Workspace
    jobs: Jobs
    session: Session

    @cached_property
    def _environment(self) -> jinja2.Environment:
        environment = jinja2.Environment(
            loader=jinja2.PackageLoader("gpate.desk"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals |= {
            "address": address,
            "form_token": self.session.form_token,
            "folder": str(self.workspace.root),
            "version": __version__,
        }
        environment.filters |= {"number": words.number, "percent": words.percent, "name": words.name}
        return environment

    def prepare(self) -> None:
        """Imports and compiles what pages need, so that the first of them does not wait for it."""
        _routes()
        for name in self._environment.list_templates(extensions=("html",)):
            self._environment.get_template(name)

    def page(self, template: str, *, status: HTTPStatus = HTTPStatus.OK, **context: Any) -> Response:
        """A page, or a part of one, from its template."""
        text = self._environment.get_template(template).render({"problem": "", **context})
        return Response(body=text.encode(errors="replace"), status=status)

    def refusal(self, problem: Refused) -> bytes:
        """The page about a request that is refused."""
        entered = problem.status not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.MISDIRECTED_REQUEST)
        return self.page("refused.html", refused=problem, entered=entered).body

    def __call__(self, request: Request) -> Response:
        """The answer to a request that passed the checks of `gpate.desk.server`."""
        routes = _routes()
        if request.method == "GET" and request.path in STATIC:
            return _static(request.path)
        found = routes.get((request.method, request.path))
        if found is None:
            if any(path == request.path for _, path in routes):
                raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "This address is not for that kind of request.")
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page. Fix: go back to the first one.")
        try:
            return found(self, request)
        except Refused:
            raise
        except GpateError as problem:
            raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"{type(problem).__name__}: {problem}") from problem
        except OSError as problem:
            raise Refused(
                HTTPStatus.INSUFFICIENT_STORAGE,
                f"A file could not be read or written ({problem.strerror}). Fix: make room, or check the folder's permissions.",
            ) from problem


def _routes() -> Mapping[tuple[str, str], Page]:
    """Imported when the first page is asked for: the address is printed sooner."""
    from gpate.desk import evaluation_pages, fit_pages, run_pages, schema_pages

    return {**fit_pages.ROUTES, **run_pages.ROUTES, **evaluation_pages.ROUTES, **schema_pages.ROUTES}


def _static(path: str) -> Response:
    package, name, kind = STATIC[path]
    return Response(body=(files(package) / "templates" / name).read_bytes(), kind=kind)
