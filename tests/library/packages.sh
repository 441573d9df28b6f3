#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The maintainer scripts of slurm-plait-plugin, run by dpkg in a root of their
# own: removal deletes Slurm's line, installation restores it, nothing is left
# in Slurm's folder, a line of the administrator's own is not doubled. What the
# spec file requires, and that it can be read on a machine without Slurm. What
# the packages' programs link. (clean_root.sh builds and uses the packages.)
. "$top_srcdir/tests/lib/check.sh"
command -v dpkg-deb >/dev/null && command -v dpkg >/dev/null ||
    { echo "1..0 # SKIP needs dpkg"; exit 0; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root
conf=$root/etc/slurm/plugstack.conf.d/plait.conf

# build VERSION: make a package with debhelper's layout that has the plugin's
# line and a file in place of the plugin. Version 0 is as packages were up to
# 0.1.0-1, where the line was a conffile.
build() {
    local p=$tmp/build-$1 script
    mkdir -p "$p/DEBIAN" "$p/usr/share/slurm-plait-plugin" \
        "$p/usr/lib/slurm-wlm"
    echo "plugin $1" >"$p/usr/lib/slurm-wlm/spank_plait.so"
    printf '%s\n' 'Package: slurm-plait-plugin' "Version: $1" \
        'Architecture: all' 'Maintainer: nobody <nobody@localhost>' \
        'Description: test' >"$p/DEBIAN/control"
    if [ "$1" = 0 ]; then
        mkdir -p "$p/etc/slurm/plugstack.conf.d"
        cp "$top_srcdir/spank_plugin/plait.conf" \
            "$p/etc/slurm/plugstack.conf.d/"
        echo /etc/slurm/plugstack.conf.d/plait.conf >"$p/DEBIAN/conffiles"
    else
        cp "$top_srcdir/spank_plugin/plait.conf" \
            "$top_srcdir/packaging/plugstack-line" \
            "$p/usr/share/slurm-plait-plugin/"
        for script in postinst prerm postrm; do
            cp "$top_srcdir/debian/slurm-plait-plugin.$script" \
                "$p/DEBIAN/$script"
            chmod 755 "$p/DEBIAN/$script"
        done
    fi
    chmod -R go-w "$p"
    dpkg-deb --root-owner-group -Znone -b "$p" "$tmp/$1.deb" >/dev/null
}
in_root() {
    dpkg --root="$root" --log=/dev/null --force-script-chrootless \
        --force-not-root --force-bad-path --force-confold "$@" \
        >"$tmp/out" 2>&1
    local rc=$?
    [ $rc = 0 ] || sed 's/^/# /' "$tmp/out"
    return $rc
}
mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates" \
    "$root/var/lib/dpkg/triggers" "$root/etc/slurm" "$root/run/plait"
: >"$root/var/lib/dpkg/status"
echo 'include /etc/slurm/plugstack.conf.d/*.conf' \
    >"$root/etc/slurm/plugstack.conf"
build 0 && build 1 && build 2
check "three versions are packed" $?
folder=$root/etc/slurm/plugstack.conf.d
kept=$root/etc/plait/plait.conf.removed
# lines: count the plugin's lines that Slurm would read, were all files included
lines() {
    cat "$folder/"* "$root/etc/slurm/plugstack.conf" 2>/dev/null |
        grep -c '^[^#]*spank_plait.so'
}
own() { grep -qs 'spank_plait.so site=/etc/plait/own.yaml' "$conf"; }

in_root -i "$tmp/1.deb" && [ "$(lines)" = 1 ] &&
    cmp -s "$conf" "$top_srcdir/spank_plugin/plait.conf"
check "installed: one line" $?
sed -i 's/spank_plait.so/& site=\/etc\/plait\/own.yaml/' "$conf"
in_root -i "$tmp/2.deb" && own && [ "$(lines)" = 1 ]
check "upgraded: the administrator's line stays" $?
in_root -r slurm-plait-plugin && [ -z "$(ls "$folder")" ] &&
    [ ! -e "$root/usr/lib/slurm-wlm/spank_plait.so" ]
check "removed: no file is left in the folder that Slurm reads" $?
in_root -i "$tmp/2.deb" && [ "$(lines)" = 1 ] && own && [ ! -e "$kept" ]
check "installed again: the line as it was" $?
echo 'optional spank_plait.so' >>"$root/etc/slurm/plugstack.conf"
in_root -i "$tmp/2.deb" && grep -q 'loads it twice' "$tmp/out"
check "a second line of the administrator's own is warned about" $?
in_root -r slurm-plait-plugin &&
    grep -q '/etc/slurm/plugstack.conf still has a line' "$tmp/out"
check "removed: that line is warned about" $?
in_root -i "$tmp/2.deb" && [ "$(lines)" = 1 ] && [ ! -e "$conf" ] &&
    grep -q 'plait.conf was not made' "$tmp/out"
check "installed beside such a line: no second one" $?
in_root -P slurm-plait-plugin &&
    [ -z "$(find "$folder" "$root/etc/plait" -type f 2>/dev/null)" ] &&
    [ ! -e "$root/run/plait" ]
check "purged: nothing is left" $?
echo 'include /etc/slurm/plugstack.conf.d/*.conf' \
    >"$root/etc/slurm/plugstack.conf"
in_root -i "$tmp/1.deb" && [ "$(lines)" = 1 ] &&
    in_root -P slurm-plait-plugin && [ "$(lines)" = 0 ]
check "purged at once: no line" $?
in_root -i "$tmp/1.deb" && rm "$conf" && in_root -i "$tmp/2.deb" &&
    [ ! -e "$conf" ] && grep -q 'no line loads' "$tmp/out"
check "upgraded: a line that the administrator has deleted stays away" $?
in_root -P slurm-plait-plugin

in_root -i "$tmp/0.deb" && sed -i 's/spank_plait.so/& tp=2/' "$conf" &&
    in_root -i "$tmp/1.deb" && [ "$(lines)" = 1 ] && grep -q tp=2 "$conf" &&
    [ "$(ls "$folder")" = plait.conf ]
check "upgraded from a package that had the line as a conffile: it stays" $?
in_root -i "$tmp/0.deb" && [ "$(cat "$conf" | grep -c tp=2)" = 1 ]
check "rolled back to it: it stays" $?
in_root -i "$tmp/1.deb" && in_root -r slurm-plait-plugin &&
    [ -z "$(ls "$folder")" ] && mv "$kept" "$conf.removed" &&
    in_root -i "$tmp/1.deb" && grep -q tp=2 "$conf" &&
    [ "$(ls "$folder")" = plait.conf ]
check "what an old package put aside in the folder becomes the line again" $?
echo 'optional spank_plait.so' | tee "$conf.dpkg-dist" >"$conf.rpmnew"
in_root -i "$tmp/1.deb" && [ "$(ls "$folder")" = plait.conf ]
check "what dpkg and rpm put beside the line leaves the folder" $?
in_root -P slurm-plait-plugin && [ -z "$(ls -A "$root/etc/plait" 2>/dev/null)" ]
check "... and goes with a purge" $?
: >"$root/etc/slurm/plugstack.conf"
in_root -i "$tmp/1.deb" && grep -q "add the line 'include" "$tmp/out"
check "a plugstack.conf that does not include the folder is warned about" $?
in_root -P slurm-plait-plugin
rm -rf "$root/etc/slurm" && : >"$root/etc/slurm"
in_root -i "$tmp/1.deb" && grep -q 'could not be made' "$tmp/out"
check "where the line cannot be written the package installs all the same" $?

if command -v rpmspec >/dev/null; then
    sed 's/@PACKAGE_VERSION@/1.2.3/' "$top_srcdir/plait.spec.in" \
        >"$tmp/plait.spec"
    rpmspec -q --requires -D 'slurm_version 22.05.8' "$tmp/plait.spec" \
        >"$tmp/requires" 2>"$tmp/err"
    sed 's/^/# /' "$tmp/err"
    grep -qx 'slurm >= 22.05' "$tmp/requires" &&
        grep -qx 'slurm < 22.05.99' "$tmp/requires" &&
        grep -qE '^plait-tools.* = 1.2.3-' "$tmp/requires"
    check "the rpm wants Slurm's release, not its point release" $?
    bare=(-D 'slurm_header /nowhere')
    rpm -q slurm-devel >/dev/null 2>&1 && bare+=(-D 'slurm_version %{nil}')
    rpmspec -q --buildrequires "${bare[@]}" "$tmp/plait.spec" 2>"$tmp/err" |
        grep -qx slurm-devel && [ ! -s "$tmp/err" ] &&
        rpmspec -q --requires "${bare[@]}" "$tmp/plait.spec" | grep -qx slurm
    check "the spec file can be read on a machine without Slurm" $?
    rpmspec -q --qf '%{name} %{arch}\n' "${bare[@]}" "$tmp/plait.spec" |
        grep -qx 'python3-plait noarch'
    check "the package plait for Python is one for all machines" $?
    echo '#define SLURM_VERSION_NUMBER 0x160508' >"$tmp/slurm_version.h"
    rpm -q slurm-devel >/dev/null 2>&1 ||
        rpmspec -q -D "slurm_header $tmp/slurm_version.h" "$tmp/plait.spec" |
        grep -q '^slurm-plait-plugin-.*\.slurm22\.05\.8'
    check "Slurm's header says the release where Slurm is no rpm" $?
else
    echo "ok $((n = n + 1)) - # SKIP no rpmspec"
fi

# needs FILE: the libraries that it links, but those of the C library
needs() {
    readelf -d "$1" | sed -n 's/.*(NEEDED).*\[lib\(.*\)\.so\..*/\1/p' |
        grep -vxE 'c|m|dl|pthread|gcc_s' | sort | tr '\n' ' '
}
if [ -n "$(sed -n 's/^SANITIZER_CFLAGS = //p' "$top_builddir/Makefile")" ] ||
    ! command -v readelf >/dev/null; then
    echo "ok $((n = n + 1)) - # SKIP sanitizers link more, or no readelf"
else
    for file in .libs/libplait.so .libs/spank_plait.so; do
        [ -e "$top_builddir/$file" ] || continue
        found=$(needs "$top_builddir/$file")
        [ "$found" = 'expat hwloc yaml-0 ' ] || echo "# $file: $found"
        [ "$found" = 'expat hwloc yaml-0 ' ]
        check "$file needs hwloc, YAML and expat alone" $?
    done
fi
echo "1..$n"
