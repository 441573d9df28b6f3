#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Containers: if listed after pyxis (PYXIS: its file; it runs enroot), the
# plugin gives tasks inside the image the same variables as others, even if the
# image sets MASTER_ADDR itself.
pyxis=${PYXIS:-/usr/local/lib/slurm/spank_pyxis.so}
for p in enroot mksquashfs; do
    command -v $p >/dev/null || { echo "1..0 # SKIP no $p"; exit 0; }
done
[ -f "$pyxis" ] || { echo "1..0 # SKIP no pyxis in PYXIS=$pyxis"; exit 0; }
. "$top_srcdir/tests/cluster/tap.sh" --nodes 2

# An image with little more than a shell, which claims to be PyTorch's.
make_image()
{
    local p lib
    mkdir -p image/{bin,usr/bin,etc,tmp,proc,sys,dev,run,var,root,mnt} runtime
    cp /etc/os-release image/etc
    echo root:x:0:0:root:/root:/bin/bash >image/etc/passwd
    echo root:x:0: >image/etc/group
    printf '%s\n' PYTORCH_VERSION=2.0 MASTER_ADDR=image >image/etc/environment
    for p in bash env cat sed; do
        cp "$(command -v $p)" image/usr/bin/$p
        ln -s ../usr/bin/$p image/bin/$p
        for lib in $(ldd "$(command -v $p)" | grep -o '/[^ ]*'); do
            mkdir -p "image/${lib%/*}"
            cp -L "$lib" "image$lib"
        done
    done
    ln -s bash image/bin/sh
    mksquashfs image image.sqsh -noappend -no-progress
}

# listed FILE...: load the plugins in this order
listed()
{
    printf 'required %s\n' "$@" >slurm/plugstack.conf
    cluster restart slurm node1 node2
}
runtime="$pyxis runtime_path=$work/runtime"
ours="$plugin cache=$work/slurm/cache"

in_image()
{
    timeout 240 srun -Q -w node1 -n2 --gpus-per-node=2 --tp=2 \
        --container-image="$work/image.sqsh" bash -c "$1" 2>/dev/null | sort
}

check "an image" make_image
check "pyxis and the plugin in one plugstack.conf" listed "$runtime" "$ours"
check "a job without flags of either" is "none none" "$(timeout 240 srun -Q \
    -w node1 -n2 bash -c 'echo ${RANK-none}' 2>&1 | xargs)"
check "one with ours" is "0 1" "$(timeout 240 srun -Q -w node1 -n2 --tp=2 \
    bash -c 'echo $RANK' 2>&1 | sort | xargs)"
check "one in a container" is "0 0 2 127.0.0.1 0,1 2.0
1 1 2 127.0.0.1 0,1 2.0" "$(in_image \
    'echo $RANK $PLAIT_RANK $WORLD_SIZE $MASTER_ADDR $CUDA_VISIBLE_DEVICES \
    $PYTORCH_VERSION')"
check "... bound as it is told" is "same same" "$(in_image '
    allowed=$(sed -n "s/Cpus_allowed_list:.//p" /proc/self/status)
    [ "$PLAIT_CPUS" = "$allowed" ] && echo same' | xargs)"
check "... whose directory is the image" is "2.0 2.0" \
    "$(in_image 'sed -n s/PYTORCH.*=//p /etc/environment' | xargs)"
check "a bad flag of ours is refused beside a container" like "$(timeout 240 \
    srun -n2 --tp=3 --container-image=x true 2>&1)" 'plait: .* are not divisible'
done_testing
