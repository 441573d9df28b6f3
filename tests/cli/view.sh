#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-report and plait-watch: a page with all extremes of 100,000 steps in
# less than 1 MB, two runs in one page, a run that is still being written, one
# line for every wrong input and no incomplete output.
set -u
report=$top_builddir/plait-report
watch=$top_builddir/plait-watch
command -v python3 >/dev/null || { echo "1..0 # SKIP needs python3"; exit 0; }
. "$top_srcdir/tests/lib/check.sh"
. "$top_srcdir/tests/lib/until.sh"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT

# metrics FILE STEPS
metrics() {
    python3 - "$@" <<'END'
import json, random, sys
with open(sys.argv[1], "w") as out:
    for step in range(1, int(sys.argv[2]) + 1):
        out.write(json.dumps({
            "step": step, "loss": random.random() + 10 / step,
            "grad_norm": None, "lr": 1e-3, "tokens": 100 * step,
            "tokens_per_s": 1000 + random.random(), "mfu": 0.25,
            "step_s": 0.5, "mem_bytes": 2**30, "comm_s": 0.1,
            "comm_s_groups": {"tp": 0.05},
            "mem_bytes_stages": [2**30, 2**29], "slowest_rank": 1,
            "rank_s_min": 0.2, "rank_s_max": 0.25,
            "saved_step": step // 1000 * 1000,
            "time": 1790000010 + step,
            "comm_bytes": {"tp": 1024 * 1024}}) + "\n")
END
}

metrics "$dir/long.jsonl" 100000
printf '%s\n' '{"time":1790000000,"step":0,"steps":200000,"tp":2,"cp":1,"ep":1,
"dp":1,"pp":1,"ranks":2,"plan":{"order":"tp-cp-ep-dp-pp","zero":1,
"schedule":"1f1b","precision":"bf16","nodes":[0,1]},"config":"name: </script><!--<script>"}' | tr -d '\n' \
    >"$dir/long.jsonl.starts"
"$report" "$dir/long.jsonl" --out "$dir/page.html" >"$dir/out" 2>&1
check "a page of 100,000 steps" $?
[ "$(wc -c <"$dir/page.html")" -lt 1000000 ] && [ ! -s "$dir/out" ]
check "is below 1 MB" $?
cat >"$dir/page.py" <<'EOF'
import html.parser, json, re, sys
page = open(sys.argv[1]).read()
class Tags(html.parser.HTMLParser):
    depth, text = 0, ""
    def handle_starttag(self, tag, attrs):
        assert tag not in ("link", "iframe", "img"), tag
        attrs = dict(attrs)
        assert "src" not in attrs and "href" not in attrs, attrs
        self.depth = attrs.get("id") == "data"
    def handle_data(self, text):
        if self.depth:
            self.text += text
    def handle_endtag(self, tag):
        self.depth = 0
tags = Tags()
tags.feed(page)
data = json.loads(tags.text)
assert len(data["runs"]) == len(sys.argv) - 2
assert "url(" not in page and "@import" not in page and "fetch(" not in page
for run, path in zip(data["runs"], sys.argv[2:]):
    rows = [json.loads(line) for line in open(path)]
    assert run["lines"] == len(rows) and run["last"] == rows[-1]["step"]
    assert "grad_norm" not in run["curves"]
    for name, of in (("loss", lambda r: r["loss"]),
                     ("mem_bytes_stages.1", lambda r: r["mem_bytes_stages"][1]),
                     ("comm_bytes.tp", lambda r: r["comm_bytes"]["tp"])):
        curve = run["curves"][name]
        x, y = curve[::2], curve[1::2]
        assert x == sorted(set(x)), name
        by_step = {r["step"]: of(r) for r in rows}
        assert all(abs(by_step[s] - v) <= 1e-5 * abs(v)
                   for s, v in zip(x, y)), name
        for f in min, max:
            assert abs(f(by_step.values()) - f(y)) <= 1e-5 * abs(f(y)), name
EOF
python3 "$dir/page.py" "$dir/page.html" "$dir/long.jsonl"
check "keeps the smallest and the largest, and loads nothing" $?

# Every figure that a run writes has a title and, in the page, a meaning.
python3 - "$top_srcdir" <<'END'
import re, sys
source = open(sys.argv[1] + "/runtime/train/metrics/metrics_list.c").read()
page = open(sys.argv[1] + "/runtime/view/page.html").read()
titles = page[page.index("const titles = {"):page.index("const first = [")]
names = re.findall(r'\{"(\w+)",\s*"\w+",\s*"', source)
assert len(names) > 25, names
lists = re.findall(r'base === "(\w+)"', page)
bare = [n for n in names if n not in lists and
        not re.search(r"\b%s: \[\"[A-Z][^\"_]+\"" % n, titles)]
assert not bare, bare
END
check "every figure has a title in words" $?

mkdir "$dir/runs"
metrics "$dir/runs/a.jsonl" 40
metrics "$dir/runs/b.jsonl" 300
echo '{"text": "of no run"}' >"$dir/runs/data.jsonl"
printf '{"step": 301, "lo' >>"$dir/runs/b.jsonl"
"$report" "$dir/runs" --out "$dir/two.html"
sed -i '$d' "$dir/runs/b.jsonl"
python3 "$dir/page.py" "$dir/two.html" "$dir/runs/a.jsonl" "$dir/runs/b.jsonl"
check "two runs of a directory, one still written" $?

# What the planner expects, and a trace of one step: the median of three.
mkdir "$dir/plan" "$dir/plan/trace"
metrics "$dir/plan/c.jsonl" 30
cat >"$dir/run.py" <<'EOF'
import json, sys
where = sys.argv[1] + "/plan"
config = """model: {layers: 4, hidden: 64, heads: 4, vocab: 257, seq_len: 64}
train: {steps: 30, global_batch: 8, micro_batch: 2}

# --set parallel.schedule=gpipe
# --set train.global_batch=16
"""
with open(where + "/c.jsonl.starts", "w") as out:
    json.dump({"time": 1790000000, "step": 0, "steps": 30, "ranks": 4,
               "tp": 2, "cp": 1, "ep": 1, "dp": 1, "pp": 2, "plan": {
                   "order": "tp-cp-ep-dp-pp", "schedule": "gpipe", "zero": 0,
                   "precision": "fp32", "gpu_type": "cpu", "dir": where,
                   "profile": "trace", "nodes": [0, 0, 1, 1]},
               "config": config}, out)
for rank in range(4):
    lines = [{"ph": "M", "pid": 1, "tid": t, "name": "thread_name",
              "args": {"name": n}}
             for t, n in ((1, "compute"), (2, "tp"), (3, "run"))]
    at = 100.5
    for length in (900, 100, 300, 200):
        lines += [{"ph": "X", "pid": 1, "tid": 2, "name": "all-reduce",
                   "ts": at + 5, "dur": 10},
                  {"ph": "b", "pid": 1, "tid": 2, "name": "x", "ts": at},
                  {"ph": "X", "pid": 1, "tid": 1, "name": "forward 0.3",
                   "ts": at + 1, "dur": length - rank - 2},
                  {"ph": "X", "pid": 1, "tid": 3, "name": "step", "ts": at,
                   "dur": length - rank}]
        at += length + 7
    with open(f"{where}/trace/rank-{rank:05}.json", "w") as out:
        text = ",\n".join(map(json.dumps, lines))
        out.write("[" + text + (", {" if rank == 3 else "]\n"))
EOF
python3 "$dir/run.py" "$dir"
"$report" "$dir/plan" --out "$dir/plan.html" >"$dir/out" 2>&1
check "a page of a run with a trace" $?
cat >"$dir/plan.py" <<'EOF'
import json, re, subprocess, sys
page, plait, where = sys.argv[1:]
data = json.loads(re.search(r'id="data">(.*?)</script>', open(page).read(),
                            re.S).group(1))
run, = data["runs"]
with open(where + "/c.yaml", "w") as out:
    out.write(json.loads(open(where + "/c.jsonl.starts").read())["config"])
said = json.loads(subprocess.run(
    [plait, "estimate", "--model", where + "/c.yaml", "--gpus", "4", "--json",
     "--tp=2", "--pp=2", "--gpu-type", "cpu", "--schedule=gpipe",
     "--global-batch=16"], check=True, capture_output=True).stdout)
got = run["predicted"]
assert abs(got["step_s"] / said["step_s"] - 1) < 1e-9, (got, said)
assert got["memory"] == [m["total"] for m in said["stages_memory_bytes"]]
t = run["timeline"]
assert t["step"] == 4 and t["of"] == 4 and len(t["ranks"]) == 4
assert abs(t["seconds"] - 200e-6) < 1e-12
for r in t["ranks"]:
    spans = [r["spans"][i:i + 4] for i in range(0, len(r["spans"]), 4)]
    assert [(t["tracks"][a], t["names"][b], c, d) for a, b, c, d in spans] == [
        ("tp", "all-reduce", 5, 11),
        ("compute", "forward", 1, 199 - r["rank"])], spans
EOF
python3 "$dir/plan.py" "$dir/plan.html" "$top_builddir/plait" "$dir/plan"
check "has plait estimate's figures and the median step of each rank" $?
"$report" "$dir/long.jsonl" --gpu-type h100 --out "$dir/page.html" &&
    grep -q '"predicted":{"error":"configuration:' "$dir/page.html"
check "a configuration that is none is no prediction, and no failure" $?

"$watch" "$dir/long.jsonl" >"$dir/out" 2>&1 </dev/null
[ $? = 0 ] && grep -q 'step 100000/200000  50.0 %  13:53:20 left' "$dir/out" &&
    grep -q '^plan  tp 2  2 ranks  2 nodes  zero 1  bf16$' "$dir/out" &&
    grep -q '^slowest rank 1 works 0.25 s a step, quickest 0.2 s$' \
        "$dir/out" && grep -q '^waits 20.0 % of a step: tp 10.0$' "$dir/out" &&
    grep -q '^sends 1.0 MiB a step: 100 % tp$' "$dir/out" &&
    grep -q '^checkpoint of step 100000   goodput 50.0 %   starts 1$' \
        "$dir/out" && [ "$(wc -l <"$dir/out")" = 24 ] &&
    [ "$(wc -L <"$dir/out")" -le 80 ]
check "watch prints one picture of 80x24" $?
metrics "$dir/ended.jsonl" 40
echo '{"time":1790000000.5,"step":0,"steps":40}' >"$dir/ended.jsonl.starts"
"$watch" "$dir/ended.jsonl" </dev/null >"$dir/out" 2>&1 &&
    grep -q '^step 40/40  100.0 %  ended$' "$dir/out" &&
    grep -q '^checkpoint of step 0   goodput 40.4 %   starts 1$' "$dir/out"
check "a run that has ended" $?
# What a name has of a pattern's characters, or of bytes that no text of JSON
# has, is a name all the same.
named=$dir/$'lr[1e-3]\\*-\377'
mkdir "$named"
cp "$dir/ended.jsonl" "$named/a.jsonl"
cp "$dir/ended.jsonl" "$named/b.jsonl"
printf '{"time":1790000000.5,"step":0,"steps":40,"job":"123"}\n' \
    >"$named/b.jsonl.starts"
"$report" "$named" --out "$dir/named.html" 2>"$dir/err"
check "a directory with any characters in its name" $?
python3 "$dir/page.py" "$dir/named.html" "$dir/ended.jsonl" \
    "$dir/ended.jsonl" && grep -qF 'lr[1e-3]' "$dir/named.html"
check "both of its runs are in the page" $?
mkdir "$dir/bin"
printf '#!/bin/sh\ncat "$0.says"\n' >"$dir/bin/scontrol"
chmod +x "$dir/bin/scontrol"
printf 'JobId=123 JobName=x\n   WorkDir=%s\n' "$named" \
    >"$dir/bin/scontrol.says"
PATH=$dir/bin:$PATH "$watch" 123 </dev/null 2>"$dir/err" | grep -q 'step 40/40'
check "so has the directory of a job" $?

touch -d '1 hour ago' "$dir/runs/b.jsonl"
(cd "$dir/runs" && "$watch" </dev/null) | grep -q 'step 40$'
check "of a directory the newest" $?
: >"$dir/new.jsonl"
"$watch" "$dir/new.jsonl" </dev/null | grep -q 'no step yet'
check "a run that has just begun" $?
python3 -c '
for i in range(1, 40):
    print("{\"step\":%d,\"loss\":%g}" % (i, 6.0412 + i * 1e-5))' \
    >"$dir/flat.jsonl"
"$watch" "$dir/flat.jsonl" </dev/null |
    sed -n 's/^ *\([0-9.]*\) |.*/\1/p' >"$dir/marks"
[ "$(wc -l <"$dir/marks")" -ge 3 ] && [ -z "$(sort "$dir/marks" | uniq -d)" ]
check "marks of a curve that is nearly flat differ" $?

# On a terminal: lines written later appear, and q restores the terminal.
cat >"$dir/terminal.py" <<'EOF'
import fcntl, os, pty, re, select, signal, struct, sys, termios, time
watch, path, end = sys.argv[1:]
pid, fd = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("4H", 20, 60, 0, 0))
    os.execv(watch, [watch, path])
seen = b""


def until(text):
    global seen
    limit = time.monotonic() + 20
    while text not in seen:
        left = limit - time.monotonic()
        assert left > 0 and select.select([fd], [], [], left)[0], seen
        try:
            more = os.read(fd, 65536)
        except OSError:
            more = b""
        assert more, seen
        seen += more


until(b"step 40\x1b")
with open(path, "a") as out:
    out.write('{"step": 41, "loss": 1}\n')
until(b"step 41\x1b")
lines = seen.rsplit(b"\x1b[H", 1)[1].split(b"\r\n")
assert all(len(re.sub(rb"\x1b\[[A-Z]|\r", b"", line)) <= 60 for line in lines)
assert not termios.tcgetattr(fd)[3] & (termios.ECHO | termios.ICANON)
if end == "TERM":
    os.kill(pid, signal.SIGTERM)
else:
    os.write(fd, b"q" if end == "q" else b"\x03")
until(b"\x1b[?25h\x1b[?1049l")
assert os.waitpid(pid, 0)[1] == 0
EOF
for key in q ctrl-c TERM; do
    metrics "$dir/live.jsonl" 40
    timeout 240 python3 "$dir/terminal.py" "$watch" "$dir/live.jsonl" $key
    check "a live run on a terminal, ended by $key" $?
done

# In a terminal of any size all lines are shown, and none is wrapped.
if command -v tmux >/dev/null; then
    for size in 60x20 80x24 200x60; do
        server=$dir/tmux-$size
        tmux -S "$server" -f /dev/null new-session -d -x "${size%x*}" \
            -y "${size#*x}" "exec $watch $dir/long.jsonl"
        until_true sh -c \
            "tmux -S $server capture-pane -p | grep -q 'q quits'"
        tmux -S "$server" capture-pane -p >"$dir/screen"
        tmux -S "$server" kill-server
        curves=1
        [ "${size%x*}" = 200 ] && curves=2
        [ "$(wc -L <"$dir/screen")" -le "${size%x*}" ] &&
            [ "$(wc -l <"$dir/screen")" = "${size#*x}" ] &&
            grep -q '^plan .* bf16$' "$dir/screen" &&
            grep -q 'goodput 50.0 %   starts 1$' "$dir/screen" &&
            [ "$(grep -oE '(loss|tokens/s), step 1' "$dir/screen" |
                wc -l)" = $curves ]
        check "the picture in a terminal of $size" $?
    done
else
    echo "# no tmux: the sizes of terminals were left out"
fi

# refused STATUS REGEX COMMAND...: one line, and no page
refused() {
    local code=$1 regex=$2 got rc
    shift 2
    timeout 240 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    got=$?
    [ $got = "$code" ] && [ "$(wc -l <"$dir/err")" = 1 ] &&
        [ ! -s "$dir/out" ] && grep -Eq -e "$regex" "$dir/err" &&
        [ -z "$(find "$dir" -name 'made*')" ]
    rc=$?
    check "$(sed "s:$dir/::g" "$dir/err")" $rc
}

mkdir "$dir/empty"
: >"$dir/nothing"
printf 'step 1\n{"step": 2}\n' >"$dir/text"
printf '{"step": 1}\n{"loss": 2}\n' >"$dir/nostep"
printf '{"step": 5}\n{"step": 5}\n' >"$dir/twice"
printf '[1]\n' >"$dir/list"
printf '\0\377\n' >"$dir/binary"
for program in "$watch" "$report --out $dir/made"; do
    refused 1 'nowhere: No such file' $program "$dir/nowhere"
    refused 1 'empty: it contains no metrics' $program "$dir/empty"
    refused 1 'text:1: not JSON' $program "$dir/text"
    refused 1 'nostep:2: no object with an integer "step"' $program \
        "$dir/nostep"
    refused 1 'twice:2: step 5 comes after step 5' $program "$dir/twice"
    refused 1 'list:1: no object' $program "$dir/list"
    refused 1 'binary:1: not JSON' $program "$dir/binary"
    refused 2 'unknown option --bogus' $program --bogus
done
# What two runs in one file, or a full disk, have left between whole lines.
printf '{"step": 1, "loss": 3}\n{"step": 2, "lo\n\0\0{"step": 2}\n' >"$dir/half"
printf '{"step": 3, "loss": 2}\n' >>"$dir/half"
"$report" --out "$dir/half.html" "$dir/half" 2>"$dir/err"
ok "a half line is skipped, with a count" test $? = 0 -a \
    "$(cat "$dir/err")" = "plait-report: $dir/half: 2 lines were skipped, as they are not whole"
"$watch" "$dir/half" >"$dir/out" 2>"$dir/err"
ok "also by watch" test $? = 0 -a "$(grep -c '2 lines were skipped' "$dir/err")" = 1
refused 1 'job 123: cannot ask Slurm .scontrol: No such file' \
    env PATH="$dir/empty" "$watch" 123
refused 1 '12ab: No such file' "$watch" 12ab
refused 1 'No such file' "$watch" ''
refused 2 'unknown option -x' "$watch" -x
refused 1 'nothing: it contains no step yet' "$report" --out "$dir/made" \
    "$dir/nothing"
refused 1 'none/page: No such file' "$report" --out "$dir/none/page" \
    "$dir/live.jsonl"
refused 1 'empty: Is a directory' "$report" --out "$dir/empty" \
    "$dir/live.jsonl"
cp "$dir/ended.jsonl" "$dir/kept"
for out in "$dir/ended.jsonl" "$dir/ended.jsonl.starts" "$dir/bin/scontrol"; do
    refused 1 'out .*: it exists and is not an HTML page' "$report" --out "$out" \
        "$dir/ended.jsonl"
done
cmp "$dir/ended.jsonl" "$dir/kept"
check "and no metrics are lost" $?
"$report" "$dir/ended.jsonl" --out "$dir/named.html"
check "an older page is replaced" $?
refused 2 'needs metrics' "$report" --out "$dir/made"
refused 2 'out F.html is missing' "$report" "$dir/live.jsonl"
refused 2 'gpu-type: .*h1000' "$report" "$dir/live.jsonl" --gpu-type h1000 \
    --out "$dir/made"
refused 2 'value is missing after --out' "$report" "$dir/live.jsonl" --out
refused 2 'one DIR, FILE or JOBID' "$watch" "$dir/live.jsonl" "$dir/live.jsonl"
[ -z "$(find "$dir" -name '*.partial')" ]
check "nothing half-written" $?
echo "1..$n"
