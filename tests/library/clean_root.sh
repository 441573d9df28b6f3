#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The packages as users get them: .deb and .rpm are built and installed into a
# root that has nothing else, where quickstart's text is prepared and trained
# on; removing the plugin removes its line of Slurm's configuration. Takes
# minutes and a network, so `make check` does not include it: make
# check-packages, as root.
set -u
top_srcdir=$(readlink -f "${top_srcdir:-.}")
. "$top_srcdir/tests/lib/check.sh"
[ "$(id -u)" = 0 ] && command -v debootstrap >/dev/null &&
    command -v dpkg-buildpackage >/dev/null && command -v dh >/dev/null ||
    { echo "1..0 # SKIP needs root, debootstrap, debhelper"; exit 0; }
work=${PLAIT_PACKAGES_DIR:-$(mktemp -d)} || exit 1
root=$work/root
jobs=${JOBS:-$(nproc)}
cleanup() {
    mountpoint -q "$root/proc" && umount "$root/proc"
    [ -n "${PLAIT_PACKAGES_DIR:-}" ] || rm -rf "$work"
}
trap cleanup EXIT
quietly() { # LOG COMMAND...
    local log=$work/$1.log
    shift
    "$@" >"$log" 2>&1 && return
    tail -n 20 "$log" | sed 's/^/# /'
    return 1
}
# in_root COMMAND...: run it in the root, without this machine's environment
in_root() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive OMP_NUM_THREADS=1 \
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        chroot "$root" "$@"
}

mkdir -p "$work/source"
(cd "$top_srcdir" && { git ls-files -co --exclude-standard 2>/dev/null ||
    find . -type f; } | tar -cf - -T -) | tar -xf - -C "$work/source"
cd "$work/source" || exit 1
DEB_BUILD_OPTIONS="nocheck parallel=$jobs" quietly deb \
    dpkg-buildpackage -us -uc -b -d
check "the .debs are built" $?
if command -v lintian >/dev/null; then
    lintian --allow-root --no-tag-display-limit "$work"/*.changes \
        >"$work/lintian.log" 2>&1
    ! grep '^[EW]: ' "$work/lintian.log" | sed 's/^/# /' | grep .
    check "lintian has no errors and no warnings" $?
fi

[ -d "$root/usr" ] || quietly debootstrap debootstrap --variant=minbase \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root"
check "a clean root" $?
mkdir -p "$root/debs"
for name in plait plait-tools plait-train slurm-plait-plugin; do
    cp "$work/${name}_"*.deb "$root/debs/"
done
mountpoint -q "$root/proc" || mount -t proc proc "$root/proc"
quietly node in_root sh -c 'apt-get update &&
    apt-get install -y --no-install-recommends slurmd'
installed() { in_root dpkg-query -W -f '${Installed-Size}\n' |
    awk '{ s += $1 } END { print s }'; }
before=$(installed)
quietly plugin in_root sh -c 'apt-get install -y --no-install-recommends \
    /debs/plait-tools_*.deb /debs/slurm-plait-plugin_*.deb' &&
    ! in_root dpkg -l libopenmpi3 libopenblas0 libjansson4 2>/dev/null |
    grep '^ii'
check "a node that has slurmd gets the plugin and no trainer" $?
after=$(installed)
echo "# $((after - before)) KiB more"
[ $((after - before)) -le 3072 ]
check "... in 3 MB" $?
in_root dpkg -V plait-tools slurm-plait-plugin
check "... as it was packed" $?
quietly apt in_root sh -c 'apt-get install -y --no-install-recommends /debs/*.deb openmpi-bin \
        slurm-client'
check "apt installs them with what they need" $?

# trains WHERE: prepare, train with four ranks in two layouts, and report, with
# programs found by PATH
trains() {
    cp "$top_srcdir/README.md" "$root/root/text"
    cp "$top_srcdir/examples/quickstart.yaml" "$root/root/"
    quietly "train-$1" in_root sh -ec 'cd; rm -rf .quickstart
        plait prep text --out .quickstart/data
        for layout in "tp=2 pp=2" "tp=1 pp=1"; do
            set -- $layout
            rm -rf .quickstart/checkpoints
            mpirun --oversubscribe -n 4 plait train quickstart.yaml \
                --set "parallel.$1" --set "parallel.$2" --set train.steps=20
        done
        plait generate .quickstart/checkpoints --prompt Plait --tokens 20 \
            --tokenizer byte
        plait report .quickstart/metrics.jsonl --out run.html
        test -s run.html
        plait plan --tp=2 --pp=2 --nodes "n[1-2]" --tasks-per-node 2
        plait keys | grep -q train.steps'
}
trains deb
check "quickstart's training runs from the .debs" $?
printf '%s\n' 'ClusterName=c' 'SlurmctldHost=localhost' \
    'NodeName=localhost' 'PartitionName=p Nodes=ALL' 'AuthType=auth/none' \
    >"$root/etc/slurm/slurm.conf"
in_root srun --help 2>&1 | grep -q -- '--tp='
check "srun has the flags" $?
in_root plait doctor >"$work/doctor" 2>&1
grep -q '^ok  hwloc' "$work/doctor" && grep -q '^-- *cache ' "$work/doctor"
check "plait doctor is there with the plugin" $?
quietly remove in_root apt-get remove -y slurm-plait-plugin
in_root srun --help >"$work/help" 2>"$work/help.err"
[ ! -s "$work/help.err" ] && ! grep -q -- '--tp=' "$work/help" &&
    [ -z "$(ls "$root/etc/slurm/plugstack.conf.d")" ]
check "removed: srun says nothing and has no flags" $?
quietly again in_root sh -c 'apt-get install -y /debs/slurm-plait-plugin*' &&
    in_root srun --help | grep -q -- '--tp='
check "installed again: the flags are back" $?
quietly purge in_root apt-get purge -y slurm-plait-plugin plait \
    plait-tools plait-train
[ -z "$(find "$root/etc/slurm/plugstack.conf.d" -type f)" ] &&
    [ ! -e "$root/usr/bin/plait" ]
check "purged: nothing is left" $?

command -v rpmbuild >/dev/null || { echo "# no rpmbuild"; echo "1..$n"; exit; }
version=$(sed -n 's/^AC_INIT(\[plait\], *\[\([^]]*\)\].*/\1/p' configure.ac)
slurm=$(dpkg-query -W -f '${Version}' libslurm-dev | sed 's/-.*//')
tarball() {
    autoreconf -fi && mkdir -p "$work/dist" && cd "$work/dist" &&
        "$work/source/configure" --without-cuda && make dist-xz
}
quietly tarball sh -c "$(declare -f tarball); work=$work; cd $work/source &&
    { [ ! -f Makefile ] || make distclean; }; tarball"
RPM_BUILD_NCPUS=$jobs quietly rpm rpmbuild -tb --nodeps \
    -D "_topdir $work/rpm" -D "slurm_version $slurm" \
    "$work/dist/plait-$version.tar.xz"
check "the rpms are built" $?
# Debian's libraries satisfy the dependencies, but rpm's database lacks them.
quietly srpm rpmbuild -ts -D "_topdir $work/srpm" -D 'slurm_header /nowhere' \
    "$work/dist/plait-$version.tar.xz"
check "the source rpm is made without Slurm" $?
quietly rpm-install sh -c "rpm --root $root --dbpath /var/lib/rpm --nodeps \
    -i $work/rpm/RPMS/*/*.rpm"
check "rpm installs them" $?
in_root ldconfig
trains rpm
check "quickstart's training runs from the rpms" $?
rpm --root "$root" --dbpath /var/lib/rpm -V --nodeps slurm-plait-plugin \
    plait-tools plait-train
check "rpm -V finds them as they were packed" $?
[ -e "$root/etc/slurm/plugstack.conf.d/plait.conf" ] &&
    quietly rpm-remove rpm --root "$root" --dbpath /var/lib/rpm --nodeps \
        -e slurm-plait-plugin &&
    [ -z "$(ls "$root/etc/slurm/plugstack.conf.d")" ]
check "without the plugin's rpm Slurm has no line for it" $?
echo "1..$n"
