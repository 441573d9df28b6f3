# SPDX-License-Identifier: Apache-2.0
"""The results of the faults so far, and the tables that are printed at the
end."""
import json
import os


class Table:
    """The results so far, in a file from which a later start resumes."""

    def __init__(self, path, seed, kinds):
        self.path, self.rows, self.known, lines = path, {}, {}, []
        if path and os.path.exists(path):
            lines = [json.loads(s) for s in open(path) if s.endswith("\n")]
        for row in lines:
            if "number" in row and (row["seed"], row["kinds"]) == (seed, kinds):
                self.rows[row["number"]] = row
            elif "key" in row:
                self.known[row["key"]] = tuple(row["state"])
        self.seed, self.kinds = seed, kinds

    def write(self, row):
        if "number" in row:
            self.rows[row["number"]] = row
        if self.path:
            with open(self.path, "a") as f:
                f.write(json.dumps(
                    {"seed": self.seed, "kinds": self.kinds, **row}) + "\n")

    def sums(self, column):
        sums = {}
        for _, row in sorted(self.rows.items()):
            one = sums.setdefault(row[column], [0, 0, 0.0])
            one[0] += 1
            one[1] += row["why"] is None
            one[2] += row["seconds"]
        return sums

    def noticed(self):
        """Print for each fault that was noticed how soon, and how often the
        right rank was named."""
        print("# noticed after                        runs  median s  "
              "most s  named right")
        noted = [r for r in self.rows.values() if "noticed" in r]
        for name in sorted({r["fault"] for r in noted}):
            rows = [r for r in noted if r["fault"] == name]
            times = sorted(r["noticed"] for r in rows)
            print(f"# {name:34} {len(rows):6}  {times[len(times) // 2]:8.2f}"
                  f"  {times[-1]:6.2f}  {sum(r['named'] for r in rows):6} of "
                  f"{len(rows)}")
        hangs = [r for r in noted if "limit" in r]
        if hangs:
            soon = sum(r["noticed"] <= r["limit"] + 5 for r in hangs)
            named = sum(r["named"] for r in hangs)
            print(f"# hangs: {soon} of {len(hangs)} noticed within "
                  f"train.timeout + 5 s, {named} of {len(hangs)} named right")

    def show(self):
        for column in ("fault", "layout", "launcher"):
            print(f"# {column:34} runs  good  mean s")
            for name, (runs, good, seconds) in self.sums(column).items():
                print(f"# {name:34} {runs:4}  {good:4}  {seconds / runs:6.1f}")
        self.noticed()
        for number, row in sorted(self.rows.items()):
            if row["why"] is not None:
                print(f"# failed: {number + 1} {row['fault']}, "
                      f"{row['layout']}, {row['launcher']}")


def said_of(row):
    """The text that a fault that was noticed adds to its TAP line."""
    if "noticed" not in row:
        return ""
    return (f", noticed after {row['noticed']:.2f} s"
            f"{'' if row['named'] else ' and not named'}")
