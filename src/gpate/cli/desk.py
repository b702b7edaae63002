"""`gpate desk`: a local page in the browser, for one folder."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gpate.cli.interrupt import on_interrupt
from gpate.cli.terminal import Json, Quiet, console, print_json
from gpate.errors import InvalidValue

CLOSED = "Closed. Commands that were started go on; `gpate desk` shows them again."


def desk(
    ctx: typer.Context,
    folder: Annotated[
        Path, typer.Argument(help="Folder with the data, schemas, budget books and runs; the current one by default.")
    ] = Path(),
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; by default any that is free.", min=0, max=65535)] = 0,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Serve a local page in the browser: confirm a schema, set the budget, fit, verify, evaluate, sign, sample. For this machine alone.

    It answers on 127.0.0.1, to anyone who opens the printed address, which holds a secret. Ctrl-C closes it; fits go on.
    """
    from gpate.desk.app import STATIC, Desk
    from gpate.desk.jobs import Jobs
    from gpate.desk.server import Server, Session
    from gpate.desk.workspace import Workspace

    workspace, session = Workspace(folder), Session()
    jobs = Jobs(workspace)
    app = Desk(workspace=workspace, jobs=jobs, session=session)
    try:
        server = Server(app, app.refusal, session, public=STATIC, port=port)
    except OSError as problem:
        raise InvalidValue("--port", port, f"a port that is free ({problem.strerror})") from None
    on_interrupt(ctx, CLOSED)
    if as_json:
        print_json({"address": server.first_address, "folder": str(workspace.root)})
        sys.stdout.flush()
    elif quiet:
        console.print(server.first_address, soft_wrap=True, highlight=False)
    else:
        console.print(
            f"The desk of {escape(str(workspace.root))} is open. In a browser on this machine:", soft_wrap=True
        )
        console.print(f"\n  {server.first_address}\n", soft_wrap=True, highlight=False)
        console.print("Anyone who has this address can use the desk. Ctrl-C closes it; fits go on.", soft_wrap=True)
    threading.Thread(target=app.prepare, daemon=True).start()
    try:
        server.serve_forever()
    finally:
        server.server_close()
        jobs.close()
