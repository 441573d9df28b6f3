#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The site of the documents and man pages, by mkdocs: site.sh SOURCE BUILD
# PLAIT writes BUILD/site; the program PLAIT lists the keys.
set -e
source=$1 build=$2 plait=$3
rm -rf "$build/docs/site"
mkdir -p "$build/docs/site/pages"
for page in "$source"/docs/*.md; do
    # the folder's own README.md would be a second index
    [ "${page##*/}" = README.md ] || cp "$page" "$build/docs/site/pages/"
done
cp "$source/docs/site.css" "$source"/docs/*.svg "$build/docs/site/pages/"
cp -r "$source/docs/theme" "$build/docs/site/"
for folder in learning; do
    [ ! -d "$source/docs/$folder" ] ||
        cp -r "$source/docs/$folder" "$build/docs/site/pages/"
done
for page in "$source"/man/*.[0-9]; do
    name=${page##*/}
    {
        printf '# %s(%s)\n\n' "${name%.*}" "${name##*.}"
        MANWIDTH=80 man --nh --nj -l "$page" | col -bx | sed 's/^/    /'
    } >"$build/docs/site/pages/$name.md"
    printf '      - %s(%s): %s.md\n' "${name%.*}" "${name##*.}" "$name"
done >"$build/docs/site/manpages"
{
    printf '# Keys of a configuration\n\n'
    printf 'From the table by which `plait-train` reads files and `--set`; '
    printf 'what they mean stands in [plait.yaml(5)](plait.yaml.5.md).\n\n'
    printf '| Key | Default | Values |\n|---|---|---|\n'
    "$plait" keys | sed 's/|/, /g; s/  */ /; s/^\([^ ]*\) /\1\t/
        s/\t\(\[[^]]*\]\|[^ ]*\)  */\t\1\t/
        s/^\(.*\)\t\(.*\)\t\(.*\)$/| `\1` | \2 | \3 |/'
} >"$build/docs/site/pages/keys.md"
printf '      - Keys: keys.md\n' >>"$build/docs/site/manpages"
sed -e "/^MANPAGES/{r $build/docs/site/manpages" -e 'd}' \
    "$source/docs/mkdocs.yml" >"$build/docs/site/mkdocs.yml"
mkdocs build --quiet --strict -f "$build/docs/site/mkdocs.yml"
