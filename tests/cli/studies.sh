#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What examples/studies/run prints about its studies, and about missing
# programs.
. "$top_srcdir/tests/lib/study.sh"
run=$top_srcdir/examples/studies/run

says() { # name status pattern command...
    name=$1 wanted=$2 pattern=$3
    shift 3
    "$@" >"$tmp/said" 2>&1 </dev/null
    rc=$?
    [ $rc = "$wanted" ] && grep -q "$pattern" "$tmp/said"
    ok=$?
    [ $ok = 0 ] || sed 's/^/# /' "$tmp/said"
    check "$name" $ok
}

says "the studies are listed" 0 '^f  local_sgd ' "$run" --list
for file in "$top_srcdir"/examples/studies/*.py; do
    study=$(basename "$file" .py)
    case $study in study | plot) continue ;; esac
    says "$study is listed" 0 "^[a-z]  $study " "$run" --list
    grep -q "study_$study.sh" "$top_srcdir/tests/unit/train.am"
    check "$study has a test" $?
done
says "no study" 2 'which study?' "$run"
says "a study that is none" 2 'no study is called nothing: ' "$run" nothing
says "a program that is none" 1 \
    '^run: local_sgd: /no/where is not found: give its path with --train$' \
    "$run" local_sgd --train /no/where
# Runs python3 by its path, as PATH is empty; python3 itself may be a script.
python=$(python3 -c 'import sys; print(sys.executable)')
mkdir "$tmp/bin"
says "no mpirun" 1 '^run: local_sgd: mpirun is not in PATH$' \
    env PATH="$tmp/bin" "$python" "$run" local_sgd \
    --train "$top_builddir/plait-train" --prep "$top_builddir/plait-prep"
printf '#!/bin/sh\n' >"$tmp/bin/mpirun"
chmod +x "$tmp/bin/mpirun"
says "no Bible" 1 '^run: local_sgd: no program bible: install bible-kjv' \
    env PATH="$tmp/bin" "$python" "$run" local_sgd \
    --train "$top_builddir/plait-train" --prep "$top_builddir/plait-prep"
echo "1..$n"
