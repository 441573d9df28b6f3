#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What srun, sbatch and salloc accept without the plugin they accept with it: no
# flag of ours makes an abbreviation of one of Slurm's ambiguous.
. "$top_srcdir/tests/cluster/tap.sh" --nodes 1

sed 's:^PlugStackConfig=.*:PlugStackConfig=/dev/null:' slurm/slurm.conf \
    >slurm/bare.conf

# ours: the plugin's flags, from the help
ours=$(srun --help | sed -n '/provided by plugins/,/^[A-Z]/p' |
    grep -oE '^ +--[a-z-]+' | sed 's/ *--//')

check "the help lists the flags" is 14 "$(wc -w <<<"$ours")"

# accepts CONF COMMAND PREFIX: what getopt says of --PREFIX; "" where it is one
# option's
accepts()
{
    SLURM_CONF=$PWD/slurm/$1.conf timeout 240 "$2" "--$3" 2>&1 </dev/null |
        grep -oE 'ambiguous|unrecognized option' | head -n1
}

# same COMMAND: whether the prefixes of our names mean what they meant
same()
{
    local name prefix bad=0 tried=0 n
    for name in $ours; do
        for n in $(seq ${#name}); do
            prefix=${name:0:n}
            [ -z "$(accepts bare "$1" "$prefix")" ] || continue
            tried=$((tried + 1))
            # --ep is a flag of its own, and a path is still --epilog's
            [ "$1 $prefix" != "srun ep" ] || continue
            [ -z "$(accepts slurm "$1" "$prefix")" ] ||
                { echo "--$prefix was an option"; bad=1; }
        done
    done
    echo "$tried abbreviations"
    return $bad
}
for command in srun sbatch salloc; do
    check "$command: no abbreviation is lost" same $command
done
# Prefixes of Slurm's own that a name of ours might begin with.
for prefix in sp:--sp pre:--prefe; do
    check "--${prefix%:*} is as before" is \
        "$(accepts bare srun ${prefix#*:--})" \
        "$(accepts slurm srun ${prefix#*:--})"
done
printf '#!/bin/sh\ntouch %s/epilog.ran\n' "$PWD" >epilog
chmod 755 epilog
check "srun --ep=PATH is --epilog" timeout 240 srun -n1 --ep="$PWD/epilog" true
check "... which runs" [ -e epilog.ran ]
check "... and --ep=1 is a size" timeout 240 srun -n1 --ep=1 \
    bash -c '[ -n "$RANK" ]'
done_testing
