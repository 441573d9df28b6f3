#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ./configure finds CUDA, NCCL and cuDNN where NVIDIA's runfile and packages,
# distributions and PyPI's wheels put them, and compiles and links with them. In
# a mount namespace, this machine's files appear at those places.
src=$(readlink -f "$top_srcdir")
lib=/usr/lib/$(gcc -print-multiarch)

# -- the places of each way of packaging ---------------------------------------

# show FROM TO PATTERN...: link matching files of folder FROM into folder TO
show() {
    local pattern
    mkdir -p "$2"
    for pattern in "${@:3}"; do
        find "$1/" -mindepth 1 -maxdepth 1 -name "$pattern" \
            -exec ln -sft "$2" {} +
    done
}

# move FROM TO: bind-mount programs, which look for others beside themselves
move() {
    mkdir -p "$2"
    mount --bind "$1" "$2"
}

# toolkit PREFIX INCLUDE LIB: only CUDA and cuBLAS
toolkit() {
    move "$dir/real/bin" "$1/bin"
    move "$dir/real/nvvm" "$1/nvvm"
    show "$dir/real/include" "$2" '*'
    rm -f "$2"/nccl* "$2"/cudnn*
    show "$dir/real/lib64" "$3" 'libcu*' 'libnv*'
    rm -f "$3"/libcudnn*
}

# nccl INCLUDE LIB [PATTERN]
nccl() {
    show "$dir/real/include" "$1" 'nccl*'
    show "$dir/real/lib64" "$2" "${3:-libnccl*}"
}

cudnn() {
    show "$dir/real/include" "$1" 'cudnn*'
    show "$dir/real/lib64" "$2" "${3:-libcudnn*}"
}

# NVIDIA's runfile and its packages put CUDA at the same place.
runfile() {
    local prefix=/usr/local/cuda-99.0 target
    target=targets/$(ls "$dir/real/targets")
    toolkit $prefix $prefix/$target/include $prefix/$target/lib
    ln -s "$target/include" $prefix/include
    ln -s "$target/lib" $prefix/lib64
}

nvidia_for_ubuntu() {
    runfile
    nccl /usr/include "$lib"
    cudnn /usr/include "$lib"
}

# RHEL's compiler searches lib64; Debian's needs LIBRARY_PATH for that.
nvidia_for_rocky() {
    runfile
    nccl /usr/include /usr/lib64
    cudnn /usr/include /usr/lib64
    export LIBRARY_PATH=/usr/lib64
}

# The packages of Ubuntu and Debian.
ubuntu() {
    toolkit /usr/lib/nvidia-cuda-toolkit /usr/include "$lib"
    printf '#!/bin/sh\nexec /usr/lib/nvidia-cuda-toolkit/bin/nvcc "$@"\n' \
        >/usr/bin/nvcc
    chmod 755 /usr/bin/nvcc
    nccl /usr/include "$lib"
    cudnn /usr/include "$lib"
}

# PyPI's wheels, whose libraries have versioned names only.
wheels() {
    local n=/srv/site-packages/nvidia
    mount -t tmpfs none /srv
    toolkit $n/cu99 $n/cu99/include $n/cu99/lib
    rm -f $n/cu99/lib/*.so
    nccl $n/nccl/include $n/nccl/lib 'libnccl.so.2'
    cudnn $n/cudnn/include $n/cudnn/lib 'libcudnn*.so.9'
    export NVIDIA_WHEELS=/srv/site-packages
}

# -- in a mount namespace of its own ------------------------------------------

# build: compile one kernel, and link the module with CUDA and NCCL
build() {
    mkdir "$dir/build" && grep -v "^ac_cv_env_" "$dir/base/config.cache" \
        >"$dir/build/config.cache" &&
        cd "$dir/build" || return 1
    "$src/configure" -C --with-cuda --without-slurm --without-mpi \
        --with-nvcc-gencode=-gencode=arch=compute_80,code=sm_80 >"$dir/log" \
        2>&1 || { cat config.log; return 1; }
    make kernels/cuda/pool.lo >"$dir/make" 2>&1 || return 1
    ! grep -q '^ *NCCL *[0-9]' "$dir/log" || make plait_nccl.la >"$dir/make" 2>&1
}

# layout NAME CUDA [PART...]: configure must name CUDA's folder and these parts
layout() {
    local part
    rm -rf "$dir/upper" "$dir/work" "$dir/build"
    mkdir -p "$dir/upper" "$dir/work" "$dir/real"
    mount --bind "$real" "$dir/real" &&
        mount -t overlay none /usr -o \
            "lowerdir=/usr,upperdir=$dir/upper,workdir=$dir/work" &&
        mount -t tmpfs none /usr/local || exit 1
    "$1"
    build || { cat "$dir/log" "$dir/make"; exit 1; }
    grep -E "^ *CUDA *yes \($2," "$dir/log" || exit 1
    for part in NCCL cuDNN; do
        case " ${*:3} " in
        *" $part "*) grep -E "^ *$part *[0-9]" "$dir/log" || exit 1 ;;
        *) grep -E "^ *$part *no" "$dir/log" || exit 1 ;;
        esac
    done
    exit 0
}

[ "${1-}" != layout ] || "$@"

# ---------------------------------------------------------------------------

# nvcc itself says where its toolkit is: what is found in PATH may be a script.
nvcc=$(sed -n 's/^NVCC = //p' "$top_builddir/Makefile")
real=$("$nvcc" --dryrun -x cu -E /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
real=$(readlink -f "${real:-/nonexistent}")
for part in bin/nvcc nvvm include/cuda_runtime_api.h include/nccl.h \
    include/cudnn_graph.h lib64/libnccl.so.2 lib64/libcudnn.so.9; do
    [ -e "$real/$part" ] ||
        { echo "1..0 # SKIP no $part where nvcc is"; exit 0; }
done
dir=$(mktemp -d) || exit 99
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/work" "$dir/base"
unshare -m mount -t overlay none /mnt -o \
    "lowerdir=/mnt,upperdir=$dir/base,workdir=$dir/work" 2>/dev/null ||
    { echo "1..0 # SKIP no mounts are allowed here"; exit 0; }
. "$top_srcdir/tests/lib/ok.sh"
export dir real top_srcdir PATH=/usr/sbin:/usr/bin:/sbin:/bin
unset CUDA_HOME NVIDIA_WHEELS NVCC_CCBIN CFLAGS CPPFLAGS LDFLAGS LIBRARY_PATH

# Cache what is independent of CUDA.
(cd "$dir/base" && "$src/configure" -C --without-cuda --without-slurm \
    --without-mpi) >"$dir/log" 2>&1 || { sed 's/^/# /' "$dir/log"; exit 99; }

# found WHAT NAME CUDA [PART...]: check that layout NAME succeeds
found() {
    ok "$1" unshare -m --propagation private bash "$0" layout "${@:2}"
}

found "NVIDIA's runfile" runfile /usr/local/cuda-99.0
found "NVIDIA's packages for Ubuntu" nvidia_for_ubuntu /usr/local/cuda-99.0 \
    NCCL cuDNN
found "NVIDIA's packages for Rocky" nvidia_for_rocky /usr/local/cuda-99.0 \
    NCCL cuDNN
found "Ubuntu's own packages" ubuntu /usr NCCL cuDNN
found "PyPI's wheels" wheels /srv/site-packages/nvidia/cu99 NCCL cuDNN
echo "1..$n"
