#!/usr/bin/env bash
# Installs what the tests and the linter need, and nothing that is there
# already: run it as often as you like. It says something only when it does
# something.
#
#   test/setup.sh         what `make test` needs
#   test/setup.sh lint    the linter, built from source into bin/tools
#
# To add a dependency of the tests (a database server, say) write one function
# that returns at once when the thing is there, calls `step` before it installs,
# and is listed in setup_test. Pin the version in this file, take packages from
# the sources that the machine is already set up with, and start no service
# here: each test starts its own server and kills only that one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Built from source, so that Go is all it takes. Raise it on purpose, with the
# findings of the new version fixed in the same commit.
readonly lint_module=github.com/golangci/golangci-lint/v2
readonly lint_version=v2.15.0
readonly tools=bin/tools

step() { printf 'setup: %s\n' "$*"; }

die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# need_command NAME WHY
need_command() {
    command -v "$1" >/dev/null || die "$1 is not installed: $2"
}

need_go() {
    need_command go "the project is written in Go (https://go.dev/dl)"
    local want have
    want=$(sed -n 's/^go \([0-9.]*\).*/\1/p' go.mod)
    # In this directory a go command that may switch toolchains reports the one
    # it switches to; one that may not, and is too old, fails. Then ask it
    # outside the module what it is, to name it.
    have=$(go env GOVERSION 2>/dev/null) || have=$(cd / && go env GOVERSION)
    local number=${have#*go}
    number=${number%%[!0-9.]*}
    # sort -V puts the older version first: want must not come after have.
    if [ "$(printf '%s\n' "$want" "$number" | sort -V | head -n 1)" != "$want" ]; then
        die "Go $want or later is needed, this is $have"
    fi
}

need_race_detector() {
    local cc
    cc=$(go env CC)
    # CC may carry arguments ("gcc -m64"): the first word is the program.
    need_command "${cc%% *}" "go test -race needs a C compiler"
    [ "$(go env CGO_ENABLED)" = 1 ] || die "go test -race needs cgo: unset CGO_ENABLED"
}

get_modules() {
    if GOPROXY=off go mod download >/dev/null 2>&1; then
        return
    fi
    step "downloading Go modules"
    go mod download
}

get_linter() {
    local stamp
    stamp=$tools/golangci-lint.$lint_version-$(go env GOVERSION)
    # The Go version is part of the stamp: a linter built by an older Go refuses
    # code for a newer one.
    if [ -x "$tools/golangci-lint" ] && [ -e "$stamp" ]; then
        return
    fi
    step "building golangci-lint $lint_version (about two minutes the first time)"
    rm -f "$tools"/golangci-lint*
    mkdir -p "$tools"
    # GOFLAGS is cleared because a -mod or -tags meant for this module would
    # apply to the linter's build.
    GOFLAGS='' GOBIN="$PWD/$tools" CGO_ENABLED=0 \
        go install "$lint_module/cmd/golangci-lint@$lint_version"
    : >"$stamp"
}

setup_test() {
    need_go
    need_command git "tests and the build ask it about the checkout"
    need_race_detector
    get_modules
}

setup_lint() {
    need_go
    get_linter
}

case "${1:-test}" in
test) setup_test ;;
lint) setup_lint ;;
*) die "unknown set '$1': test or lint" ;;
esac
