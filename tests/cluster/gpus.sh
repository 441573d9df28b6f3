#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Nodes with GPUs of a type, where a recorded machine replaces this one in the
# cache: policies, binding to cores and NICs near a GPU, AMD's variables; and a
# step that Slurm confines to its cores by a cgroup.
command -v python3 >/dev/null || { echo "1..0 # SKIP no python3"; exit 0; }
cpus=$(nproc)
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2 --gpus 4 --gpu-type a100 \
    --cpus 16 # task/affinity binds nothing where some are left over
cached
conf=slurm/plugstack.conf
machine=$top_srcdir/tests/fixtures/hwloc/one-of-everything.xml

. "$top_srcdir/tests/cluster/planted.sh"

# policy YAML: write the site file, for new jobs
policy()
{
    echo "$*" >site.yaml
    echo "required $plugin cache=$work/slurm/cache site=$work/site.yaml" >$conf
}

# each FLAGS... -- TEXT: what TEXT expands to in each task, ordered by rank
each()
{
    local flags=()
    while [ "$1" != -- ]; do
        flags+=("$1")
        shift
    done
    timeout 240 srun -Q -w node1 "${flags[@]}" bash -c "echo \$RANK $2" |
        sort -n | cut -d' ' -f2- | paste -sd' '
}

four=(-N1 -n4 --gpus-per-node=4)
# All of NVIDIA's: CUDA counts no other GPUs.
check "a recorded machine takes this one's place" plant 1002:740f 10de:2235
check "... each task has its GPU" is \
    "0000:05:00.0 0000:06:00.0 0000:81:00.0 0000:91:00.0" \
    "$(each "${four[@]}" --tp=4 -- '$PLAIT_GPU_BUSID')"
check "... and its NIC" is "mlx5_0 mlx5_0 eth2 eth2" \
    "$(each "${four[@]}" --tp=4 -- '$PLAIT_NICS')"

policy 'policies: [{gpu: a100, max: {tp: 2}}]'
check "a policy of a GPU type, where srun names the type" \
    refused 'a GPU of type a100 allows --tp=2' \
    srun -N1 -n4 --gpus-per-node=a100:4 --tp=4 true
check "... sbatch" refused 'a GPU of type a100 allows --tp=2' \
    sbatch -N1 -n4 --gres=gpu:a100:4 --tp=4 --wrap true
check "... or where only the node tells it" \
    refused 'a GPU of type a100 allows --tp=2' srun "${four[@]}" --tp=4 true
check "... that is kept" timeout 240 srun "${four[@]}" --tp=2 true
policy 'policies: [{gpu: h100, max: {tp: 2}}]'
check "... not that of another type" timeout 240 srun "${four[@]}" --tp=4 true

for whose in 'partition: "a*"' 'gpu: a100'; do
    policy "policies: [{$whose, tp_within: nvlink}]"
    check "tp within NVLink ($whose)" timeout 240 \
        srun -N1 -n2 --gpus-per-node=2 --tp=2 true
    check "... not over it" refused 'keeps tp within NVLink.* at most 2 of' \
        srun "${four[@]}" --tp=4 true
    check "... nor beside it" refused 'keeps tp within NVLink' \
        srun "${four[@]}" --tp=2 true
    check "... while other axes may leave it" \
        timeout 240 srun "${four[@]}" --pp=4 true
done
policy 'policies: [{partition: b, tp_within: nvlink}]'
check "... in another partition" timeout 240 srun "${four[@]}" --tp=4 true

policy 'export: {nccl_ib_hca: true, ucx_net_devices: true}'
check "NCCL and UCX are told their NIC" is "=mlx5_0,mlx5_0:1" "$(
    unset UCX_NET_DEVICES
    each -n1 --gpus-per-node=1 --tp=1 -- '$NCCL_IB_HCA,$UCX_NET_DEVICES')"
policy 'policies: []'

# The NUMA node that a task's stack is allocated on, according to the kernel.
stack='$(sed -n "s/^[^ ]* \(.*:\)*\([^ ]*\) stack.*/\2/p" /proc/self/numa_maps)'
if [ -r /proc/self/numa_maps ]; then
    # The recorded machine has a second NUMA node; this machine may not.
    second=$([ -d /sys/devices/system/node/node1 ] && echo 1 || echo default)
    check "memory comes from near the GPU" \
        is "0 0 $second $second" \
        "$(each "${four[@]}" --tp=4 -- "$stack")"
    check "... not with --pin=none" is "default default default default" \
        "$(each "${four[@]}" --tp=4 --pin=none -- "$stack")"
else
    skip "memory comes from near the GPU" "this kernel knows no NUMA"
fi

# The same machine with the device id of an AMD GPU.
check "a recorded machine with AMD's GPUs" plant 10de:20b2 1002:740f
check "... ROCR_VISIBLE_DEVICES is that of the whole step" \
    is "0,1,2,3 0,1,2,3 0,1,2,3 0,1,2,3" \
    "$(each "${four[@]}" --tp=4 -- '$ROCR_VISIBLE_DEVICES')"
check "... and no order of NVIDIA's is set" is "none" \
    "$(each -n1 --gpus-per-node=1 --tp=1 -- '${CUDA_DEVICE_ORDER:-none}')"

# Slurm confines steps to their cores by a cgroup.
groups=/sys/fs/cgroup/cpuset/slurm_node
rm slurm/cache/node.xml
confined()
{
    sed -i 's:^TaskPlugin=.*:TaskPlugin=task/cgroup,task/affinity:
        s:\(NodeName=.*\) CPUs=[0-9]*:\1 CPUs='"$cpus:" slurm/slurm.conf
    sed -i 's/ConstrainCores=no/ConstrainCores=yes/' slurm/cgroup.conf
    scontrol reconfigure
    cluster restart slurm node1 node2 && cached
}
if [ "$cpus" -lt 2 ] || ! rmdir "$(mktemp -d ${groups%/*}/plait.XXXXXX)"; then
    skip "steps in cgroups" "no two processors, or cgroups are not ours"
    done_testing
fi 2>/dev/null
check "steps in cgroups" confined
allowed='$(sed -n s/Cpus_allowed_list:.//p /proc/self/status)'
check "... have their ranks on cores of their own" is 2 \
    "$(each -N1 -n2 --tp=2 -- "$allowed" | tr ' ' '\n' | sort -u | wc -l)"
check "... one of which is all a smaller step has" is \
    "$(each -N1 -n1 --exact --tp=1 --pin=none -- "$allowed")" \
    "$(each -N1 -n1 --exact --tp=1 -- "$allowed")"
check "... and is told" is same "$(each -N1 -n1 --exact --tp=1 -- \
    "\$([ \"\$PLAIT_CPUS\" = \"$allowed\" ] && echo same)")"
check "... whatever it asks for" is \
    "$(each -N1 -n1 --exact --tp=1 --pin=none --cpu-bind=none -- "$allowed")" \
    "$(each -N1 -n1 --exact --tp=1 --cpu-bind=none -- "$allowed")"
rmdir ${groups}[12]/uid_*/job_*/step_* ${groups}[12]/uid_*/job_* \
    ${groups}[12]/uid_* ${groups}[12] 2>/dev/null
done_testing
