# SPDX-License-Identifier: Apache-2.0
# Completion for bash: the tables of options and keys (table.awk, and `plait
# keys`, in this order), and the function that looks things up in them.

BEGIN {
    FS = "\t"
    print "# Made from what the programs print; see man/completion/bash.awk."
}
FNR == NR {
    if (!($1 in options))
        commands[++ncommands] = $1
    options[$1] = options[$1] " " $2
    if ($4 != "")
        choices = choices sprintf("    %s,%s) echo '%s' ;;\n", $1, $2, $4)
    next
}
{
    split($0, field, " ")
    keys = keys " " field[1] "="
    if (field[3] ~ /\|/) {
        gsub(/\|/, " ", field[3])
        values = values sprintf("    %s) echo '%s' ;;\n", field[1], field[3])
    }
}
END {
    print "_plait_options()\n{\n    case $1 in"
    for (i = 1; i <= ncommands; i++)
        printf "    %s) echo '%s' ;;\n", commands[i], options[commands[i]]
    print "    esac\n}\n\n_plait_words()\n{\n    case $1,$2 in"
    printf "%s    esac\n}\n\n_plait_values()\n{\n    case $1 in\n", choices
    printf "%s    esac\n}\n\n_plait_keys='%s'\n_plait_commands='", values, keys
    for (i = 1; i <= ncommands; i++)
        printf " %s", commands[i]
    print " --help --version'\n"
}
