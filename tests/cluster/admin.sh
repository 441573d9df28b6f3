#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What an administrator configures, and its effect: plugstack.conf, the site
# file, the cache, ports, and plait doctor.
so=$top_builddir/.libs/spank_plait.so
# Kept where tap.sh starts the script again in namespaces of its own.
cachedir=${TEST_CACHE:-$(mktemp -d "${TMPDIR:-/tmp}/plait-cache.XXXXXX")} ||
    exit 99
export TEST_CACHE=$cachedir
trap 'rm -rf "$cachedir"' EXIT
chmod 755 "$cachedir"
# Below the ports that slurm-cluster.sh gives its daemons.
. "$top_srcdir/tests/cluster/tap.sh" --conf MpiParams=ports=9400-9499 \
    --plugin "$so cache=$cachedir/c bogus=1 tp=x"
trap 'clean_up; rm -rf "$cachedir"' EXIT
cache=$cachedir/c/node.xml
conf=slurm/plugstack.conf

# arguments ARGUMENT...: the plugin's arguments in plugstack.conf, for new steps
arguments()
{
    echo "required $so $*" >$conf.new && mv $conf.new $conf
}

# says PATTERN COMMAND...: whether COMMAND prints PATTERN, whatever its exit
# status
says()
{
    local pattern=$1 out
    shift
    out=$(timeout 240 "$@" 2>&1)
    like "$out" "$pattern"
}

# bad_and_says PATTERN COMMAND...: whether it fails and prints PATTERN
bad_and_says()
{
    local pattern=$1 out
    shift
    out=$(timeout 240 "$@" 2>&1) && { echo "it ran: $out"; return 1; }
    [ $? != 124 ] || { echo "it hangs: $out"; return 1; }
    like "$out" "$pattern"
}

# good_and_says PATTERN COMMAND...: whether it succeeds and prints PATTERN
good_and_says()
{
    local pattern=$1 out
    shift
    out=$(timeout 240 "$@" 2>&1) || { echo "$out"; return 1; }
    like "$out" "$pattern"
}

logs()
{
    cat slurm/log/slurmd.node?
}

check "slurmd's log names an unknown argument" \
    grep -q "plugstack.conf: 'bogus=1' is not an argument" slurm/log/slurmd.node1
check "... and a wrong one" \
    grep -q 'plugstack.conf: --tp=x must be a whole number' slurm/log/slurmd.node1
check "... and jobs run on" timeout 240 srun -N4 true
check "slurmd wrote the cache" cached "$cachedir/c"
check "... for all to read and for itself to write" \
    is "644 $(id -u)" "$(stat -c '%a %u' "$cache")"
check "a planned step" timeout 240 srun -N2 --ntasks-per-node=2 --tp=2 true
check "... did not look at the machine again" \
    is 0 "$(logs | grep -c 'discovering the topology')"

whose()
{
    head -n1 "$cache" | cut -d' ' -f1-6
    tail -n1 "$cache"
}
before=$(whose)
echo x >"$cache"
check "with a damaged cache" timeout 240 srun -N1 -n2 --tp=2 true
check "... which was written anew" is "$before" "$(whose)"
rm -r "$cachedir/c"
touch "$cachedir/c"
check "with a file where the cache's directory should be" \
    timeout 240 srun -N1 -n2 --tp=2 bash -c '[ -n "$PLAIT_CPUS" ]'
check "... the log says so once" \
    is 1 "$(logs | grep -c 'discovering the topology anew')"
rm "$cachedir/c"

arguments placement=linear cache=none
check "a default" good_and_says 'linear placement' \
    srun -N4 --ntasks-per-node=2 --tp=2 --show-plan true
check "... that the user may overrule" good_and_says 'topology placement' \
    srun -N4 --ntasks-per-node=2 --tp=2 --placement=topology --show-plan true
arguments force-pin=none
check "what is forced" timeout 240 srun -N1 -n2 --tp=2 \
    bash -c '[ -z "$PLAIT_CPUS" ]'
check "... is not for the user to change" \
    bad_and_says 'plait: this cluster allows only --pin=none' \
    srun -N1 -n2 --tp=2 --pin=closest true
check "... in sbatch either" bad_and_says 'only --pin=none' \
    sbatch -N1 -n2 --tp=2 --pin=closest --wrap true

arguments "site=$work/site.yaml cache=$cachedir/c"
echo 'policies: [{partition: "a*", max: {tp: 1}}]' >site.yaml
check "a policy of the partition" bad_and_says 'this partition allows --tp=1' \
    srun -N1 -n2 --tp=2 true
check "... that is kept" timeout 240 srun -N1 -n2 --tp=1 true
check "... and known to sbatch where the partition is" \
    bad_and_says 'this partition allows --tp=1' \
    sbatch -p all -N1 -n2 --tp=2 --wrap true
echo 'policies: [{partition: b*, max: {tp: 1}}]' >site.yaml
check "... not that of another" timeout 240 srun -N1 -n2 --tp=2 true
cat >large.yaml <<'END'
model: {family: llama, layers: 32, hidden: 4096, heads: 32, vocab: 32000,
        seq_len: 2048}
train: {global_batch: 8, micro_batch: 1, precision: bf16}
END
echo 'gpu_type: v100-32g' >site.yaml
for command in 'sbatch --wrap true' 'salloc true' 'srun true'; do
    check "a model that does not fit is refused by ${command%% *}" \
        bad_and_says 'large.yaml in --dp=2 needs .* GB of the .* GB of each v100-32g; .* (would fit|could hold it) ' \
        ${command%% *} -N1 -n2 --dp=2 --model=large.yaml ${command#* }
done
printf 'gpu_type: v100-32g\ntoo_large: warn\n' >site.yaml
check "... or warned of" good_and_says 'plait: warning: large.yaml in --dp=2' \
    srun -N1 -n2 --dp=2 --model=large.yaml true
printf 'gpu_type: v100-32g\ntoo_large: off\n' >site.yaml
check "... or not" is "" \
    "$(timeout 240 srun -Q -N1 -n2 --dp=2 --model=large.yaml true 2>&1)"
echo 'too_large: refuse' >site.yaml
check "... nor where the site does not say what its GPUs are" \
    timeout 240 srun -N1 -n2 --dp=2 --model=large.yaml true
printf 'policies:\n  - {partition: a, mix: {tp: 2}}\n' >site.yaml
broken="^srun: error: plait: .*site.yaml:2:.*did you mean 'max'.* is corrected"
for command in 'srun true' 'sbatch --wrap true' 'salloc true'; do
    check "a broken site file refuses planned jobs of ${command%% *}" \
        bad_and_says "${broken/srun/${command%% *}}" \
        ${command%% *} -N1 -n2 --tp=2 ${command#* }
done
check "... in one line" is 1 \
    "$(timeout 240 srun -Q -N1 -n2 --tp=2 true 2>&1 | wc -l)"
check "... not jobs without flags" is "" "$(timeout 240 srun -Q true 2>&1)"
# An srun without the plugin, and a plan of 2 tasks with --tp=2 that its user wrote.
sed 's:^PlugStackConfig=.*:PlugStackConfig=/dev/null:' slurm/slurm.conf \
    >slurm/bare.conf
cat >forged <<END
#!/bin/sh
SLURM_CONF=$PWD/slurm/bare.conf _SLURM_SPANK_OPTION_plait_tp=2 \
    SLURM_PLAIT_PLAN='1/2.1.1.1.1/tp-cp-ep-dp-pp/topology/0/1*2' \
    SLURM_PLAIT_MASTER=127.0.0.1:61234 SLURM_PLAIT_KEEP= \
    exec srun -Q -N1 -n2 "\$@"
END
chmod 755 forged
check "... nor do forged plans pass it" bad_and_says 'site.yaml:2:' ./forged true
rm site.yaml
check "a site file that is named and not there" \
    bad_and_says 'site.yaml: No such file' srun -N1 -n2 --tp=2 true
echo '{}' >site.yaml
check "a forged plan that breaks no limit" timeout 240 ./forged true
echo 'policies: [{partition: all, max: {tp: 1}}]' >site.yaml
check "... one that does is refused by the node" \
    bad_and_says 'this partition allows --tp=1 at most' ./forged true
# told COMMAND...: how often it says that RANK is not SLURM_PROCID
told()
{
    PLAIT_SITE=$PWD/site.yaml timeout 240 "$@" 2>&1 |
        grep -c 'RANK is not SLURM_PROCID'
}
nodes="-N4 -n8 --ntasks-per-node=2"
for want in 1 0; do
    what="are told of"
    echo '{}' >site.yaml
    [ $want = 1 ] || { what="are not, with"; echo rank_warning: false >site.yaml; }
    # shellcheck disable=SC2086 # words are meant
    {
        check "ranks that are not SLURM_PROCID $what $(cat site.yaml)" is $want \
            "$(told srun $nodes --tp=2 --pp=2 true)"
        check "... by plait run, too" is $want \
            "$(told srun $nodes "$plait" run --tp=2 --pp=2 true)"
    }
done
echo 'policies: [{user: root, enabled: false}, {user: x*, max: {tp: 1}}]' \
    >site.yaml
check "flags can be switched off for a user" \
    bad_and_says 'the site for this user allows no planned steps' \
    srun -N1 -n2 --tp=2 true
check "... on the node too" bad_and_says 'allows no planned steps' ./forged true
echo 'policies: [{user: nobody, enabled: false}]' >site.yaml
check "... not for others" timeout 240 srun -N1 -n2 --tp=2 true
scontrol create partitionname=sec1 nodes=ALL >/dev/null
echo 'policies: [{partition: "sec*", max: {tp: 1}}]' >site.yaml
for list in sec1,all all,sec1; do
    check "a policy of one of the partitions $list" \
        bad_and_says 'this partition allows --tp=1' \
        sbatch -p $list -N1 -n2 --tp=2 --wrap true
done
moved()
{
    local job
    job=$(sbatch --parsable -H -p all -N1 -n2 --tp=2 -o moved.out \
        --wrap 'srun echo ran') || return 1
    scontrol update jobid="$job" partition=sec1 && scontrol release "$job"
    until_true eval '[ -z "$(squeue -h -j '"$job"')" ]'
    like "$(cat moved.out)" 'this partition allows --tp=1' &&
        ! grep '^ran' moved.out
}
check "a job that is moved there is refused at its step" moved
rm site.yaml
arguments force-pin=non
check "a forced value that is none refuses planned jobs" \
    bad_and_says 'plugstack.conf: --pin=non.* must be closest or none' \
    srun -N1 -n2 --tp=2 true
check "... not others" is "" "$(timeout 240 srun -Q true 2>&1)"

# Slurm loads what plugstack.conf lists twice twice.
arguments "cache=$cachedir/c"
used()
{
    logs | grep -cE \
        "plait: step [0-9]+\.0 of uid $(id -u): --tp=2, 2 tasks on 1 nodes"
}
before=$(used)
timeout 240 srun -Q -N1 -n2 --tp=2 true
check "slurmd's log has a line for a planned step" is $((before + 1)) "$(used)"
cp "$so" spank_plait_copy.so
for second in "$so" "$PWD/spank_plait_copy.so"; do
    { echo "required $so cache=$cachedir/c"
        echo "required $second cache=$cachedir/c"; } >$conf
    check "listed twice (${second##*/}): a line for whoever uses it" \
        is "1 0 1" "$(timeout 240 srun -Q -N1 -n2 --tp=2 \
            bash -c 'echo rank $RANK' 2>&1 | sort | sed \
            's/.*plait: plugstack.conf.* twice.* is ignored$/1/; s/rank //' |
            sort | sed '1{h;d}; 2{G}' | xargs)"
    check "... none for others" is "" "$(timeout 240 srun -Q true 2>&1)"
    check "... in a job" timeout 240 salloc -Q -N2 --ntasks-per-node=2 --tp=2 \
        srun bash -c '[ -n "$RANK" ]'
done
# The lines of slurmd's log are the daemon's own.
arguments "cache=$cachedir/c"
forge=$'1\n[2026-01-01T00:00:00.000] error: forged\e[31m'
env _SLURM_SPANK_OPTION_plait_tp="$forge" timeout 240 srun -Q -N1 -n2 true \
    2>/dev/null
env _SLURM_SPANK_OPTION_plait_tp=1 _SLURM_SPANK_OPTION_plait_pin="$forge" \
    timeout 240 srun -Q -N1 -n2 true 2>/dev/null
check "a flag's value makes no line in slurmd's log" \
    is "" "$(logs | grep -aE "^\[2026-01-01T00:00:00.000\]|$(printf '\033')")"

arguments "cache=$cachedir/c" tpp=2
check "an argument that is none" bad_and_says \
    "!!  arguments .*'tpp=2' is not an argument of this plugin" "$plait" doctor
arguments "cache=$cachedir/later"
check "a cache directory that is not there yet" good_and_says \
    '--  cache .*No such file or directory; slurmd makes it' "$plait" doctor
mkdir -m 777 "$cachedir/open"
arguments "cache=$cachedir/open"
check "one that anybody can write to" bad_and_says \
    '!!  cache .*only root can write to; the plugin does not use it' "$plait" doctor
arguments "cache=$cachedir/c"

cat >script <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2
srun -N1 -n1 bash -c 'echo "helper ${RANK:-none}"'
srun bash -c 'echo "rank $RANK"'
END
check "a helper of one task in a planned job" \
    batch helper.out script
check "... has no rank and is told so" is "1 1" \
    "$(grep -c '^helper none' helper.out) $(
        grep -c 'does not fit this step of 1 task' helper.out)"
check "... while the job's steps have" is 4 "$(grep -c '^rank' helper.out)"

dies='if [ $RANK = 0 ]; then sleep 0.2; exit 3; fi; sleep 600; echo survived'
check "a rank that fails ends the others" \
    bad_and_says 'Exited with exit code 3' srun -N2 -n2 --tp=1 \
    bash -c "$dies"
check "... unless the user said otherwise" says survived \
    srun -K0 -N2 -n2 --tp=1 bash -c "${dies/600/2}"

check "Slurm reserves MASTER_PORT" says ' 94[0-9][0-9] ' \
    srun -N1 -n2 --tp=2 bash -c 'echo " $MASTER_PORT "'
cat >script <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2
for i in 1 2 3 4; do
    srun --overlap bash -c 'echo $MASTER_PORT; touch at_once.'$i'
        until [ "$(ls at_once.* | wc -l)" = 4 ]; do sleep 0.1; done' >port.$i &
done
wait
END
check "four steps at once" batch steps.out script
check "... have four ports" is 4 "$(cat port.[1-4] | sort -u | wc -l)"
cat >script <<'END'
#!/bin/bash
#SBATCH -N1 -n2 --tp=2
export MASTER_PORT=61234
srun --overlap sleep 600 &
until grep -q plait-port-61234 /proc/net/unix; do sleep 0.05; done
srun --overlap echo second ran
kill %1
END
check "two steps that want one port" batch ports.out script
check "... the second is refused" like "$(cat ports.out)" \
    'port 61234 of .* is in use'
check "... and the port is free again" until_true \
    eval '! grep -q plait-port-61234 /proc/net/unix'

timeout 240 srun -N2 --ntasks-per-node=2 --tp=2 \
    bash -c 'echo $PLAIT_SECRET; ps -eo args >args.$RANK' >secrets
timeout 240 srun -N1 -n2 --tp=2 bash -c 'echo $PLAIT_SECRET' >>secrets
check "a secret of each step" is "2 65" \
    "$(sort -u secrets | wc -l) $(head -n1 secrets | wc -c)"
check "... that no command line shows" [ -z "$(grep -F -f secrets args.*)" ]

check "plait doctor finds nothing wrong" \
    good_and_says 'Nothing is wrong' "$plait" doctor
check "... knows the plugin" says "ok  plugin .*spank_plait.so is for Slurm" \
    "$plait" doctor
check "... and the ports" says 'ok  ports ' "$plait" doctor
check "... in JSON" says '^True plugin' bash -c '"$1" doctor --json |
    python3 -c "import json, sys
d = json.load(sys.stdin)
print(d[\"good\"], *[c[\"about\"] for c in d[\"checks\"]
                     if c[\"about\"] == \"plugin\"])"' - "$plait"
echo 'policies: 3' >site.yaml
arguments "site=$work/site.yaml" "cache=$cachedir/c"
check "a broken site file" bad_and_says '!!  site .*site.yaml:1' "$plait" doctor
rm site.yaml
arguments "cache=$cachedir/c"
mv $conf plait.conf
echo "include $work/pla*.conf" >$conf
check "an include" \
    good_and_says "  plugstack .*/plait.conf:1 lists" "$plait" doctor
echo '#required spank_plait.so' >$conf
check "a plugin that is not listed" \
    bad_and_says '!!  plugstack .*names spank_plait.so, and the plugin is not in' "$plait" doctor
echo 'optional spank_plait_2.so' >$conf
check "one that is not there" \
    bad_and_says '!!  plugin .*does not exist, in ' "$plait" doctor
rm $conf
check "no plugstack.conf" \
    bad_and_says '!!  plugstack .*No such file' "$plait" doctor

mv plait.conf $conf
cat >script <<'END'
#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 --tp=2
srun bash -c 'echo "ran ${RANK:-without}"'
END
scontrol update partitionname=all state=down
job=$(sbatch --parsable -o removed.out script)
: >$conf
scontrol update partitionname=all state=up
check "a queued job outlives the plugin's removal" until_true \
    eval '[ "$(grep -c "ran without" removed.out)" = 4 ]'
done_testing
