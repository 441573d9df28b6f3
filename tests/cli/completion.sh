#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Completion for zsh and fish, tested in those shells themselves.
. "$top_srcdir/tests/lib/check.sh"
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
made=$(cd "$top_builddir/man/completion" && pwd) || exit 1
export HOME=$dir XDG_CONFIG_HOME=$dir XDG_DATA_HOME=$dir

# offered LINE WORD: whether $dir/out, the shell's offers for LINE, has WORD
offered() {
    grep -qE -- "(^|[^a-z0-9.-])$2([^a-z0-9.-]|\$)" "$dir/out"
    check "$shell: '$1' offers $2" $?
}
# not_offered LINE WORD: whether it does not
not_offered() {
    ! grep -qE -- "(^|[^a-z0-9.-])$2([^a-z0-9.-]|\$)" "$dir/out"
    check "$shell: '$1' does not offer $2" $?
}

# Presses Tab in an interactive zsh on a pseudo-terminal, whose control
# sequences precede the words.
ask_zsh() {
    timeout 240 zsh -f 2>&1 <<END | sed $'s/\e\\[[0-9;?]*[A-Za-z]/ /g' >"$dir/out"
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1=; fpath=($made \\\$fpath); autoload -U compinit"
zpty -w shell "compinit -u -D; zstyle ':completion:*' list-prompt ''"
zpty -w shell "finish() { print -r -- fin''ished }; zle -N finish"
zpty -w shell "bindkey '^Xf' finish"
zpty -w shell "LISTMAX=9999; COLUMNS=200 LINES=200; echo re''ady"
while zpty -r shell line; do [[ \$line = *ready* ]] && break; done
zpty -w -n shell '$1'\$'\t\t\030f'
while zpty -r shell line; do
    print -r -- "\$line"
    [[ \$line = *finished* ]] && break
done
zpty -d shell
END
    # Remove the control sequences around words on the screen.
    sed -i $'s/\033\\[[0-9;?]*[A-Za-z]/ /g' "$dir/out"
}
ask_fish() {
    fish --no-config -c "source $made/plait.fish; complete -C '$1'" \
        >"$dir/out" 2>&1
}

count=0
for shell in zsh fish; do
    command -v $shell >/dev/null || { echo "# no $shell"; continue; }
    count=$((count + 1))
    ask_$shell 'plait '
    for command in topo plan train watch; do
        offered 'plait ' $command
    done
    ask_$shell 'plait plan --'
    offered 'plait plan --' --hostfile
    not_offered 'plait plan --' --synthetic
    ask_$shell 'plait plan --recompute '
    offered 'plait plan --recompute ' selective
    ask_$shell 'plait-train x --set parallel.s'
    offered 'plait-train x --set parallel.s' 'parallel.shard_group=?'
    ask_$shell 'plait-train x --set parallel.schedule='
    offered 'plait-train x --set parallel.schedule=' \
        '(parallel.schedule=)?interleaved'
done
[ $count -gt 0 ] || { echo "1..0 # SKIP needs zsh or fish"; exit 0; }
echo "1..$n"
