# SPDX-License-Identifier: Apache-2.0
"""A run's metrics in Weights & Biases or MLflow, as they are written:

    python follow_metrics.py wandb run.jsonl
    python follow_metrics.py mlflow run.jsonl

run.jsonl is log.metrics of plait-train; it may come later than this program,
which ends with the last line of the run, or of its start. Where the metrics go is said in wandb's and
mlflow's own variables: WANDB_PROJECT, WANDB_MODE, MLFLOW_TRACKING_URI.
"""
import json
import os
import sys
import time


def rows(path):
    while not os.path.exists(path):
        time.sleep(1)
    with open(path, encoding="utf-8") as file:
        line, ended = "", False
        while not ended or line:
            line += file.readline()
            if line.endswith("\n"):
                try:
                    row = json.loads(line)
                except ValueError:  # of a run that was killed while it wrote
                    row = {}
                line = ""
                if row:
                    yield row
                # A start's last line alone has it; another start may follow.
                ended = "measured_s" in row and at_end(file)
            else:  # no more, or half of one
                time.sleep(1)


def at_end(file):
    at = file.tell()
    more = file.readline()
    file.seek(at)
    return not more


def numbers(row, before=""):
    """{"val_loss_sets": {"a": 1}} is {"val_loss_sets/a": 1.0}"""
    found = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found.update(numbers(value, before + name + "/"))
        elif isinstance(value, (int, float)):
            found[before + name] = float(value)
    return found


def main(where, path):
    if where == "wandb":
        import wandb

        run = wandb.init()
        # not wandb's own count, which never goes back as a resumed run does
        run.define_metric("*", step_metric="step")
        for row in rows(path):
            run.log(numbers(row))
        run.finish()
    else:
        import mlflow

        with mlflow.start_run():
            for row in rows(path):
                mlflow.log_metrics(numbers(row), step=row["step"])


if __name__ == "__main__":
    main(*sys.argv[1:])
