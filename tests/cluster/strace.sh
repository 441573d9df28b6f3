#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# As root the plugin touches only the files that spank_plait(8) lists. strace
# shows what slurmstepd opens, looks up or executes with and without the plugin,
# for a step of a user who is not root.
command -v strace >/dev/null || { echo "1..0 # SKIP no strace"; exit 0; }
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP only root can be two users"; exit 0; }
. "$top_srcdir/tests/cluster/tap.sh" --nodes 1
cached
strace -o /dev/null true 2>/dev/null ||
    { echo "1..0 # SKIP this machine forbids strace"; exit 0; }

# traced FILE FLAGS...: trace node1's daemons during a step of user nobody
traced()
{
    local out=$1 pid
    shift
    strace -f -qq -s 4096 -o "$out" -p "$(cat slurm/slurmd.node1.pid)" \
        -e trace=%file,clone,clone3,fork,vfork,setuid,setreuid,setresuid \
        2>strace.err &
    pid=$!
    until_true grep -q TracerPid:.*$pid \
        "/proc/$(cat slurm/slurmd.node1.pid)/status"
    # A user can configure hwloc by the environment; root must ignore that.
    HWLOC_XMLFILE=$work/evil.xml HWLOC_PLUGINS_PATH=$work/evil \
        HWLOC_COMPONENTS=-all timeout 240 setpriv --reuid nobody --clear-groups \
        srun -Q -n2 "$@" true
    local rc=$?
    until_true eval '[ -z "$(steps)" ]'
    kill $pid
    wait $pid
    return $rc
}

# root_paths FILE: each path that was used with effective user root. Numbers
# become 0, as jobs and processes differ.
root_paths()
{
    python3 -B - "$1" <<'END2' | sort -u
import re
import sys

euid = {}
waiting = {}
for line in open(sys.argv[1], errors="replace"):
    pid, call = line.rstrip("\n").split(None, 1)
    resumed = re.match(r"<\.\.\. \w+ resumed>(.*)", call)
    if resumed:
        call = waiting.pop(pid, "") + resumed.group(1)
    elif call.endswith("<unfinished ...>"):
        waiting[pid] = call[:-len("<unfinished ...>")]
        continue
    name = call.split("(", 1)[0]
    result = re.search(r"\) += (-?\d+)", call)
    if name in ("clone", "clone3", "fork", "vfork") and result:
        euid.setdefault(result.group(1), euid.get(pid, 0))
    elif name in ("setuid", "setreuid", "setresuid") and result:
        ids = re.findall(r"-?\d+", call.split("(", 1)[1])
        wanted = int(ids[0 if name == "setuid" else 1])
        if result.group(1) == "0" and wanted != -1:
            euid[pid] = wanted
    elif euid.get(pid, 0) == 0:
        for path in re.findall(r'"((?:[^"\\]|\\.)*)"', call)[:1]:
            print(re.sub(r"\d+", "0", path))
END2
}

# The FILES section of the manual, the plugin's libraries, and the plugin
listed()
{
    sed -n '/^\.SH FILES/,/^\.SH SEE/s/^\.I *//p' \
        "$top_srcdir/man/spank_plait.8" |
        sed "s:^/run/plait\(/\|\$\):$work/slurm/cache\1:
            s:^/etc/slurm/:$work/slurm/:"
    ldd "$plugin" | grep -o '/[^ ]*'
    echo "$plugin"
}

echo gone >evil.xml
check "a step without the plugin" eval '
    mv slurm/plugstack.conf plugstack; : >slurm/plugstack.conf
    traced without; rc=$?; mv plugstack slurm/plugstack.conf; [ $rc = 0 ]'
check "a step without flags" traced noflags
check "a step with flags" traced with --tp=2
check "... and again" traced again --tp=2
listed | sed 's/[0-9][0-9]*/0/g' | sort -u >listed
root_paths without >base
for run in noflags with again; do
    check "root's files are those of spank_plait(8): $run" is "" \
        "$(comm -13 base <(root_paths $run) | grep -vxFf listed)"
done
check "what the user asks of hwloc is not read" is "" \
    "$(cat noflags with again | grep 'open.*evil')"
check "the trace has what it looks for" grep -q plugstack base
done_testing
