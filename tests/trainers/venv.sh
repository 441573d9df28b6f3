#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: venv.sh DIR: a Python with the packages of versions.txt, and those of
# older.txt each in DIR/older/NAME. What a registry does not give is named, and
# its rows are left out. Does nothing where DIR has these versions, or is a
# Python that someone else made.
set -u
dir=$1
here=$(dirname "$(readlink -f "$0")")
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
packages() { grep -v '^#' "$here/$1"; }

[ ! -x "$dir/bin/python" ] || [ -e "$dir/versions" ] || exit 0
! cat "$here"/{versions,older}.txt | cmp -s - "$dir/versions" || exit 0
python3 -m venv "$dir" || exit 1
: >"$dir/versions"
if ! "$dir/bin/pip" install -q -r "$here/versions.txt"; then
    for one in $(packages versions.txt); do
        "$dir/bin/pip" install -q "$one" || echo "check-trainers: no $one"
    done
fi
for one in $(packages older.txt); do
    "$dir/bin/pip" install -q --no-deps --upgrade \
        --target "$dir/older/${one%%=*}" "$one" ||
        echo "check-trainers: no $one"
done
cat "$here"/{versions,older}.txt >"$dir/versions"
