# SPDX-License-Identifier: Apache-2.0
# awk -f includes.awk ARROWS FILE...: print every #include of the files that
# has no arrow in ARROWS, and every cycle of the arrows; exit 1 if there are
# any. File names start at the root of the tree.

# The longest prefix of a path that is a room, that is, a folder in ARROWS.
function room_of(path) {
    while (sub(/\/[^\/]*$/, "", path))
        if (path in room)
            return path
    return ""
}

function complain(text) {
    print text
    wrong = 1
}

# Depth first: a room that is met again on the way down closes a cycle.
function visit(name, way,    i, n, to) {
    if (state[name] == 2)
        return
    if (state[name] == 1) {
        complain("cycle of rooms:" way " -> " name)
        return
    }
    state[name] = 1
    n = split(allowed[name], to, " ")
    for (i = 1; i <= n; i++)
        visit(to[i], way " -> " name)
    state[name] = 2
}

function read_arrow(line,    name, to, i, n) {
    name = line
    sub(/:.*/, "", name)
    sub(/^[^:]*:[ \t]*/, "", line)
    if (name ~ /^</) {
        system_header[substr(name, 2)] = " " line " "
        return
    }
    room[name] = 1
    allowed[name] = line
    n = split(line, to, " ")
    for (i = 1; i <= n; i++)
        arrow[name, to[i]] = 1
}

# Private headers, which only files of the same room may include.
function is_private(path) {
    return path ~ /(^|\/)([a-z_0-9]*_private|internal|common|build)\.(h|cuh)$/
}

function check_own(header,    from, to) {
    if (header == "config.h")
        return # made by configure
    if (header ~ /^plait\//)
        header = "topology/api/" header
    from = room_of(FILENAME)
    to = room_of(header)
    if (to == "")
        complain(FILENAME ":" FNR ": \"" header "\" is not a path from the" \
                 " root of the tree")
    else if (from == to)
        return
    else if (is_private(header))
        complain(FILENAME ":" FNR ": " header " is private to " to)
    else if (!((from, to) in arrow))
        complain(FILENAME ":" FNR ": " from " -> " to " points up (" header \
                 ")")
}

function check_system(header,    prefix, from) {
    if (header ~ /^plait\//) {
        check_own(header)
        return
    }
    from = room_of(FILENAME)
    for (prefix in system_header)
        if (index(header, prefix) == 1 &&
            index(system_header[prefix], " " from " ") == 0)
            complain(FILENAME ":" FNR ": " from " includes <" header ">")
}

FILENAME == ARGV[1] {
    sub(/#.*/, "")
    if (/:/)
        read_arrow($0)
    next
}

FNR == 1 && room_of(FILENAME) == "" {
    complain(FILENAME ": its folder has no line in the table of arrows")
}

/^[ \t]*#[ \t]*include[ \t]*["<]/ {
    header = $0
    sub(/^[^"<]*["<]/, "", header)
    sub(/[">].*/, "", header)
    if ($0 ~ /include[ \t]*"/)
        check_own(header)
    else
        check_system(header)
}

END {
    for (name in room)
        visit(name, "")
    exit wrong
}
