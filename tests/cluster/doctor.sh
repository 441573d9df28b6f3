#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait doctor on installations that are broken on purpose: what it finds, and
# that it does not die of it.
ulimit -c 0 # a plugin that is cut short kills who loads it
so=$top_builddir/.libs/spank_plait.so
. "$top_srcdir/tests/cluster/tap.sh" --conf MpiParams=ports=9400-9499 \
    --conf SlurmctldParameters=enable_configless
conf=slurm/plugstack.conf
mkdir plugins plugins/bad
good=$work/plugins/spank_plait.so
bad=$work/plugins/bad/spank_plait.so
cp "$so" "$good"
as_user=(setpriv --reuid=65534 --regid=65534 --clear-groups)

# lines TEXT...: plugstack.conf has these lines
lines()
{
    printf '%s\n' "$@" >$conf.new && mv $conf.new $conf
}

# finds PATTERN COMMAND...: whether COMMAND, a doctor, exits with 1 and prints
# PATTERN
finds()
{
    local pattern=$1 out rc
    shift
    out=$(timeout 240 "$@" 2>&1)
    rc=$?
    [ $rc = 1 ] || { echo "exit status $rc: $out"; return 1; }
    like "$out" "$pattern"
}

# passes PATTERN COMMAND...: the same with 0, and with "Nothing is wrong"
passes()
{
    local pattern=$1 out
    shift
    out=$(timeout 240 "$@" 2>&1) || { echo "$out"; return 1; }
    like "$out" "$pattern" && like "$out" "Nothing is wrong"
}

# COMMANDS run by this have mounts of their own, for those that break something.
cat >inside <<END
#!/bin/sh
exec unshare -m bash -c "\$1" - "$plait" "$good" "$bad"
END
chmod 755 inside

lines "optional $good"
check "nothing is broken" passes "ok  plugin .*$good is for Slurm" "$plait" \
    doctor
check "... for a user too" passes "ok  plugin .*$good is for Slurm" \
    "${as_user[@]}" "$plait" doctor

# After a removal: of the line and the file, of the file alone. A line is advised
# where the file is.
dir=$(scontrol show config | sed -n 's/^PluginDir *= //p')
cp -r "$dir" with
cp "$good" with/
lines '# none'
check "no line and no plugin" finds "!!  plugstack .*names spank_plait.so, and the plugin is not in $dir, .*install the package slurm-plait-plugin" "$plait" doctor
check "no line, and the plugin is there" finds \
    "!!  plugstack .*names spank_plait.so; add 'optional spank_plait.so'" \
    ./inside "mount --bind '$work/with' '$dir' && \"\$1\" doctor"
rm $conf
check "no plugstack.conf and no plugin" finds "!!  plugstack .*No such file.*, and the plugin is not in $dir," "$plait" doctor
lines "optional spank_plait.so"
check "a line and no plugin" finds "!!  plugin .*spank_plait.so does not exist, in $dir; install .*, or remove the line .*plugstack.conf:1" "$plait" doctor

lines "required $bad"
check "required, and gone" finds "!!  plugin .*$bad does not exist; .*or remove the line .*plugstack.conf:1.; .*every job fails here
!!  srun .*Plug-in initialization failed .until the plugin is put right, a '#' before its line" "$plait" doctor
head -c 30000 "$good" >"$bad"
check "required, and cut short" finds "!!  plugin .*cut short: it has 30000 bytes.*every job fails here" "$plait" doctor
check "... and where srun is killed, it says so and what was not checked" \
    finds '!!  srun .*killed by signal 7.*
\?\?  flags +not checked: ' "$plait" doctor
lines "optional $bad"
for size in 0 40 100 1000 300000 $(($(stat -c %s "$good") - 1)); do
    head -c "$size" "$good" >"$bad"
    check "optional, and cut to $size bytes" finds \
        "!!  plugin .*cannot be loaded: it is (empty|not a shared|cut short)" \
        "$plait" doctor
done
tr a b <"$good" >"$bad"
check "damaged inside" finds '!!  plugin ' "$plait" doctor
echo text >"$bad"
check "no shared object" finds '!!  plugin .*not a shared object' "$plait" doctor
python3 -c 'import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[18:20] = (243).to_bytes(2, "little")
open(sys.argv[2], "wb").write(b)' "$good" "$bad"
check "for another processor" finds '!!  plugin .*it is for RISC-V, and this' \
    "$plait" doctor
for library in libyaml-0.so libhwloc.so; do
    sed "s/$library\.[0-9]/$library.X/" "$good" >"$bad"
    check "without $library" finds \
        "!!  plugin .*needs $library.X.*, which this machine lacks" \
        "$plait" doctor
done
cp "$good" "$bad"
chmod 600 "$bad"
check "mode 600, as root" finds \
    '!!  plugin .*cannot be read by users: Permission denied, mode 600' \
    "$plait" doctor
check "mode 600, as a user" finds \
    '!!  plugin .*cannot be read by users: Permission denied, mode 600' \
    "${as_user[@]}" "$plait" doctor
chmod 777 "$bad"
check "mode 777" finds '!!  plugin .*can be written by everybody' "$plait" doctor
chmod 755 "$bad"
chmod 700 plugins/bad
check "in a folder of mode 700, as a user" finds \
    '!!  plugin .*cannot be reached: Permission denied' \
    "${as_user[@]}" "$plait" doctor
chmod 755 plugins/bad
check "on a file system without exec" finds '!!  plugin .*mounted noexec' ./inside '
    mount -t tmpfs -o noexec none plugins/bad && cp "$2" "$3" && "$1" doctor'

mkdir slurm/plugstack.conf.d
echo "optional $good" >slurm/plugstack.conf.d/plait.conf
lines '# ours' "optional $good" 'include plugstack.conf.d/*.conf'
check "a line twice" finds "!!  twice .*plugstack.conf:2 and .*plugstack.conf.d/plait.conf:1 both name $good" "$plait" doctor
lines "optional $bad" 'include plugstack.conf.d/*.conf'
check "two copies" finds "!!  twice .*:1 and .*plait.conf:1 name two copies" \
    "$plait" doctor
lines 'include plugstack.conf.d/*.conf'
check "one, in an include" passes \
    "ok  plugstack .*plugstack.conf.d/plait.conf:1 lists" "$plait" doctor
lines "requird $good"
check "a word that Slurm does not know" finds \
    "!!  plugstack .*plugstack.conf:1 begins with 'requird'" "$plait" doctor
lines "optional $good"
chmod 600 $conf
check "plugstack.conf of mode 600, as root" finds \
    '!!  plugstack .*cannot be read by users: Permission denied' "$plait" doctor
chmod 644 $conf

lines "optional $good cache=$work/no/such/c"
check "a cache that cannot be made" finds \
    '!!  cache .*no/such/c cannot be made: .*/no/such: No such file' \
    "$plait" doctor
touch file
lines "optional $good cache=$work/file/c"
check "... for there is a file" finds '!!  cache .*/file is not a folder' \
    "$plait" doctor
mkdir run
lines "optional $good cache=$work/run/c"
check "a full /run" finds '!!  cache .*/run is full .0 KiB' ./inside '
    mount -t tmpfs -o size=64k none run && head -c 1M /dev/zero >run/x
    "$1" doctor'
check "one that is read-only" finds '!!  cache .*mounted read-only' ./inside '
    mount -t tmpfs -o ro none run && "$1" doctor'
check "one that is not there yet" passes '--  cache .*slurmd makes it' \
    "$plait" doctor

lines "optional $good site=$work/site.yaml"
printf 'policies:\n  - {partition: a, mix: {tp: 2}}\n' >site.yaml
check "a site file with an error" finds \
    "!!  site .*site.yaml:2: .*mix" "$plait" doctor
echo '{}' >site.yaml
chmod 600 site.yaml
check "a site file of mode 600, as root" finds \
    '!!  site .*users cannot read it.*Permission denied; chmod 644' "$plait" doctor
check "... as a user" finds '!!  site .*users cannot read it' \
    "${as_user[@]}" "$plait" doctor
chmod 644 site.yaml
check "... and mended" passes 'ok  site ' "$plait" doctor
lines "optional $good"

# SELinux by its files: as the checks would find them where it is on
if ./inside 'mount -t tmpfs none /sys/fs 2>/dev/null &&
    python3 -c "import os; os.setxattr(\"$2\", \"security.selinux\",
        b\"system_u:object_r:user_home_t:s0\0\")"' 2>/dev/null
then
    python3 -c "import os, sys
os.removexattr(sys.argv[1], 'security.selinux')" "$good"
    check "no label" passes '\?\?  label +not checked: ' ./inside '
        mount -t tmpfs none /sys/fs && mkdir /sys/fs/selinux &&
            echo 1 >/sys/fs/selinux/enforce && "$1" doctor'
    check "... is an exit status of its own with --strict" is 3 "$(./inside '
        mount -t tmpfs none /sys/fs && mkdir /sys/fs/selinux &&
            echo 1 >/sys/fs/selinux/enforce
        "$1" doctor --strict >/dev/null 2>&1; echo $?')"
    python3 -c 'import os, sys
os.setxattr(sys.argv[1], "security.selinux",
            b"system_u:object_r:user_home_t:s0\0")' "$good"
    check "another label than libraries have" finds \
        "!!  label .*label user_home_t, and lib_t is what" ./inside '
        mount -t tmpfs none /sys/fs && mkdir /sys/fs/selinux &&
            echo 1 >/sys/fs/selinux/enforce && "$1" doctor'
    python3 -c 'import os, sys
os.setxattr(sys.argv[1], "security.selinux",
            b"system_u:object_r:lib_t:s0\0")' "$good"
    check "their label" passes "ok  label " ./inside '
        mount -t tmpfs none /sys/fs && mkdir /sys/fs/selinux &&
            echo 1 >/sys/fs/selinux/enforce && "$1" doctor'
else
    skip "SELinux's labels" "no mount over /sys/fs, or no such attributes"
fi

kill "$(cat slurm/munged.pid)"
until_true eval '! kill -0 "$(cat slurm/munged.pid)"'
check "munged is down" finds '!!  munge .*munged does not answer at ' \
    "$plait" doctor
check "... in JSON, on one page" is 'False True' "$("$plait" doctor --json |
    python3 -c 'import json, sys
d = json.load(sys.stdin)
print(d["good"], any(c["about"] == "munge" and c["kind"] == "bad"
                     for c in d["checks"]))')"
done_testing
