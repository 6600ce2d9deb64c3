#!/usr/bin/env bash
# Runs every fuzz target in the tree for a while, one after the other.
#
#   test/fuzz.sh 30s [packages]
#
# go test fuzzes one target of one package a run, and a target that nobody
# starts finds nothing: so the targets are asked for, not listed by hand.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fuzztime=${1:?usage: test/fuzz.sh TIME [packages]}
shift
[ $# -gt 0 ] || set -- ./...

# For each package go test prints the names of its targets, then "ok" and the
# package. The exit code is looked at before the output: a package that does not
# compile must fail the run, not shorten the list.
listing=$(go test -list '^Fuzz' "$@") || {
    printf '%s\n' "$listing" >&2
    exit 1
}
targets=$(awk '/^Fuzz/ { names[n++] = $1 }
    $1 == "ok" { for (i = 0; i < n; i++) print $2, names[i]; n = 0 }' <<<"$listing")
[ -n "$targets" ] || {
    echo "fuzz: no targets found in $*" >&2
    exit 1
}

count=0
while read -r package name; do
    echo "fuzz: $package $name for $fuzztime"
    # Standard input is the list of targets, and go test must not read it. Making
    # inputs smaller, 60 s each unless bounded, would take all of a slow target's
    # time.
    go test -run '^$' -fuzz "^$name\$" -fuzztime "$fuzztime" -fuzzminimizetime 2s "$package" </dev/null
    count=$((count + 1))
done <<<"$targets"
echo "fuzz: $count targets, nothing found"
