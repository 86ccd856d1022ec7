#!/usr/bin/env bash
# Makes the programs of the conformance suites in a folder: h2spec, a Go backend for it, gRPC's
# interoperability client and server, and Autobahn's wstest.
#
#   tests/conformance/build.sh FOLDER PIP
#
# What is there at the pinned versions (go/go.mod, requirements-python2.txt) is kept. PIP is a pip of
# Python 3, by which virtualenv comes: Autobahn needs Python 2.7, and the virtualenv that still knows
# it. Needs Go, a C compiler, PyPI and the Go module proxy; the first run takes two minutes on two
# cores.
set -euo pipefail
shopt -s inherit_errexit

SOURCES=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly SOURCES
# The last that make environments of Python 2.7.
readonly VIRTUALENV=20.21.1

readonly GO_PROGRAMS="
h2spec   github.com/summerwind/h2spec/cmd/h2spec
backend  tidegate.dev/tests/conformance
client   google.golang.org/grpc/interop/client
server   google.golang.org/grpc/interop/server
"

main() {
    local folder
    mkdir -p "$1"
    folder=$(realpath "$1")
    make_once "$folder" go build_go "$(go version)" "$(cat "$SOURCES"/go/*)"
    make_once "$folder" autobahn install_autobahn "$VIRTUALENV" \
        "$(cat "$SOURCES/requirements-python2.txt")" "$2"
}

# make_once FOLDER NAME FUNCTION INPUT...: calls FUNCTION FOLDER, unless that was done with these
# inputs.
make_once() {
    local folder=$1 name=$2 function=$3
    local wanted stamp=$folder/$name.built started=$SECONDS
    shift 3
    wanted=$(printf '%s\n' "$@" | sha256sum)
    if [[ -f $stamp && $(<"$stamp") == "$wanted" ]]; then
        return
    fi
    rm -f "$stamp"
    "$function" "$folder" "${!#}"
    printf '%s\n' "$wanted" >"$stamp"
    printf 'made %s in %d s\n' "$name" $((SECONDS - started))
}

build_go() {
    local folder=$1 name source
    while read -r name source; do
        if [[ -n $name ]]; then
            printf 'building %s\n' "$source"
            go -C "$SOURCES/go" build -ldflags "-s -w" -o "$folder/$name" "$source"
        fi
    done <<<"$GO_PROGRAMS"
}

# install_autobahn FOLDER PIP
install_autobahn() {
    local folder=$1 pip=$2 python2
    python2=$(find_python2)
    printf 'installing Autobahn for %s\n' "$python2"
    "$pip" install --quiet --disable-pip-version-check "virtualenv==$VIRTUALENV"
    rm -rf "$folder/python2"
    "$(dirname "$pip")/python" -m virtualenv --quiet --python "$python2" "$folder/python2"
    PYTHONWARNINGS=ignore "$folder/python2/bin/pip" install --quiet --no-deps \
        --requirement "$SOURCES/requirements-python2.txt" 2> >(grep -v ^DEPRECATION >&2)
    ln -sfn python2/bin/wstest "$folder/wstest"
}

# Prints where a Python 2.7 lies: on the path, or among pyenv's.
find_python2() {
    local candidate
    for candidate in python2.7 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/2.7.*/bin/python2.7; do
        # pyenv's shims are there whether or not anything is behind them.
        if "$candidate" -c 'import ssl, zlib' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    printf 'build.sh: Autobahn needs Python 2.7, and there is none: pyenv install 2.7.18\n' >&2
    return 1
}

if (($# != 2)); then
    printf 'usage: %s FOLDER PIP\n' "$0" >&2
    exit 2
fi
main "$@"
