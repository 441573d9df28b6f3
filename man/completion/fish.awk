# SPDX-License-Identifier: Apache-2.0
# Completion for fish, from the same two tables as bash.awk.

function quoted(text) {
    gsub(/[\\']/, "\\\\&", text)
    return text
}

function action(argument, words) {
    if (argument == "KEY=VALUE")
        return " -x -a '(__plait_settings)'"
    if (words != "")
        return " -x -a '" quoted(words) "'"
    if (argument ~ /DIR/)
        return " -x -a '(__fish_complete_directories)'"
    if (argument ~ /FILE|F\.html/)
        return " -r -F"
    return argument == "" ? "" : " -x"
}

BEGIN {
    FS = "\t"
    print "# Made from what the programs print; see man/completion/fish.awk."
}
FNR == NR {
    if (!($1 in known)) {
        known[$1] = 1
        commands[++ncommands] = $1
    }
    rest = " -l " substr($2, 3) action($3, $4) \
        ($5 == "" ? "" : " -d '" quoted($5) "'")
    lines = lines "complete -c plait -n '__fish_seen_subcommand_from " $1 \
        "'" rest "\n"
    if ($1 ~ programs)
        lines = lines "complete -c plait-" $1 rest "\n"
    next
}
{
    n = split($0, field, " ")
    if (field[3] ~ /\|/) {
        n = split(field[3], word, "|")
        for (i = 1; i <= n; i++)
            values = values " " field[1] "=" word[i]
    } else
        keys = keys " " field[1] "="
}
END {
    print "function __plait_settings"
    printf "    printf '%%s\\n'%s%s\nend\n\n", keys, values
    printf "set -l __plait_commands"
    for (i = 1; i <= ncommands; i++)
        printf " %s", commands[i]
    print "\ncomplete -c plait -n \"not __fish_seen_subcommand_from" \
        " $__plait_commands\" -f -a \"$__plait_commands\""
    print "complete -c plait -n \"not __fish_seen_subcommand_from" \
        " $__plait_commands\" -l help"
    print "complete -c plait -n \"not __fish_seen_subcommand_from" \
        " $__plait_commands\" -l version"
    printf "%s", lines
}
