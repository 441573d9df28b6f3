# SPDX-License-Identifier: Apache-2.0
"""What examples/follow_metrics.py gave to wandb (offline) and to mlflow, read by
their own readers: follow_job.py METRICS."""
import glob
import json
import os
import struct
import subprocess
import sys

path = sys.argv[1]
follow = os.path.join(os.environ["top_srcdir"], "examples", "follow_metrics.py")
with open(path) as file:
    rows = [json.loads(line) for line in file]
wanted = [(row["step"], row["loss"]) for row in rows]
environment = dict(os.environ, WANDB_MODE="offline", WANDB_SILENT="true",
                   MLFLOW_TRACKING_URI="sqlite:///mlflow.db")
for where in ("wandb", "mlflow"):
    subprocess.run([sys.executable, follow, where, path], check=True,
                   env=environment)

import mlflow  # noqa: E402
from wandb.proto import wandb_internal_pb2  # noqa: E402

# LevelDB's log format behind a header of 7 bytes; short records in one piece.
with open(glob.glob("wandb/offline-run-*/run-*.wandb")[0], "rb") as file:
    data = file.read()
found, at = [], 7
while at + 7 <= len(data):
    _, length, kind = struct.unpack_from("<IHB", data, at)
    assert kind == 1, "a record in pieces"
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data[at + 7:at + 7 + length])
    at += 7 + length
    row = {(item.key or ".".join(item.nested_key)): json.loads(item.value_json)
           for item in record.history.item}
    if "loss" in row:
        found.append((row["step"], row["loss"]))
assert found == wanted, (found, wanted)
mlflow.set_tracking_uri(environment["MLFLOW_TRACKING_URI"])
run = mlflow.search_runs(output_format="list")[0]
found = [(m.step, m.value) for m in mlflow.MlflowClient().get_metric_history(
    run.info.run_id, "loss")]
assert found == wanted, (found, wanted)
