"""Stands in for the command in tests of the desk: says that it began, and ends when the file `go` is there.

A fit makes the folders of a run as the command does. The first argument `unnamed` ends it as an unknown error would.
"""

import json
import os
import signal
import sys
import time

arguments = sys.argv[1:]
stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(1))
sys.stderr.write(json.dumps({"warning": "A note."}) + "\n")
fraction = {
    "fraction": 0.25,
    "spend": 0.5,
    "epsilon": 1.0,
    "seconds_left": 3.0,
    "replayed": False,
    "answered": 1.0,
    "iteration": 1,
}
sys.stderr.write(json.dumps(fraction) + "\n")
sys.stderr.flush()
if "--out" in arguments:
    run = arguments[arguments.index("--out") + 1]
    for half in ("private", "release"):
        os.makedirs(os.path.join(run, half))
    open(os.path.join(run, "private", "run.json"), "w").close()
with open("began", "a") as file:
    file.write(
        json.dumps([os.getpid(), *arguments]) + "\n"
    )  # last, so that all of the above is there for whoever has seen it
while not os.path.exists("go") and not stopped:
    time.sleep(0.01)
if os.path.exists("unnamed"):
    raise ValueError("could not convert string to float: 'Zebediah-Quatermain'")
if stopped:
    sys.exit("Stopped; `gpate fit --resume` continues.")
sys.stdout.write(json.dumps({"epsilon": 1.0, "records": 3, "seed": 1}))
