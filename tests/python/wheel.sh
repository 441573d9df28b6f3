#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The wheel of the package plait: made, put into an empty environment, and used
# there, without numpy and torch.
. "$top_srcdir/tests/lib/check.sh"
for python in python3 /usr/bin/python3 ''; do
    [ -n "$python" ] ||
        { echo "1..0 # SKIP needs python3 with pip, setuptools, wheel"; exit 0; }
    "$python" -c 'import setuptools, wheel, pip' 2>/dev/null && break
done
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL PYTHONPATH
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

cp -R "$top_srcdir/python" "$tmp/source" && chmod -R u+w "$tmp/source"
(cd "$tmp/source" && "$python" -m pip wheel -q --no-deps --no-index \
    --no-build-isolation -w "$tmp" .) >"$tmp/log" 2>&1
wheel=$(echo "$tmp"/plait-*-py3-none-any.whl)
[ -s "$wheel" ] || sed 's/^/# /' "$tmp/log"
[ -s "$wheel" ]
check "a wheel for any machine is made" $?
"$python" -m zipfile -l "$wheel" | sed -n 's/^\(plait\/[^ ]*\).*/\1/p' |
    LC_ALL=C sort >"$tmp/names"
(cd "$top_srcdir/python" && find plait -name '*.py' -o -name py.typed) |
    LC_ALL=C sort | diff - "$tmp/names" | sed 's/^/# /'
[ -s "$tmp/names" ] && [ "$(wc -l <"$tmp/names")" = \
    "$(find "$top_srcdir/python/plait" -name '*.py' -o -name py.typed |
        wc -l)" ]
check "... with all its files" $?
"$python" -m pip install -q --no-deps --no-index --target "$tmp/there" \
    "$wheel" >"$tmp/log" 2>&1 || sed 's/^/# /' "$tmp/log"

# there CODE: run it with the package and nothing else
there() {
    env -i PATH=/nowhere "$(command -v "$python")" -I -S -B -c "import sys
sys.path.insert(0, '$tmp/there')
$1" >"$tmp/out" 2>&1
    local status=$?
    [ $status = 0 ] || sed 's/^/# /' "$tmp/out"
    return $status
}
there 'import plait; print(plait.__version__, plait.Layout({"tp": 2}).world)'
check "it is imported where nothing else is" $?
there '
import plait
for call, words in ((plait.init, "started under a plan"),
                    (lambda: plait.plan(tp=2), "install plait-tools"),
                    (lambda: plait.checkpoint.load("."), "needs numpy")):
    try:
        call()
        sys.exit("nothing was raised")
    except plait.Error as why:
        assert words in str(why), why'
check "what is missing there is said in one line" $?
(cd "$top_srcdir/python" && find plait -name '*.py') | while read -r file; do
    grep -q "python/$file" "$top_srcdir/python/Makemodule.am" || echo "# $file"
done | grep .
[ $? = 1 ]
check "the release has every module" $?
echo "1..$n"
