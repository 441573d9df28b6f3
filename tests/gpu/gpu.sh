# SPDX-License-Identifier: Apache-2.0
# For the GPU tests written in shell to source.

# Where there is a GPU the tests must run; without one they are skipped.
# PLAIT_TEST_GPU=1 says that there is one that these checks do not find.
if [ -z "${PLAIT_TEST_GPU-}" ] && [ ! -e /dev/nvidia0 ] &&
	[ ! -e /dev/dxg ] && ! nvidia-smi -L >/dev/null 2>&1; then
	echo "1..0 # SKIP no GPU"
	exit 0
fi

PATH=$top_builddir:$PATH
work=$(mktemp -d "${TMPDIR:-/tmp}/plait-gpu.XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
count=0

# report STATUS NAME: one line of TAP
report()
{
	count=$((count + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $count - $2"
	else
		echo "not ok $count - $2"
	fi
}

# skip WHY
skip()
{
	count=$((count + 1))
	echo "ok $count # SKIP $1"
}

# losses FILE: the loss of every step
losses()
{
	sed -n 's/.*"loss":\([^,}]*\).*/\1/p' "$1"
}

# agree A B TOLERANCE: whether A and B have as many losses, and all differ by at
# most TOLERANCE, relative. No losses or a NaN: they do not agree.
agree()
{
	losses "$1" >"$work/a"
	losses "$2" >"$work/b"
	paste "$work/a" "$work/b" | awk -v tol="$3" '
	{
		d = $1 - $2; if (d < 0) d = -d
		if (NF != 2 || !($1 > 0) || !(d <= tol * $2)) bad = 1
		if (d / $2 > worst) worst = d / $2
	}
	END {
		printf "# %d steps, worst deviation %.2g\n", NR, worst
		exit bad || NR == 0
	}'
}
