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
# The etcd server is pinned in test/etcdserver/go.mod.
readonly etcd_module=test/etcdserver
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

have_valkey() {
    command -v valkey-server >/dev/null && command -v valkey-sentinel >/dev/null &&
        valkey-server --version | grep -q ' v=[89]\.'
}

# apt_mirror prints the first mirror that the machine's own sources name for
# Debian itself, in either of the two formats of sources.
apt_mirror() {
    local file
    for file in /etc/apt/sources.list.d/*.sources /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ -r "$file" ] || continue
        awk -v release="$1" '
            /^URIs:/ { uri = $2 }
            /^Suites:/ { for (i = 2; i <= NF; i++) if ($i == release) found = 1 }
            /^$/ { if (found && uri) exit; uri = ""; found = 0 }
            $1 == "deb" {
                for (i = 2; i < NF; i++) if ($i ~ /^http/ && $(i + 1) == release) { uri = $i; found = 1; exit }
            }
            END { if (found && uri) print uri }' "$file"
    done | head -n 1
}

# get_valkey installs Valkey 8 or later: from Debian 13 as it is, from Debian
# 12's backports, which the machine's own mirror has.
get_valkey() {
    if have_valkey; then
        return
    fi
    need_command apt-get "install valkey-server and valkey-sentinel 8 or later yourself"
    [ "$(id -u)" = 0 ] || die "valkey-server 8 or later is not installed: install it and valkey-sentinel, or run $0 as root once"
    step "installing valkey-server"
    apt-get update -qq >/dev/null
    local from=()
    if ! apt-cache policy valkey-server | grep -q 'Candidate: [89]\.'; then
        local release mirror
        release=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:?}")
        mirror=$(apt_mirror "$release")
        [ -n "$mirror" ] || die "no source of packages for $release in /etc/apt: install valkey-server 8 or later yourself"
        printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s-backports main\n' \
            "$mirror" "$release" >/etc/apt/sources.list.d/leased-backports.list
        apt-get update -qq >/dev/null
        from=(-t "$release-backports")
    fi
    # RUNLEVEL=1 keeps the package from starting its services.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${from[@]}" \
        valkey-server valkey-sentinel valkey-tools >/dev/null
    have_valkey || die "the installed valkey-server is older than 8: $(valkey-server --version)"
}

have_postgres() {
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null
}

have_mariadb() {
    [ -x /usr/sbin/mariadbd ] || command -v mariadbd >/dev/null
}

# get_databases installs what the fences for SQL databases are tested on.
get_databases() {
    local packages=()
    have_postgres || packages+=(postgresql)
    have_mariadb || packages+=(mariadb-server-core)
    if [ ${#packages[@]} = 0 ]; then
        return
    fi
    need_command apt-get "install the servers of PostgreSQL and MariaDB yourself"
    [ "$(id -u)" = 0 ] || die "the server of PostgreSQL or MariaDB is not installed: install both, or run $0 as root once"
    step "installing ${packages[*]}"
    apt-get update -qq >/dev/null
    # RUNLEVEL=1 keeps the packages from starting their services.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
    have_postgres || die "the package postgresql has installed no server"
    have_mariadb || die "the package mariadb-server-core has installed no server"
}

get_etcd() {
    local stamp
    stamp=$tools/etcd.$(cat "$etcd_module"/go.mod "$etcd_module"/go.sum "$etcd_module"/main.go | cksum | cut -d ' ' -f 1)-$(go env GOVERSION)
    if [ -x "$tools/etcd" ] && [ -e "$stamp" ]; then
        return
    fi
    step "building the etcd server (about two minutes the first time)"
    rm -f "$tools"/etcd "$tools"/etcd.*
    mkdir -p "$tools"
    (cd "$etcd_module" && GOFLAGS='' CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$OLDPWD/$tools/etcd" .)
    : >"$stamp"
}

setup_test() {
    need_go
    need_command git "tests and the build ask it about the checkout"
    need_race_detector
    get_modules
    get_valkey
    get_databases
    get_etcd
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
