# SPDX-License-Identifier: Apache-2.0
# What the programs' --help says about options, as lines of
#   command TAB option TAB argument TAB words TAB help
# Input: for each command a line "@ COMMAND" and its --help. An argument
# follows after one space or "=", its words are parted by "|", or stand on the
# next line behind "one of these"; the usage line may name them too. A word in
# capitals stands for something else: FILE, DIR, N.

function words_of(argument,    part, n, i, text) {
    n = split(argument, part, "|")
    for (i = 1; i <= n; i++) {
        sub(/[A-Z][A-Z,\]]*$/, "", part[i])
        sub(/\]$/, "", part[i])
        if (n > 1 || part[i] ~ /[=:]$/ || part[i] ~ /=/) {
            sub(/=.*/, "=", part[i])
            if (part[i] != "" && part[i] !~ /^[A-Z]/)
                text = text (text == "" ? "" : " ") part[i]
        }
    }
    return text
}

function keep(option, argument, help,    id) {
    id = command SUBSEP option
    if (!(id in seen)) {
        order[++count] = id
        seen[id] = 1
        arguments[id] = argument
        helps[id] = help
        words[id] = words_of(argument)
    } else if (words_of(argument) != "")
        words[id] = words[id] " " words_of(argument)
    last = id
}

# "[--format hf|plait]"
function read_usage(line,    option, argument) {
    while (match(line, /--[a-z-]+ [^ \]]+/)) {
        argument = substr(line, RSTART, RLENGTH)
        option = argument
        sub(/ .*/, "", option)
        sub(/^[^ ]* /, "", argument)
        usage[command SUBSEP option] = argument
        used[++nused] = command SUBSEP option
        line = substr(line, RSTART + RLENGTH)
    }
}

function read_options(line,    option, argument) {
    sub(/^ +/, "", line)
    sub(/^-[A-Za-z], /, "", line)
    while (match(line, /^--[a-z][a-z0-9-]*/)) {
        option = substr(line, 1, RLENGTH)
        line = substr(line, RLENGTH + 1)
        argument = ""
        if (line ~ /^[= ][^ ]/) {
            argument = substr(line, 2)
            sub(/ .*/, "", argument)
            line = substr(line, length(argument) + 2)
        }
        sub(/^,? +/, "", line)
        if (line ~ /^--/)
            keep(option, argument, "")
        else
            keep(option, argument, line)
    }
}

/^@ / { command = $2; is_list = 0; next }
/^ *usage:/ || /^ *Usage:/ || /^ +\[--/ || /^       plait/ { read_usage($0) }
is_list {
    is_list = 0
    words[last] = $0
    sub(/^ +/, "", words[last])
    named[arguments[last]] = words[last]
    next
}
/^  -/ { read_options($0); is_list = /one of these/; next }
/^          / && last {
    sub(/^ +/, "")
    helps[last] = helps[last] (helps[last] == "" ? "" : " ") $0
    next
}
{ last = "" }

END {
    for (i = 1; i <= nused; i++)
        if (!(used[i] in seen) && used[i] !~ /\.\.\./) {
            split(used[i], part, SUBSEP)
            command = part[1]
            keep(part[2], usage[used[i]], "")
        }
    for (i = 1; i <= count; i++) {
        id = order[i]
        split(id, part, SUBSEP)
        text = words[id] != "" ? words[id] : words_of(usage[id])
        if (text == "" && arguments[id] == "TYPE")
            text = named["TYPE"]
        print part[1] "\t" part[2] "\t" arguments[id] "\t" text "\t" helps[id]
    }
}
