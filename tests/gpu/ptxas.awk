# SPDX-License-Identifier: Apache-2.0
# Summarizes ptxas -v: for each kernel of a file and architecture, the most
# registers, bytes of spilled registers and bytes of static shared memory over
# all its template instances.
#
#   awk -f ptxas.awk FILE.o.ptxas...

# The first name in a mangled name; with "dropped_" before it for the instances
# of attention's kernels with dropout, whose numbers would hide the others'.
function name_of(mangled,    n, as) {
    as = mangled ~ /17dropped_attention/ ? "dropped_" : ""
    sub(/^_Z(N[0-9]*_GLOBAL__N__[^_]*)?/, "", mangled)
    sub(/^L/, "", mangled)
    match(mangled, /^[0-9]+/)
    n = substr(mangled, 1, RLENGTH) + 0
    return as substr(mangled, RLENGTH + 1, n)
}

FNR == 1 {
    unit = FILENAME
    sub(/.*\//, "", unit)
    sub(/\.o\.ptxas$/, "", unit)
}
/Compiling entry function/ {
    split($0, part, "'")
    key = unit " " name_of(part[2]) " " part[4]
    seen[key] = 1
}
/bytes stack frame/ && key != "" {
    sub(/^ */, "")
    split($0, part, /[ ,]+/)
    bytes = part[5] + part[9]
    if (bytes > spilled[key])
        spilled[key] = bytes
}
/: Used [0-9]+ registers/ && key != "" {
    match($0, /Used [0-9]+/)
    n = substr($0, RSTART + 5, RLENGTH - 5) + 0
    if (n > registers[key])
        registers[key] = n
    if (match($0, /[0-9]+ bytes smem/)) {
        n = substr($0, RSTART, RLENGTH) + 0
        if (n > shared[key])
            shared[key] = n
    }
    key = ""
}
END {
    for (key in seen)
        print key, registers[key] + 0, spilled[key] + 0, shared[key] + 0
}
