#!/usr/bin/env bash
# Builds etcd, kube-apiserver and kubectl into a folder, at the versions that go/*/go.mod pin.
#
#   tests/apiserver/build.sh FOLDER
#
# What is there at these versions is kept; a build that was cut short goes on from Go's build cache.
# Needs Go, the Go module proxy, and on the first run minutes and some gigabytes of cache.
set -euo pipefail
shopt -s inherit_errexit

SOURCES=$(cd "$(dirname "${BASH_SOURCE[0]}")/go" && pwd)
readonly SOURCES

main() {
    mkdir -p "$1"
    local folder
    folder=$(realpath "$1")
    build "$folder" etcd etcd go.etcd.io/etcd/server/v3 ""
    local version_flags
    version_flags=$(kubernetes_version_flags)
    build "$folder" kube-apiserver kubernetes k8s.io/kubernetes/cmd/kube-apiserver "$version_flags"
    build "$folder" kubectl kubernetes k8s.io/kubernetes/cmd/kubectl "$version_flags"
}

# build FOLDER NAME MODULE PACKAGE LINKER_FLAGS
build() {
    local folder=$1 name=$2 module=$3 package=$4 linker_flags=$5
    local wanted started=$SECONDS
    wanted=$(fingerprint "$module" "$linker_flags")
    if [[ -x $folder/$name && -f $folder/$name.built && $(<"$folder/$name.built") == "$wanted" ]]; then
        return
    fi
    printf 'building %s\n' "$package"
    rm -f "$folder/$name.built"
    go -C "$SOURCES/$module" build -ldflags "-s -w $linker_flags" -o "$folder/$name" "$package"
    printf '%s\n' "$wanted" >"$folder/$name.built"
    printf 'built %s in %d s, %d MB\n' "$name" $((SECONDS - started)) $(($(stat -c %s "$folder/$name") / 1000000))
}

# All that decides what a build gives.
fingerprint() {
    local module=$1 linker_flags=$2
    {
        go version
        printf '%s\n' "$linker_flags"
        cat "$SOURCES/$module/go.mod" "$SOURCES/$module/go.sum"
    } | sha256sum | cut -d ' ' -f 1
}

# Kubernetes reads its version from variables that its own build sets; without one kubectl refuses to
# run.
kubernetes_version_flags() {
    local version minor package
    version=$(go -C "$SOURCES/kubernetes" list -m -f '{{.Version}}' k8s.io/kubernetes)
    minor=${version#v1.}
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf -- '-X %s.gitVersion=%s -X %s.gitMajor=1 -X %s.gitMinor=%s ' \
            "$package" "$version" "$package" "$package" "${minor%%.*}"
    done
}

if (($# != 1)); then
    printf 'usage: %s FOLDER\n' "$0" >&2
    exit 2
fi
main "$@"
