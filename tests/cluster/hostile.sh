#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A second user on the nodes, without any rights, attacks another one's planned
# steps: nothing is learnt, stopped, forged or held. The victim is games, the
# attacker nobody; both are on each node, and the attacker sees what squeue,
# /proc and the file system show to everybody.
[ "$(id -u)" = 0 ] || { echo "1..0 # SKIP only root can be two users"; exit 0; }
for python in $(type -ap python3) none; do
    setpriv --reuid nobody --clear-groups "$python" -c '' 2>/dev/null && break
done
[ $python != none ] ||
    { echo "1..0 # SKIP no python3 that the user nobody can run"; exit 0; }
train=$(readlink -f "$top_builddir/plait-train")
attack=$(readlink -f "$top_srcdir/tests/cluster/hostile.py")
. "$top_srcdir/tests/cluster/tap.sh" --conf "KillWait=5" || exit 99
plait=$(readlink -f "$plait")
cached
victim=$(id -u games)
mkdir -m 755 home
chown games home
# Newer Slurm tells a user whose TMPDIR is not writable, as the test's is not.
mkdir -m 1777 tmp
export TMPDIR=$work/tmp
cp "$attack" hostile.py && chmod 755 hostile.py
ulimit -n "$(ulimit -Hn)" # else 1,024

# as USER COMMAND...
as()
{
    local user=$1
    shift
    # not the folder of the one who runs the test
    env -u TMPDIR setpriv --reuid "$user" --regid 65534 --clear-groups "$@"
}

hostile()
{
    (cd / && as nobody "$python" -B "$work/hostile.py" "$@")
}

# under_attack COMMAND...: run it as the victim while a storm blows; size: of the
# job whose greetings it sends
size=
under_attack()
{
    local storm rc i
    : >storm.log
    : >storm.ports
    for i in 1 2; do
        "$python" -B hostile.py storm "$victim" 1000 storm.ports $size \
            2>>storm.log &
        storm[i]=$!
    done
    (cd home && as games timeout 240 "$@") >out 2>&1
    rc=$?
    kill $(pgrep -f 'hostile.py storm') 2>/dev/null
    wait "${storm[@]}" 2>/dev/null
    [ $rc = 0 ] && [ ! -s storm.log ] ||
        { echo "exit status $rc"; cat out storm.log; return 1; }
}

# stormed COMMAND...: the same, and the storm found ports to attack
stormed()
{
    under_attack "$@" &&
        { [ -s storm.ports ] || { echo "no port was attacked"; return 1; }; }
}

# ---- what is learnt ----

# The victim's ranks write their secret where nobody but the victim reads it.
cat >home/secret <<'END'
#!/bin/bash
umask 077
[ -z "${PLAIT_SECRET-}" ] || echo "$PLAIT_SECRET" >secret.$1.$SLURM_PROCID
until [ -e go ]; do sleep 0.1; done
END
chmod 755 home/secret

# all_started NAME N
all_started()
{
    until_true eval "[ \$(cat home/secret.$1.* | wc -l) = $2 ]"
}

# learnt NAME: what the attacker finds of the running step's secret
learnt()
{
    local secret
    secret=$(cat home/secret."$1".0)
    [ ${#secret} -ge 32 ] || echo "no secret"
    hostile seek /run /dev/shm /dev/mqueue /var/spool "$work" <<<"$secret"
    for f in /proc/[0-9]*/{cmdline,environ,maps}; do
        as nobody cat "$f" 2>/dev/null | grep -qaF "$secret" && echo "$f"
    done
    for show in "squeue -o %all" "squeue -s -o %all" "scontrol show job" \
        "scontrol show step" "scontrol show node" "scontrol show config" \
        "sstat -a -o ALL 1" "scontrol listpids"; do
        as nobody $show 2>/dev/null | grep -qaF "$secret" && echo "$show"
    done
    for f in /proc/net/unix /proc/net/tcp; do
        as nobody grep -qaF "$secret" $f && echo $f
    done
}

(cd home && as games srun -Q \
    -N4 --ntasks-per-node=2 --tp=2 ./secret planned) >planned.out 2>&1 &
all_started planned 8
check "the secret of a step is nowhere to be read" is "" "$(learnt planned)"
check "nor are its processes" is "looked" "$(hostile pry "$victim")"
as games touch home/go
wait
check "... and it ends as it should" is "" "$(cat planned.out)"
rm home/go
(cd home && ulimit -c unlimited && as games srun -Q -n1 --tp=1 --dp=1 sh -c \
    'umask 0; echo $PLAIT_SECRET >secret.core.0; chmod 600 secret.core.0
    kill -SEGV $$') >core.out 2>&1
check "a rank's core file tells it to nobody" is "" "$(learnt core)"
check "what root found of the node has no serial numbers" is "" \
    "$(grep -E 'DMI|Serial|UUID|Asset' slurm/cache/node.xml)"

# planted NAME...: what nobody could make, link or lock in the cache
planted()
{
    local name
    for name in "$@"; do
        as nobody ln -s /etc/passwd "slurm/cache/$name" && echo "$name: ln -s"
        as nobody ln slurm/cache/node.xml "slurm/cache/$name" &&
            echo "$name: ln"
        as nobody mv -T home "slurm/cache/$name" && echo "$name: mv"
        as nobody flock -n "slurm/cache/$name" true && echo "$name: locked"
        as nobody sh -c ": >>slurm/cache/$name" && echo "$name: written"
    done 2>/dev/null
}
check "nobody plants, links or locks what root reads" is "" \
    "$(planted new node.xml.new node.lock)"
check "... nor writes it" is "" "$(as nobody sh -c \
    ': >>slurm/cache/node.xml && echo written' 2>/dev/null)"

# A flag from the environment passes the check of srun.
: >forged.out
(cd home && as nobody env "_SLURM_SPANK_OPTION_plait_tp=2
FORGED-LINE: $(printf '\033')[31m" timeout 240 srun -Q -n2 -D / true) \
    >forged.out 2>&1
check "the value of a flag makes no line in slurmd's log" is 0 \
    "$(cat slurm/log/slurmd.node* | grep -c '^FORGED-LINE\|'$'\033')"
check "... and none on srun's" is 0 "$(grep -c "^FORGED-LINE" forged.out)"

# ---- what is stopped, forged or held ----

planned=(srun -Q -N4 --ntasks-per-node=2 --tp=2)
storms="1 2 3"
all_tier || storms=1
for i in $storms; do
    check "a storm of connections stops no planned step ($i)" under_attack \
        "${planned[@]}" true
done
# The storm needs processors, which a preflight may well name.
measured()
{
    stormed "$@" || { [ -s storm.ports ] && [ ! -s storm.log ] &&
        like "$(cat out)" 'exit code 75' &&
        is "" "$(grep plait: out | sed -E 's/.*preflight: //
            s/(node[1-4]: (other processes want its cores|its (cores|memory|link)
 [^;(]*) \([^;]*\)(; )?)*//' | tr -d '\n')"; }
}
check "... no preflight" measured "${planned[@]}" --node-preflight true
if [ -x "$train" ]; then
    python3 -B "$top_srcdir/tests/lib/small_model.py" "$work" gpt2 || exit 99
    chmod 644 c.yaml tokens.bin
    # Half of the ranks come late, when the storm has found the port.
    training=(srun -Q --mpi=none -N4 --ntasks-per-node=2 --tp=2 bash -c
        '[ $((RANK % 4)) -lt 2 ] || sleep 3; exec "$@"' - "$train"
        "$work/c.yaml" --set train.steps=30)
    (cd home && as games timeout 240 "${training[@]}" --set \
        log.metrics=quiet.jsonl) >out 2>&1
    check "a training over sockets" test -s home/quiet.jsonl
    check "... is not kept from its start" stormed "${training[@]}" --set \
        log.metrics=stormed.jsonl
    size=8
    check "... nor by greetings" stormed "${training[@]}"
    size=
    losses='s/.*"loss":\([^,]*\).*/\1/p'
    check "... and learns the same" is "$(sed -n "$losses" home/quiet.jsonl)" \
        "$(sed -n "$losses" home/stormed.jsonl)"
fi

mv slurm/plugstack.conf plugstack
: >slurm/plugstack.conf
check "a storm does not stop plait run without the plugin" measured \
    srun -Q -N4 --ntasks-per-node=2 "$plait" run --tp=2 --preflight true
mv plugstack slurm/plugstack.conf
done_testing
