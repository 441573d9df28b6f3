#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-train as a user runs it: traces, a loss that is not finite, metrics that
# cannot be written, how sums cross nodes.
set -u
. "$top_srcdir/tests/lib/train.sh"

run 4 --set parallel.pp=2 --set train.steps=2 --set log.profile="$dir/profile" \
    --set checkpoint.dir="$dir/profiled"
ok "log.profile writes a trace per rank" python3 -c '
import json, sys
for rank in range(4):
    events = json.load(open(f"{sys.argv[1]}/rank-{rank:05d}.json"))
    names = [e["name"] for e in events]
    lanes = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert lanes >= {"compute", "world", "dp-cp", "pp", "data", "optimizer",
                     "checkpoint", "run"}, lanes
    assert all(e["pid"] == rank + 1 and e.get("tid", 1) > 0 for e in events)
    for name in ("forward 0.0", "backward 0.3", "all-reduce", "send",
                 "optimizer", "data"):
        assert name in names, (rank, name)
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                   if e["ph"] == "X" and e["name"].startswith("forward"))
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:]))
' "$dir/profile"
ln -sf /dev/full "$dir/profile/rank-00001.json"
run 2 --set parallel.dp=2 --set train.steps=1 --set log.profile="$dir/profile"
ok "a trace that cannot be written fails the run" test $status = 1
ok "and is named once" test "$(grep -c \
    "log.profile: $dir/profile/rank-00001.json: No space left" "$dir/out")" = 1
ok "older ranks' traces do not stay beside it" test \
    "$(cd "$dir/profile" && echo *)" = "rank-00000.json rank-00001.json"

# why_stopped: the line that says it, without the rank: each has its own first
why_stopped() {
    grep '^plait-train: .*the run stops' "$dir/out" | sed 's/, on rank.*//'
}
diverge=(2 --set optim.lr=1e6 --set optim.clip=0 --set lr.warmup=0
    --set parallel.dp=2)
run "${diverge[@]}"
ok "a loss that is no number ends the run" test $status = 1
why=$(why_stopped)
ok "with one clear line" test "$(echo "$why" | wc -l)" = 1
ok "which names the first number" grep -q 'the first one is' <<<"$why"
run "${diverge[@]}" --set data.val="$dir/tokens.bin" --set train.eval_every=1
ok "the same if the step has an evaluation" test "$(why_stopped)" = "$why"

run 2 --set parallel.dp=2 --metrics "$dir/nowhere/m"
ok "metrics that cannot be written: one line" test $status = 1 -a \
    "$(grep -c '^plait-train: ' "$dir/out")" = 1

run 2 --set parallel.dp=2 --metrics /dev/full --set checkpoint.dir="$dir/full"
ok "a full disk for the metrics: one line" test $status = 1 -a "$(grep -c \
    '^plait-train: log.metrics: /dev/full: No space left' "$dir/out")" = 1
ok "and what was trained is saved" test -e \
    "$(echo "$dir"/full/step-*/manifest.json)"

# all_reduce auto depends on the site's figures: a sum is hierarchical if
# messages between nodes have a high latency, and flat if those inside nodes
# have.
nodes=$top_srcdir/tests/lib/nodes.sh
echo 'gpu_types: {cpu: {nic_us: 10000, link_us: 1}}' >"$dir/far.yaml"
echo 'gpu_types: {cpu: {nic_us: 1, link_us: 10000}}' >"$dir/near.yaml"
echo 'network: {sharp: 3}' >"$dir/wrong.yaml"
on_nodes() {
    PLAIT_SITE=$dir/$1.yaml timeout 240 sh "$mpirun" 4 sh "$nodes" 2 1 1 4 1 1 \
        "$train" "$dir/c.yaml" --set train.steps=2 --metrics "$dir/m" \
        >"$dir/out" 2>&1 </dev/null
}
ok "a site whose network is slow to start" on_nodes far
ok "sums in steps" grep -q '"dp-cp-across":' "$dir/m"
ok "in large buckets" grep -q ' 2 nodes in buckets of 256 MiB$' "$dir/out"
ok "a site whose nodes are" on_nodes near
ok "sums at once" grep -q '"dp-cp":' "$dir/m"
ok "in small buckets" grep -q ' 2 nodes in buckets of 25 MiB$' "$dir/out"
# Nodes that NVLink joins need no network between them. on_domains NODES EACH:
# so many nodes of a rank or two, EACH of them in a domain.
on_domains() {
    PLAIT_SITE=$dir/far.yaml timeout 240 sh "$mpirun" 4 sh "$nodes" $1 1 1 4 1 1 \
        sh -c 'PLAIT_NVLINK_DOMAIN=$((PLAIT_NODE_RANK / $0 + 1)) exec "$@"' $2 \
        "$train" "$dir/c.yaml" --set train.steps=2 --metrics "$dir/m" \
        >"$dir/out" 2>&1 </dev/null
}
ok "two nodes of one NVLink domain" on_domains 2 2
ok "sums at once" eval 'grep -q "\"dp-cp\":" "$dir/m" &&
    ! grep -q dp-cp-across "$dir/m" && ! grep -q "in buckets of" "$dir/out"'
ok "four nodes of two domains" on_domains 4 2
ok "sums in steps, inside the domains and across" eval \
    'grep -q "\"dp-cp-across\":" "$dir/m" &&
    grep -q " 2 NVLink domains in buckets of 256 MiB$" "$dir/out"'
on_nodes wrong
ok "a site file that is wrong is refused by one line" \
    test 1 = "$(grep -c 'wrong.yaml:1: .*sharp' "$dir/out")"
# With this, UCX's part of Open MPI tells all that it does.
echo 'opal_common_ucx_verbose = 10' >"$dir/mca"
timeout 240 sh "$mpirun" 2 env -u OMPI_MCA_btl OMPI_MCA_pml=ucx \
    OMPI_MCA_pml_ucx_tls=any OMPI_MCA_pml_ucx_devices=any UCX_TLS=tcp,self \
    UCX_NET_DEVICES=lo OMPI_MCA_mca_base_param_files="$dir/mca" \
    "$train" "$dir/nowhere.yaml" --device cpu --comm mpi >"$dir/out" 2>&1
if grep -q 'mca_pml_ucx_init' "$dir/out"; then
    ok "connections that end are no errors of UCX" \
        test 0 = "$(grep -c disconnect "$dir/out")"
else
    ok "connections that end are no errors of UCX # SKIP no UCX" true
fi
echo "1..$n"
