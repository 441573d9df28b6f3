#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# plait-drill: injects faults into a shortened job of plait-train's, in its own
# allocation, and compares the result with that of an undisturbed run.
set -u
export LC_ALL=C
name=plait-drill
here=$(dirname "$(readlink -f "$0")")

help()
{
    cat <<END
usage: plait-drill CONFIG.yaml [OPTION]... [-- TRAIN_OPTION...]
Hurt a shortened run of CONFIG.yaml on purpose, start it again, and say whether
it came to the same; see plait-drill(1).

  --np N               ranks on this machine; without it: a step of the
                       allocation of Slurm's that this is called in
  --tp N --cp N --ep N --pp N --dp N
                       parallel sizes, as for srun (1; dp is inferred)
  --other "SIZES"      the layout to resume under, such as "--tp 1 --pp 2"
  --srun "FLAGS"       further flags of srun
  --steps N            of each run (40); four checkpoints are saved
  --only FAULT,...     some of save, stop, layout, link
  --timeout N          train.timeout where a rank stops (as the steps are long)
  --tolerance X        of losses in another layout, relative (1e-3)
  --cut COMMAND        cuts a link, on the node of the last rank;
  --mend COMMAND       makes it whole again; without both this is left out
  --dir DIR            keeps the runs there, which all nodes see
                       (./plait-drill.XXXXXX, removed if all holds)
  --help, --version
END
} 2>/dev/null

misused()
{
    echo "$name: $*" >&2
    exit 2
}

# -- arguments -----------------------------------------------------------------

np="" steps=40 other="" flags="" only=save,stop,layout,link limit=""
tolerance=1e-3 cut="" mend="" dir="" config="" layout=()
number() # OPTION VALUE LEAST
{
    [[ $2 =~ ^[0-9]{1,9}$ ]] && [ "$2" -ge "$3" ] ||
        misused "$1 $2: must be a whole number from $3 on"
}
read_arguments()
{
    local option value
    while [ $# -gt 0 ]; do
        option=$1
        shift
        case $option in
        --) train_options=("$@") && return ;;
        --help | -h)
            help && exit 0 # a full disk must not pass for success
            echo "$name: cannot write to standard output" >&2
            exit 1 ;;
        --version)
            echo "$name $("$here/plait" --version | cut -d" " -f2)"
            exit ;;
        --*=*) value=${option#*=} option=${option%%=*} ;;
        --*)
            [ $# -gt 0 ] || misused \
                "$option needs a value, or is not an option" \
                "(see --help)"
            value=$1
            shift ;;
        *)
            [ -z "$config" ] || misused "two configurations: $config and $option"
            config=$option
            continue ;;
        esac
        case $option in
        --np) number --np "$value" 1 && np=$value ;;
        --tp | --cp | --ep | --dp | --pp)
            number "$option" "$value" 1 && layout+=("$option=$value") ;;
        --steps) number --steps "$value" 8 && steps=$value ;;
        --timeout) number --timeout "$value" 1 && limit=$value ;;
        --other) other=$value ;;
        --srun) flags=$value ;;
        --tolerance)
            [[ $value =~ ^[0-9.]+(e-?[0-9]+)?$ ]] ||
                misused "--tolerance $value: must be a number such as 1e-3"
            tolerance=$value ;;
        --only)
            [[ ,$value, =~ ^,((save|stop|layout|link),)+$ ]] || misused \
                "--only $value: must be some of save, stop, layout, link"
            only=$value ;;
        --cut) cut=$value ;;
        --mend) mend=$value ;;
        --dir) dir=$value ;;
        *) misused "unknown option $option (see --help)" ;;
        esac
    done
}

train_options=()
read_arguments "$@"
[ -n "$config" ] || misused "a configuration is missing (see --help)"
[ -f "$config" ] || misused "$config: no such file"
[ -n "$cut$mend" ] && { [ -z "$cut" ] || [ -z "$mend" ]; } &&
    misused "--cut and --mend go together"
[ -n "$np" ] || [ -n "${SLURM_JOB_ID:-}" ] || misused "no allocation of" \
    "Slurm's here: give --np, the number of ranks on this machine"
[ -z "$flags" ] || [ -z "$np" ] || misused "--srun goes without --np"
every=$((steps / 4))
if [ -n "$dir" ]; then
    keep=yes
    mkdir -p "$dir" 2>/dev/null || { echo "$name: cannot make $dir" >&2; exit 1; }
    # Runs that are there would go on from their checkpoints, and test nothing.
    [ ! -e "$dir/whole" ] ||
        misused "--dir $dir: has the runs of another drill; name an empty one"
else
    keep=""
    dir=$(mktemp -d "$PWD/plait-drill.XXXXXX") || exit 1
fi
dir=$(readlink -f "$dir")

# -- a start -------------------------------------------------------------------

# The script that starts each rank, with a helper process (the "hand") beside it
# on its node. PLAIT_DRILL_ORDER is "WHAT STEP RANK": the hand of RANK does WHAT
# once STEP steps are in the metrics: KILL, STOP, SAVE (KILL while the next
# checkpoint is being written) or CUT.
rank_script='at=$1 rank=${PLAIT_RANK:-${SLURM_PROCID:-0}}
shift
setsid bash -c "$PLAIT_DRILL_HAND" hand "$at" "$rank" $$ \
    </dev/null >/dev/null 2>&1 &
exec "$@"'
hand_script='at=$1 rank=$2 trainer=$3
read -r order step target <<<"$PLAIT_DRILL_ORDER"
[ "$rank" = "$target" ] || exit
lives() { kill -0 "$trainer" 2>/dev/null; }
hurt() { date +%s.%N >"$at/hurt"; }
until mapfile -t seen <"$at/metrics.jsonl" && [ ${#seen[@]} -ge "$step" ]; do
    sleep 0.01
    lives || exit
done
case $order in
SAVE)
    while lives; do
        for saved in "$at"/ck/.step-*; do
            [ -e "$saved" ] || continue
            kill -KILL "$trainer"
            hurt
            exit
        done
    done ;;
CUT)
    hurt
    bash -c "$PLAIT_DRILL_CUT"
    while lives; do sleep 0.1; done
    bash -c "$PLAIT_DRILL_MEND" && : >"$at/mended" ;;
*)
    hurt
    kill -"$order" "$trainer" ;;
esac'
export PLAIT_DRILL_HAND=$hand_script
export PLAIT_DRILL_CUT=$cut PLAIT_DRILL_MEND=$mend

# launch CASE "SIZES" TRAIN_OPTION...: starts the job in a separate process
# group
launch()
{
    local at=$dir/$1 sizes=$2 starter
    shift 2
    rm -f "$at/hurt" "$at/mended"
    export PLAIT_DRILL_ORDER=${order:-}
    if [ -n "$np" ]; then
        starter=("$here/plait" run --np "${ranks:-$np}" --grace 5 $sizes --)
    elif srun --help 2>/dev/null | grep -q -e '--rank-order'; then
        starter=(srun -Q ${ranks:+-n "$ranks"} $flags $sizes)
    else
        starter=(srun -Q -K ${ranks:+-n "$ranks"} $flags "$here/plait" run
            $sizes --)
    fi
    set -m
    "${starter[@]}" bash -c "$rank_script" "$name" "$at" \
        "$here/plait-train" "$config" "${train_options[@]}" \
        --metrics "$at/metrics.jsonl" --set train.steps=$steps \
        --set checkpoint.dir="$at/ck" --set checkpoint.every=$every \
        --set checkpoint.keep=0 --set checkpoint.fallback=null \
        --set log.every=1 --set log.tensorboard=null --set log.prometheus=null \
        --set log.profile=null --set log.histograms=0 --set train.eval_every=0 \
        --set train.deterministic=true "$@" </dev/null >"$at/log" 2>&1 &
    job=$!
    set +m
}

ended()
{
    ! kill -0 "$job" 2>/dev/null
}

# finish SECONDS: waits for the job, and returns its status; 124: it hung, and
# was ended
finish()
{
    local end=$(($(date +%s) + $1))
    until ended; do
        if [ "$(date +%s)" -ge "$end" ]; then
            kill -TERM -- "-$job" 2>/dev/null
            sleep 3
            kill -KILL -- "-$job" 2>/dev/null
            wait "$job" 2>/dev/null
            return 124
        fi
        sleep 0.1
    done
    wait "$job" 2>/dev/null
}
job=""
trap 'if [ -n "$job" ]; then kill -TERM -- "-$job" 2>/dev/null; fi; exit 130' \
    INT TERM

# -- the result ----------------------------------------------------------------

now() { date +%s.%N; }
since() { awk "BEGIN { printf \"%.1f\", $(now) - $1 }"; }

lines() # CASE: steps in its metrics
{
    cat "$dir/$1/metrics.jsonl" 2>/dev/null | wc -l
}

# reason CASE: the last useful line of its log
reason()
{
    grep -E '^(plait|srun|slurmstepd)' "$dir/$1/log" | tail -n 1 | cut -c 1-200
}

# worst CASE: the largest relative difference from the losses of the whole run;
# "missing" if a step is not in both, or twice in one
worst()
{
    awk '
        function field(name) {
            return match($0, "\"" name "\":[-+0-9.eE]+") ? \
                substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) : "x"
        }
        { step = field("step"); loss = field("loss") }
        NR == FNR { whole[step] = loss; n++; next }
        { seen[step]++ }
        !(step in whole) || loss == "x" || whole[step] == "x" { bad = 1; next }
        {
            d = loss - whole[step]
            d = (d < 0 ? -d : d) / (whole[step] ? whole[step] : 1)
            d = d < 0 ? -d : d
            if (d > most) most = d
        }
        END {
            for (s in seen) { k++; if (seen[s] > 1) bad = 1 }
            print (bad || k != n) ? "missing" : sprintf("%.1e", most + 0)
        }' "$dir/whole/metrics.jsonl" "$dir/$1/metrics.jsonl"
}

# checkpoints CASE: loads each of its checkpoints and sets valid to "3 of 3"; 1:
# not all are valid
checkpoints()
{
    local all=0 good=0 saved step
    mkdir -p "$dir/$1/load/ck"
    for saved in "$dir/$1"/ck/step-*; do
        [ -d "$saved" ] || continue
        step=$((10#${saved##*-}))
        all=$((all + 1))
        launch "$1/load" "$base" --resume "$saved" --set train.steps=$step
        finish $patience && ! grep -q "skipped:" "$dir/$1/load/log" &&
            good=$((good + 1))
    done
    valid="$good of $all"
    [ $all -gt 0 ] && [ $good = $all ]
}

state() # CASE
{
    sed -n 's/^state after/&/p' "$dir/$1/log"
}

failed=0
row() # WHAT TEXT: a line of the report
{
    printf '%-26s %s\n' "$1" "$2"
}
fails() # WHAT TEXT
{
    row "$1" "FAILED: $2"
    failed=1
}

# resume CASE "WHAT" "SIZES" TRAIN_OPTION...: starts the job again, and compares
# it with the whole run; 2: it does not fit into those sizes
resume()
{
    local case=$1 what=$2 sizes=$3 begin lost from diff again
    shift 3
    begin=$(now)
    launch "$case" "$sizes" "$@"
    if ! finish $patience; then
        [ $# = 0 ] || grep -q '^resumed after' "$dir/$case/log" || return 2
        fails "$what" "it does not go on: $(reason "$case")"
        return 1
    fi
    lost=$(awk "BEGIN { x = $begun + $(since "$begin") - $whole_s
        printf \"%.1f\", (x > 0 ? x : 0) }")
    from=$(sed -n 's/^resumed after step //p' "$dir/$case/log" | head -n 1)
    again=$((reached - ${from:-0}))
    diff=$(worst "$case")
    if [ "$diff" = missing ]; then
        fails "$what" "its metrics lack steps of the whole run"
    elif [ $# = 0 ] && [ "$(state "$case")" != "$(state whole)" ]; then
        fails "$what" "weights are not the whole run's, losses differ by $diff"
    elif awk "BEGIN { exit !($diff > $tolerance) }"; then
        fails "$what" "losses differ by $diff"
    else
        [ "$diff" = 0.0e+00 ] && diff=equal || diff="equal within $diff"
        row "$what" "losses $diff, $lost s lost ($again steps again), \
$valid checkpoints valid$said"
    fi
}

# hurt CASE "WHAT" ORDER STEP TRAIN_OPTION...: starts a job that ORDER ends;
# sets begun, reached, took: its seconds, its steps, the seconds since the order
hurt()
{
    local case=$1 what=$2 step=$4 order="$3 $4 $last" begin rc
    shift 4
    said=""
    mkdir -p "$dir/$case/ck"
    begin=$(now)
    launch "$case" "$base" "$@"
    order=""
    finish $patience
    rc=$?
    begun=$(since "$begin")
    reached=$(lines "$case")
    cp "$dir/$case/log" "$dir/$case/log.hurt"
    if [ $rc = 124 ]; then
        fails "$what" "it has not ended after $patience s"
    elif [ $rc = 0 ]; then
        fails "$what" "it was over before it was hurt: give more --steps"
    elif [ ! -e "$dir/$case/hurt" ]; then
        fails "$what" "it does not reach step $step: $(reason "$case")"
    else
        took=$(since "$(cat "$dir/$case/hurt")")
        checkpoints "$case" && return 0
        fails "$what" "$valid checkpoints are valid"
    fi
    return 1
}

# -- the faults ----------------------------------------------------------------

drill_save()
{
    local what="a rank killed in a save"
    hurt save "$what" SAVE $((2 * every - 1)) || return
    resume save "$what" "$base"
}

drill_stop()
{
    local what="a rank that stops"
    [ "$world" -gt 1 ] || { row "$what" "left out: nobody waits for one rank"
        return; }
    hurt stop "$what" STOP $((2 * every + 1)) --set train.timeout="$limit" || return
    if ! grep -q "has not ended for" "$dir/stop/log.hurt"; then
        fails "$what" "nobody says so: $(reason stop)"
    elif ! grep -qE "rank $last \(|it is cut off" "$dir/stop/log.hurt"; then
        fails "$what" "another one is named: $(reason stop)"
    else
        said="; ended $took s after it stopped, and named"
        resume stop "$what" "$base"
    fi
}

# settings SIZES...: options that set the same sizes in the configuration
settings()
{
    local size
    for size in "$@"; do
        size=${size#--}
        echo "--set parallel.${size/[ =]/=}"
    done
}

# Resumes with the sizes that are asked for, or the first that fit: with as many
# ranks as before, then with half of them.
drill_layout()
{
    local what="another layout" n sizes rc all=()
    [ -n "$other" ] && all=("$world $other")
    [ -n "$other" ] || for n in "$world" $((world / 2)); do
        all+=("$n --tp=1 --cp=1 --pp=1 --dp=$n")
        [ $((n % 2)) = 1 ] || all+=("$n --tp=2 --cp=1 --pp=1 --dp=$((n / 2))"
            "$n --tp=1 --cp=1 --pp=2 --dp=$((n / 2))")
    done
    [ "$world" -gt 1 ] || { row "$what" "left out: one rank has no other"
        return; }
    hurt layout "$what" KILL $((2 * every + 1)) || return
    for sizes in "${all[@]}"; do
        ranks=${sizes%% *} sizes=${sizes#* }
        [ "$ranks $(sort_sizes $sizes)" = "$world $now_sizes" ] && continue
        said="; as $ranks ranks, ${sizes//--/}"
        resume layout "$what" "$sizes" $(settings $sizes)
        rc=$?
        ranks=""
        [ $rc = 2 ] || return
    done
    fails "$what" "none of mine fits, give --other: $(reason layout)"
}

drill_link()
{
    local what="a link that is cut"
    [ -n "$cut" ] || { row "$what" "left out: give --cut and --mend to try it"
        return; }
    [ "$world" -gt 1 ] || { row "$what" "left out: one rank has no link"
        return; }
    hurt link "$what" CUT $((2 * every + 1)) --set train.timeout="$limit" || return
    until_mended || { fails "$what" "it was not mended: $mend"; return; }
    said="; ended $took s after it was cut"
    resume link "$what" "$base"
}

until_mended()
{
    local n
    for ((n = 0; n < 300; n++)); do
        [ -e "$dir/link/mended" ] && return
        sleep 0.1
    done
    return 1
}

# -- the drill -----------------------------------------------------------------

# of NAME: a number in the record of the whole run's start
of()
{
    sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" "$dir/whole/metrics.jsonl.starts" |
        head -n 1
}
sort_sizes() { printf '%s\n' "$@" | sort | xargs; }

base="${layout[*]:-}" ranks="" said=""
mkdir -p "$dir/whole/ck"
begin=$(now)
launch whole "$base"
finish 1000000 || {
    fails "the whole run" "$(reason whole)"
    echo "$name: $dir/whole/log says more" >&2
    exit 1
}
whole_s=$(since "$begin")
world=$(of ranks) last=$((world - 1))
now_sizes=$(sort_sizes --tp="$(of tp)" --cp="$(of cp)" --dp="$(of dp)" \
    --pp="$(of pp)")
[ -n "$limit" ] || limit=$(awk 'match($0, /"step_s":[0-9.e+-]+/) {
        x = substr($0, RSTART + 9, RLENGTH - 9); if (x + 0 > most) most = x + 0 }
    END { x = int(5 * most) + 1; print (x > 10 ? x : 10) }' \
    "$dir/whole/metrics.jsonl")
# A run that takes longer hangs.
patience=$(awk "BEGIN { print int(5 * $whole_s + 2 * $limit + 180) }")
checkpoints whole || failed=1
row "the whole run" "$steps steps in $whole_s s, $world ranks, ${now_sizes//--/}, \
$valid checkpoints valid"
for fault in ${only//,/ }; do
    drill_"$fault"
done
if [ $failed = 0 ]; then
    echo "all holds"
    [ -n "$keep" ] || rm -rf "$dir"
else
    echo "not all holds: $dir has the runs"
fi
exit $failed
