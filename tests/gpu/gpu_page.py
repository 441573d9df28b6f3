# SPDX-License-Identifier: Apache-2.0
"""Write the page that ./check-gpu ends with: gpu.md and gpu.json."""
import json
import os
import re

import gpu_causes


def read_tables(text):
    """The Markdown tables of an output: title (the line before), columns,
    rows."""
    tables, before, lines = [], "", text.splitlines()
    i = 0
    while i < len(lines):
        if lines[i].startswith("|") and i + 1 < len(lines) and \
                lines[i + 1].startswith("|---"):
            table = {"title": before, "columns": cells(lines[i]), "rows": []}
            i += 2
            while i < len(lines) and lines[i].startswith("|"):
                table["rows"].append(cells(lines[i]))
                i += 1
            tables.append(table)
            before = ""
            continue
        if lines[i].strip():
            before = lines[i].strip()
        i += 1
    return tables


def cells(line):
    return [c.strip() for c in line.strip().strip("|").split("|")]


def percent(text):
    m = re.match(r"([\d.]+) ?%", text)
    return float(m[1]) if m else None


def below(page):
    """[what, wanted, measured, likely cause] of each figure below target."""
    low = []
    if page["emulated"]:
        return low
    sheet = (page["gpus"] or [{}])[0].get("sheet")
    if "ceilings" in page:
        low += gpu_causes.ceilings(sheet, page["ceilings"]["copy"],
                                   page["ceilings"]["product"])
    for table in page["tables"]:
        columns = table["columns"]
        for row in table["rows"]:
            if columns[-1] == "of ceiling":
                share = percent(row[-1])
                found = gpu_causes.kernel(row[0], share) \
                    if share is not None else None
                if found:
                    low.append((row[0] + ", of ceiling, %", found[0], share,
                                found[1]))
            elif columns[0] == "target" and row[-1] == "not met":
                low.append((row[0], row[1], row[2], gpu_causes.model(row[0])))
            elif columns[-1] == "of as many single GPUs":
                share, want = percent(row[-1]), \
                    gpu_causes.SEVERAL.get(row[0][:2])
                if want and share is not None and share < want:
                    low.append((row[0] + ", of as many single GPUs, %", want,
                                share, gpu_causes.several(row[0])))
    return [list(x) for x in low]


def table(out, columns, rows):
    out.append("| " + " | ".join(columns) + " |")
    out.append("|" + "---|" * len(columns))
    for row in rows:
        out.append("| " + " | ".join(str(c).replace("|", "/") for c in row) +
                   " |")
    out.append("")


def machine(out, page):
    m = page.get("machine", {})
    rows = [["host", m.get("host")], ["system", "%s, Linux %s, %s processors" %
            (m.get("system"), m.get("kernel"), m.get("processors"))],
            ["Plait", m.get("plait")]]
    rows += sorted(m.get("build", {}).items())
    if m.get("driver"):
        rows.append(["driver, power, clock, ECC, MIG, mode",
                     "; ".join(sorted(set(m["driver"].splitlines())))])
    for i, g in enumerate(page["gpus"]):
        sheet = g["sheet"]
        rows.append(["GPU %d" % i, "%s, %s, compute capability %s, %d "
                     "multiprocessors, %.1f GiB, %s" % (
                         g["name"], g["busid"], g["capability"],
                         g["processors"], g["memory"] / 2**30,
                         "data sheet " + sheet["type"] if sheet
                         else "no data sheet in gpu_types")])
    for g in page["gpus"][:1]:
        rows.append(["CUDA, driver's and linked", "%s, %s" % (g["driver"],
                                                             g["runtime"])])
        rows.append(["attention", g["attention"]])
    table(out, ["machine", ""], rows)


def ceilings(out, page):
    if "ceilings" not in page or not page["gpus"]:
        return
    c, sheet = page["ceilings"], page["gpus"][0]["sheet"]
    rows = []
    for name, key, unit, of in (("copy", "copy", "GB/s", "memory_bw"),
                                ("bf16 product", "product", "TFLOP/s",
                                 "flops16")):
        scale = 1e-9 if unit == "GB/s" else 1e-12
        rows.append([name, "%.4g %s" % (c[key] * scale, unit)] + (
            ["%.4g" % (sheet[of] * scale), "%.0f %%" % (
                100 * c[key] / sheet[of])] if sheet else ["-", "-"]))
    table(out, ["ceiling", "measured", "data sheet", "share"], rows)


def write(page, folder):
    """Write the page and print where it is. Return 1 if a check failed, else
    0."""
    count = {}
    for c in page["checks"]:
        count[c["result"]] = count.get(c["result"], 0) + 1
    page["below"] = below(page)
    out = ["# Plait on %s" % (page["gpus"][0]["name"] if page["gpus"]
                              else "no GPU"), ""]
    said = ", ".join("%d %s" % (count[k], k) for k in
                     ("passed", "failed", "unfinished", "skipped")
                     if k in count)
    low = len(page["below"])
    if not page["emulated"]:
        said += "; %d figure%s under target" % (low, "" if low == 1 else "s")
    page["result"] = said
    out += ["**%s.** %s, %d s." % (said, page["date"], page["seconds"]), ""]
    if page["emulated"]:
        out += ["The GPU is an emulation on processors (--emulated): results "
                "are checked, and times and rates mean nothing.", ""]
    machine(out, page)
    out += ["## What was checked", ""]
    table(out, ["check", "result", "found", "s"], [
        [c["name"], c["result"] if c["result"] != "failed" else "**failed**",
         c["text"], c["seconds"]] for c in page["checks"]])
    if page["below"]:
        out += ["## Under target, and the likely cause", ""]
        table(out, ["figure", "wanted", "measured", "likely cause"],
              [[w, t, "%.3g" % m if isinstance(m, float) else m, why]
               for w, t, m, why in page["below"]])
    out += ["## What was measured", ""]
    ceilings(out, page)
    for t in page["tables"]:
        if t["title"] and not t["title"].startswith(("Ceilings", "MFU is")):
            out += [t["title"], ""]
        table(out, [c or " " for c in t["columns"]], t["rows"])
    if page.get("links"):
        out += ["Links, as plait-probe measured them:", "", "```",
                page["links"].strip(), "```", ""]
    for name, text in (("gpu.md", "\n".join(out).rstrip() + "\n"),
                       ("gpu.json", json.dumps(page, indent=1) + "\n")):
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    print("%s\nThe page to mail: %s (and gpu.json beside it)" % (
        said, os.path.join(folder, "gpu.md")))
    return 1 if count.get("failed") else 0
