#!/usr/bin/env bash
# Reads what `go test -v` prints of the contract suite, shows it, and ends with a
# line for each deployment that the suite ran on: how many rules hold there. Fails
# when a test failed or when a deployment is missing.
set -euo pipefail

awk '
    { print; fflush() }
    # Rules are subtests of the test of their deployment.
    /^    --- (PASS|FAIL|SKIP): TestContract[A-Za-z0-9_]*\// {
        split($3, name, "/")
        seen[name[1]] = 1
        if ($2 == "PASS:") held[name[1]]++
        else broken[name[1]]++
    }
    $1 == "ok" || $1 == "FAIL" && NF > 1 {
        for (test in seen) {
            package = $2
            sub(/^leased\//, "", package)
            lines[++n] = sprintf("  %-24s %-28s %3d rules hold, %d do not", package, test, held[test], broken[test])
            if (broken[test]) bad = 1
        }
        split("", seen); split("", held); split("", broken)
    }
    /^(FAIL|panic:)/ { bad = 1 }
    END {
        print "\nThe contract suite:"
        for (i = 1; i <= n; i++) print lines[i]
        if (n < 1) { print "  it ran nowhere"; bad = 1 }
        exit bad
    }'
