#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The recipes in packaging/ can be parsed, pass only options that configure
# knows, and name files that an installation has; `make install` works with any
# DESTDIR and prefix.
. "$top_srcdir/tests/lib/check.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL
here=$top_srcdir/packaging
skip() { echo "ok $((n = n + 1)) - # SKIP $1"; }

"${MAKE:-make}" -s -C "$top_builddir" DESTDIR="$tmp/root" \
    prefix=/opt/plait install >"$tmp/log" 2>&1
status=$?
[ $status = 0 ] || tail -n 20 "$tmp/log" | sed 's/^/# /'
check "make install with a DESTDIR and another prefix" $status
prefix=$tmp/root/opt/plait
wrong=
for program in "$prefix"/bin/plait*; do
    env -i LD_LIBRARY_PATH="$prefix/lib" PATH=/nowhere "$program" --version \
        >/dev/null 2>"$tmp/err" || wrong+=" ${program##*/}"
done
[ "$(find "$prefix/bin" -name 'plait*' | wc -l)" -ge 9 ] || wrong+=" few"
check "what is installed there runs without PATH:${wrong:- all}" ${#wrong}
env -i PATH=/nowhere "$prefix/bin/plait" watch --version >/dev/null
check "plait finds its programs beside itself" $?
[ -e "$prefix/share/bash-completion/completions/plait-train" ] &&
    [ -e "$prefix/share/zsh/site-functions/_plait" ] &&
    [ -e "$prefix/share/fish/vendor_completions.d/plait-watch.fish" ]
check "completion is installed for three shells" $?

# A full disk, here a limit of the size of files, breaks the second
# installation off, at the first library: nobody may find a part of it then.
if [ -e "$top_builddir/.libs/spank_plait.so" ]; then
    plugin=$(find "$tmp/root" -name spank_plait.so)
    library=$prefix/lib/libplait.so.0
    cp "$plugin" "$tmp/plugin"
    cp "$library" "$tmp/library"
    (ulimit -f 64 && "${MAKE:-make}" -s -C "$top_builddir" DESTDIR="$tmp/root" \
        prefix=/opt/plait install-slurmpluginLTLIBRARIES) >"$tmp/log" 2>&1
    [ $? != 0 ] && cmp "$plugin" "$tmp/plugin" &&
        cmp "$library" "$tmp/library"
    check "make install that breaks off leaves what was there whole" $?
    "${MAKE:-make}" -s -C "$top_builddir" DESTDIR="$tmp/root" \
        prefix=/opt/plait install-slurmpluginLTLIBRARIES >"$tmp/log" 2>&1 &&
        [ "$(ls -A "${plugin%/*}" | tr '\n' ' ')" = \
            "spank_plait.la spank_plait.so " ]
    check "make install again: nothing lies beside it" $?
    readelf -d "$plugin" 2>/dev/null | grep -qE 'BIND_NOW|Flags:.* NOW'
    [ $? = 1 ]
    check "Slurm can load the plugin lazily" $?
else
    skip "no plugin"
fi

missing=
for option in $(grep -ohE -- '--with(out)?-[a-z-]+' "$here"/*/* |
    sed 's/--with\(out\)\{0,1\}-//' | sort -u); do
    grep -q -- "\[$option\]" "$top_srcdir"/m4/*.m4 "$top_srcdir/configure.ac" ||
        missing+=" $option"
done
check "configure knows their options:${missing:- all}" ${#missing}

if command -v python3 >/dev/null; then
    cat >"$tmp/read.py" <<'END'
import ast, os, sys
here, prefix = sys.argv[1:]
ast.parse(open(here + "/spack/package.py").read())
recipes = {}
for name in os.listdir(here + "/easybuild"):
    recipe = {"SHLIB_EXT": "so", "SYSTEM": {"name": "system"}}
    exec(open(here + "/easybuild/" + name).read(), recipe)
    assert name == "%s-%s-%s-%s.eb" % (
        recipe["name"], recipe["version"], recipe["toolchain"]["name"],
        recipe["toolchain"]["version"]), name
    recipes[recipe["name"]] = recipe
recipe = recipes.pop("plait")
for name, other in recipes.items():
    assert (name, other["version"]) in recipe["dependencies"], name
paths = recipe["sanity_check_paths"]
for path in paths["files"] + paths["dirs"]:
    if path != "lib/libplait.so":
        assert os.path.exists(os.path.join(prefix, path)), path
END
    python3 -B "$tmp/read.py" "$here" "$prefix"
    check "Spack's and EasyBuild's recipes are Python" $?
else
    skip "no python3"
fi

# What Spack and EasyBuild ask of a recipe's style, where their checkers are.
if command -v black >/dev/null && command -v flake8 >/dev/null; then
    black -q --check -l 99 "$here/spack/package.py" &&
        flake8 --max-line-length 99 --extend-ignore F403,F405 \
            "$here/spack/package.py" | sed 's/^/# /'
    [ "${PIPESTATUS[*]}" = '0 0' ]
    check "Spack's recipe has Spack's style" $?
else
    skip "no black and flake8"
fi
if command -v eb >/dev/null && [ "$(id -u)" != 0 ] &&
    [ -n "${MODULESHOME:-}${LMOD_CMD:-}" ]; then
    tool=Lmod
    [ -n "${LMOD_CMD:-}" ] || tool=EnvironmentModules
    (cd "$here/easybuild" && HOME=$tmp eb --prefix "$tmp/eb" \
        --modules-tool $tool --module-syntax Tcl \
        --check-style ./*.eb) >"$tmp/log" 2>&1
    status=$?
    [ $status = 0 ] || sed 's/^/# /' "$tmp/log"
    check "EasyBuild's recipes have EasyBuild's style" $status
else
    skip "no eb with a module command, which does not run as root"
fi

# Both kinds of module files must set these variables, by the version that
# their own names say.
said='PATH=/opt/plait/1.2/bin MANPATH=/opt/plait/1.2/share/man
    LD_LIBRARY_PATH=/opt/plait/1.2/lib
    PKG_CONFIG_PATH=/opt/plait/1.2/lib/pkgconfig
    XDG_DATA_DIRS=/opt/plait/1.2/share
    FPATH=/opt/plait/1.2/share/zsh/site-functions'
if command -v tclsh >/dev/null; then
    { echo 'proc prepend-path {name path} { puts "$name=$path" }'
        echo 'proc module-whatis {text} {}'
        echo 'proc conflict {name} {}'
        echo 'proc module-info {what} { return plait/1.2 }'
        cat "$here/modules/plait.tcl"; } >"$tmp/module.tcl"
    # shellcheck disable=SC2086 # words are meant
    tclsh "$tmp/module.tcl" | diff - <(printf '%s\n' $said)
    check "the Tcl module file" $?
else
    skip "no tclsh"
fi
lua=$(command -v lua5.4 lua5.3 lua5.1 lua | head -n 1)
if [ -n "$lua" ]; then
    { echo 'function help() end function whatis() end'
        echo 'function myModuleVersion() return "1.2" end'
        echo 'function pathJoin(a, b) return a .. "/" .. b end'
        echo 'function prepend_path(n, p) print(n .. "=" .. p) end'
        cat "$here/modules/plait.lua"; } >"$tmp/module.lua"
    # shellcheck disable=SC2086
    "$lua" "$tmp/module.lua" | diff - <(printf '%s\n' $said)
    check "the Lua module file" $?
else
    skip "no lua"
fi
# The real module command: two versions, one after the other.
if command -v modulecmd >/dev/null; then
    mkdir -p "$tmp/modules/plait"
    for version in 1.2 1.3; do
        cp "$here/modules/plait.tcl" "$tmp/modules/plait/$version"
    done
    first() {
        MODULEPATH=$tmp/modules PATH=/usr/bin:/bin sh -c '
            for v; do eval "$('"$(command -v modulecmd)"' sh $v)"; done
            echo "${PATH%%:*}"' sh "$@" 2>>"$tmp/err"
    }
    [ "$(first 'load plait/1.2')" = /opt/plait/1.2/bin ] &&
        [ "$(first 'load plait/1.2' 'switch plait/1.2 plait/1.3')" = \
            /opt/plait/1.3/bin ] &&
        [ "$(first 'load plait/1.2' 'load plait/1.3')" = /opt/plait/1.2/bin ]
    check "module load and switch between two versions" $?
else
    skip "no modulecmd"
fi

sed -n '/^%post/,/^%environment/{/^%/d;p;}' "$here/apptainer/plait.def" \
    >"$tmp/post"
[ -s "$tmp/post" ] && sh -n "$tmp/post"
check "Apptainer's %post is a script" $?
echo "1..$n"
