#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A job with a /tmp and a /dev/shm of its own (job_container/tmpfs): a planned
# step has its ranks, its tasks share the private folders, processes meet
# through them, what they leave ends with the job, and refusals are one line.
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP private folders need root"; exit 0; }
set -- /usr/lib*/slurm*/job_container_tmpfs.so \
    /usr/lib/*/slurm*/job_container_tmpfs.so
[ -z "${SLURM_PREFIX:-}" ] && ls "$@" 2>/dev/null | grep -q . ||
    { echo "1..0 # SKIP no job_container/tmpfs in this Slurm"; exit 0; }
# What tasks and daemons share must not be in /tmp.
export TMPDIR=/var/tmp
# Slurm keeps a job's mount namespace by mounting it, which Linux refuses where
# the number of that namespace is below the number of Slurm's own: it would take
# that for a loop. Some kernels (6.18) give each processor numbers of its own, so
# the test takes a namespace from the processor that has the lowest.
keeps='mount --bind "$0" "$0" && mount --make-private "$0" && : >"$0/ns" || exit
    for cpu; do
        taskset -c "$cpu" unshare --mount="$0/ns" true && umount "$0/ns" || exit
    done'
in_namespace_of() { taskset -c "$1" unshare -m taskset -c "$all" "${@:2}"; }
if [ -z "${PLAIT_PRIVATE:-}" ]; then
    PLAIT_PRIVATE=$(mktemp -d /var/tmp/plait-private-XXXXXX) || exit 99
    export PLAIT_PRIVATE
    all=$(taskset -pc $$ | sed 's/.*: //')
    cpus=$(seq 0 $(($(nproc) - 1)))
    for cpu in $cpus; do
        if in_namespace_of "$cpu" bash -c "$keeps" "$PLAIT_PRIVATE" $cpus \
            2>/dev/null; then
            in_namespace_of "$cpu" bash "$0"
            exit
        fi
    done
    rm -rf "$PLAIT_PRIVATE"
    echo "1..0 # SKIP no mount namespace can be kept here"
    exit 0
fi
private=$PLAIT_PRIVATE
for i in 1 2; do
    echo "NodeName=node$i AutoBasePath=true BasePath=$private/node$i"
done >"$private/job_container.conf"
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2 --gpus 0 \
    --conf JobContainerType=job_container/tmpfs --conf PrologFlags=Contain \
    --file "$private/job_container.conf"
trap 'clean_up; rm -rf --one-file-system "$private"' EXIT
cached

cp "$plait" plait
mark=/tmp/plait-private.$$
check "a planned step" is "0 0 1 1 2 0 3 1" "$(by_rank -N2 \
    --ntasks-per-node=2 --tp=2 bash -c 'echo $RANK $PLAIT_TP_RANK' | xargs)"
check "its tasks share a /tmp that is the job's" is "2 2 2 2" "$(by_rank -N2 \
    --ntasks-per-node=2 --tp=2 bash -c 'touch '"$mark"'.$LOCAL_RANK
        for i in $(seq 600); do
            [ ! -e '"$mark"'.$((1 - LOCAL_RANK)) ] || break
            sleep 0.1
        done
        ls '"$mark"'.? | wc -l' | xargs)"
check "... which ends with it" is "" "$(ls $mark.? 2>/dev/null)"
check "a /dev/shm too" is "0 0" "$(by_rank -N2 --ntasks-per-node=1 --tp=1 \
    bash -c 'touch /dev/shm/plait-private.$$; ls /dev/shm |
        grep -vc "^plait-private\.$$\$" || :' | xargs)"
check "... of which nothing stays" is "" "$(ls /dev/shm | grep plait-private)"
# This machine may be busy, which a preflight says too.
check "a preflight measures its links" eval 'timeout 240 srun -N2 \
    --ntasks-per-node=1 --tp=1 --node-preflight \
    --node-preflight-report="$work/report" true >out 2>&1 ||
    { grep -q "other processes want" out; } || { cat out; false; }'
check "... and the user finds its report" is 2 \
    "$(grep -c '"sends_mbs": [0-9].*"faults": ""' report)"
check "a refusal is one line" refused 'not divisible by --tp=4' \
    srun -N2 --ntasks-per-node=2 --tp=4 true
check "plait run finds its plan" is "0 1 2 3" "$(timeout 240 salloc -Q -N2 \
    --ntasks-per-node=2 srun "$work/plait" run --tp=2 -- sh -c 'echo $RANK' |
    sort | xargs)"
check "the nodes are not drained" is idle "$(until_true \
    eval '[ -z "$(squeue -h)" ]'; sinfo -h -o %T | sort -u)"
done_testing
