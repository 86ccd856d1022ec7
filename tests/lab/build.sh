#!/usr/bin/env bash
# Builds parts of a cluster into a folder, from Go modules at the versions that go/*/go.mod pin.
#
#   tests/lab/build.sh FOLDER [PART...]
#
# Without a part, all of them. What is there at these versions is kept; a build that was cut short goes
# on from Go's build cache. Needs Go, the Go module proxy, and on the first run 17 minutes on two cores
# and 8 GB of Go's caches, 1 GB of parts: with what a debugger reads, which no part keeps, it would be
# half as much again.
set -euo pipefail
shopt -s inherit_errexit

SOURCES=$(cd "$(dirname "${BASH_SOURCE[0]}")/go" && pwd)
readonly SOURCES

# The parts: what they are made of (a Go package, or a plain file of a module), and the folder
# under go/ whose go.mod names the version.
readonly TABLE="
etcd                     go    etcd        go.etcd.io/etcd/server/v3
kube-apiserver           go    kubernetes  k8s.io/kubernetes/cmd/kube-apiserver
kubectl                  go    kubernetes  k8s.io/kubernetes/cmd/kubectl
kubelet                  go    kubernetes  k8s.io/kubernetes/cmd/kubelet
kube-controller-manager  go    kubernetes  k8s.io/kubernetes/cmd/kube-controller-manager
kube-scheduler           go    kubernetes  k8s.io/kubernetes/cmd/kube-scheduler
kube-proxy               go    kubernetes  k8s.io/kubernetes/cmd/kube-proxy
coredns                  go    coredns     tidegate.dev/tests/coredns
queue-proxy              go    serving     knative.dev/serving/cmd/queue
pilot-agent              go    istio       istio.io/istio/pilot/cmd/pilot-agent
pilot-discovery          go    istio       istio.io/istio/pilot/cmd/pilot-discovery
istioctl                 go    istio       istio.io/istio/istioctl/cmd/istioctl
envoy_bootstrap.json     file  istio       istio.io/istio/tools/packaging/common/envoy_bootstrap.json
"

main() {
    local folder part at=0
    mkdir -p "$1"
    folder=$(realpath "$1")
    shift
    if (($# == 0)); then
        mapfile -t < <(part_names)
        set -- "${MAPFILE[@]}"
    fi
    for part in "$@"; do
        at=$((at + 1))
        make_part "$folder" "$part" "$at of $#"
    done
}

part_names() {
    awk 'NF {print $1}' <<<"$TABLE"
}

# make_part FOLDER NAME PROGRESS
make_part() {
    local folder=$1 name=$2 progress=$3
    local row kind module source flags wanted started=$SECONDS
    row=$(awk -v name="$name" '$1 == name' <<<"$TABLE")
    if [[ -z $row ]]; then
        fail "no part is called $name; there are: $(part_names | paste -s -d ' ')"
    fi
    read -r _ kind module source <<<"$row"
    flags=$(linker_flags "$module")
    wanted=$(fingerprint "$module" "$source $flags")
    if [[ -e $folder/$name && -f $folder/$name.built && $(<"$folder/$name.built") == "$wanted" ]]; then
        return
    fi
    printf 'building %s (%s)\n' "$name" "$progress"
    rm -f "$folder/$name.built"
    case $kind in
    go) go -C "$SOURCES/$module" build -gcflags=all=-dwarf=false -ldflags "-s -w $flags" -o "$folder/$name" "$source" ;;
    file) install -m 644 "$(file_of_module "$module" "$source")" "$folder/$name" ;;
    esac
    printf '%s\n' "$wanted" >"$folder/$name.built"
    printf 'built %s in %d s, %d kB\n' "$name" $((SECONDS - started)) \
        $(($(stat -c %s "$folder/$name") / 1000))
}

# All that decides what a build gives.
fingerprint() {
    local module=$1 settings=$2
    {
        go version
        printf '%s\n' "$settings"
        cat "$SOURCES/$module"/*
    } | sha256sum | cut -d ' ' -f 1
}

# Kubernetes reads its version from variables that its own build sets: without one kubectl refuses to
# run, and Istio takes the kubelet for one that has no native sidecars.
linker_flags() {
    local version minor package
    if [[ $1 != kubernetes ]]; then
        return
    fi
    version=$(version_of kubernetes k8s.io/kubernetes)
    minor=${version#v1.}
    for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
        printf -- '-X %s.gitVersion=%s -X %s.gitMajor=1 -X %s.gitMinor=%s ' \
            "$package" "$version" "$package" "$package" "${minor%%.*}"
    done
}

version_of() {
    go -C "$SOURCES/$1" list -m -f '{{.Version}}' "$2"
}

# Where a file of a module lies in Go's cache.
file_of_module() {
    local module=$1 source=$2 path
    path=$(cut -d / -f 1-2 <<<"$source")
    go -C "$SOURCES/$module" mod download "$path"
    printf '%s%s\n' "$(go -C "$SOURCES/$module" list -m -f '{{.Dir}}' "$path")" "${source#"$path"}"
}

fail() {
    printf 'build.sh: %s\n' "$*" >&2
    exit 1
}

if (($# == 0)); then
    printf 'usage: %s FOLDER [PART...]\n' "$0" >&2
    exit 2
fi
main "$@"
