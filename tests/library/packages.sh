#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The maintainer scripts of slurm-plait-plugin, run by dpkg in a root of their
# own: removal deletes Slurm's line, installation restores it, purge leaves
# nothing. Also what the spec file requires. (clean_root.sh builds and uses the
# whole packages.)
. "$top_srcdir/tests/lib/check.sh"
command -v dpkg-deb >/dev/null && command -v dpkg >/dev/null ||
    { echo "1..0 # SKIP needs dpkg"; exit 0; }
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
root=$tmp/root
conf=$root/etc/slurm/plugstack.conf.d/plait.conf

# build VERSION: make a package with debhelper's layout that has the plugin's
# line and a file in place of the plugin
build() {
    local p=$tmp/build-$1 script
    mkdir -p "$p/DEBIAN" "$p/etc/slurm/plugstack.conf.d" \
        "$p/usr/lib/slurm-wlm"
    cp "$top_srcdir/spank_plugin/plait.conf" "$p/etc/slurm/plugstack.conf.d/"
    echo "plugin $1" >"$p/usr/lib/slurm-wlm/spank_plait.so"
    echo /etc/slurm/plugstack.conf.d/plait.conf >"$p/DEBIAN/conffiles"
    printf '%s\n' 'Package: slurm-plait-plugin' "Version: $1" \
        'Architecture: all' 'Maintainer: nobody <nobody@localhost>' \
        'Description: test' >"$p/DEBIAN/control"
    for script in postinst prerm postrm; do
        cp "$top_srcdir/debian/slurm-plait-plugin.$script" \
            "$p/DEBIAN/$script"
        chmod 755 "$p/DEBIAN/$script"
    done
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
build 1 && build 2
check "two versions are packed" $?
# lines: count the plugin's lines that Slurm would read
lines() {
    cat "$root/etc/slurm/plugstack.conf.d/"*.conf 2>/dev/null |
        grep -c '^[^#]*spank_plait.so'
}

in_root -i "$tmp/1.deb" && [ "$(lines)" = 1 ]
check "installed: one line" $?
sed -i 's/spank_plait.so/& site=\/etc\/plait\/own.yaml/' "$conf"
in_root -i "$tmp/2.deb" && grep -q own.yaml "$conf" && [ "$(lines)" = 1 ]
check "upgraded: the administrator's line stays" $?
in_root -r slurm-plait-plugin && [ "$(lines)" = 0 ] &&
    [ ! -e "$root/usr/lib/slurm-wlm/spank_plait.so" ]
check "removed: no line that names a plugin which is gone" $?
in_root -i "$tmp/2.deb" && [ "$(lines)" = 1 ] && grep -q own.yaml "$conf" &&
    [ ! -e "$conf.removed" ]
check "installed again: the line as it was" $?
echo 'optional spank_plait.so' >>"$root/etc/slurm/plugstack.conf"
in_root -r slurm-plait-plugin &&
    grep -q 'plugstack.conf still has a line' "$tmp/out"
check "a line of the administrator's own is warned about" $?
in_root -P slurm-plait-plugin && [ "$(lines)" = 0 ] &&
    [ -z "$(find "$root/etc/slurm/plugstack.conf.d" -type f 2>/dev/null)" ] &&
    [ ! -e "$root/run/plait" ]
check "purged: nothing is left" $?
in_root -i "$tmp/1.deb" && [ "$(lines)" = 1 ] &&
    in_root -P slurm-plait-plugin && [ "$(lines)" = 0 ]
check "purged at once: no line" $?

if command -v rpmspec >/dev/null; then
    sed 's/@PACKAGE_VERSION@/1.2.3/' "$top_srcdir/plait.spec.in" \
        >"$tmp/plait.spec"
    rpmspec -q --requires -D 'slurm_version 22.05.8' "$tmp/plait.spec" \
        >"$tmp/requires" 2>"$tmp/err"
    sed 's/^/# /' "$tmp/err"
    grep -qx 'slurm >= 22.05' "$tmp/requires" &&
        grep -qx 'slurm < 22.05.99' "$tmp/requires" &&
        grep -qE '^plait.* = 1.2.3$' "$tmp/requires"
    check "the rpm wants Slurm's release, not its point release" $?
else
    echo "ok $((n = n + 1)) - # SKIP no rpmspec"
fi
echo "1..$n"
