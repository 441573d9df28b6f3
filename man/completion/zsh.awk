# SPDX-License-Identifier: Apache-2.0
# Completion for zsh, from the same two tables as bash.awk.

function quoted(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/\[/, "\\[", text)
    gsub(/\]/, "\\]", text)
    gsub(/:/, "\\:", text)
    gsub(/'/, "'\\''", text)
    return text
}

function action(argument, words) {
    if (argument == "KEY=VALUE")
        return ":setting:_plait_setting"
    if (words != "")
        return ":" quoted(argument) ":(" quoted(words) ")"
    if (argument ~ /DIR/)
        return ":" argument ":_files -/"
    if (argument ~ /FILE|F\.html/)
        return ":" argument ":_files"
    return argument == "" ? "" : ":" quoted(argument) ": "
}

BEGIN {
    FS = "\t"
    print "#compdef plait plait-train plait-prep plait-probe plait-convert" \
        " plait-generate plait-eval plait-report plait-watch" \
        " plait-stuck plait-drill"
    print "# Made from what the programs print; see man/completion/zsh.awk."
}
FNR == NR {
    if (!($1 in specs))
        commands[++ncommands] = $1
    # An argument follows after a space or after "=".
    specs[$1] = specs[$1] sprintf(" \\\n        '*%s%s[%s]%s'", $2,
        $3 == "" ? "" : "=", quoted($5), action($3, $4))
    next
}
{
    split($0, field, " ")
    keys = keys " " field[1]
    if (field[3] ~ /\|/) {
        gsub(/\|/, " ", field[3])
        values = values sprintf("        %s) words=(%s) ;;\n", field[1],
            field[3])
    }
}
END {
    printf "\n_plait_setting()\n{\n    local -a words\n"
    printf "    if compset -P 1 '*='; then\n        case ${IPREFIX%%=} in\n"
    gsub(/\n        /, "\n        *", values)
    printf "        *%s        esac\n", substr(values, 9)
    print "        compadd -a words\n    else"
    printf "        compadd -S = --%s\n    fi\n}\n\n_plait_of()\n{\n", keys
    print "    case $1 in"
    for (i = 1; i <= ncommands; i++)
        printf "    %s)\n        _arguments%s \\\n        '*:file:_files' ;;\n",
            commands[i], specs[commands[i]]
    print "    esac\n}\n"
    print "if [[ $service != plait ]]; then\n    _plait_of ${service#plait-}"
    print "elif ((CURRENT == 2)); then"
    printf "    compadd -- --help --version"
    for (i = 1; i <= ncommands; i++)
        printf " %s", commands[i]
    print "\nelse\n    shift words\n    ((CURRENT--))"
    print "    _plait_of $words[1]\nfi"
}
