#!/usr/bin/env bash
# Builds the image's last stage from the binaries that footprint.sh has built, and checks what is in it.
#
#   tests/image.sh             on both architectures
#   tests/image.sh FILE        on x86_64, from that binary alone, and writes it to FILE as an OCI archive
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly MAX_BYTES=6000000
TARGET=$(realpath "${CARGO_TARGET_DIR:-target}")
readonly TARGET
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
readonly VERSION
# Images and containers of this run alone, gone with it.
WORK=$(mktemp -d)
readonly WORK
trap 'rm -rf "$WORK"' EXIT

# No daemon, no network and no user namespaces.
in_store() {
    command buildah --root "$WORK/root" --runroot "$WORK/run" --storage-driver vfs "$@"
}

build() {
    local arch=$1
    in_store bud --isolation chroot --quiet --pull-never --file docker/Dockerfile \
        --platform "linux/$arch" --build-arg BINARIES=prebuilt \
        --build-arg "VERSION=$VERSION" --build-arg "REVISION=$(revision)" \
        --tag "tidegate:$arch" "$WORK/context" >"$WORK/build.log" 2>&1 ||
        fail "$arch does not build: $(cat "$WORK/build.log")"
}

revision() {
    git rev-parse HEAD 2>/dev/null || echo unknown
}

# Fails unless the image's field is what it must be.
expect() {
    local image=$1 field=$2 wanted=$3 found
    found=$(in_store inspect --type image --format "{{$field}}" "$image")
    if [[ $found != "$wanted" ]]; then
        fail "$image: $field is $found, not $wanted"
    fi
}

check() {
    local arch=$1 image=tidegate:$1 container root files bytes version
    expect "$image" .OCIv1.Architecture "$arch"
    expect "$image" .OCIv1.Config.User 65532:65532
    expect "$image" .OCIv1.Config.Entrypoint '[/tidegate]'
    expect "$image" 'index .OCIv1.Config.Labels "org.opencontainers.image.version"' "$VERSION"

    container=$(in_store from --pull-never "$image")
    root=$(in_store mount "$container")
    files=$(cd "$root" && find . -mindepth 1 -printf '%P %y %m %U:%G\n')
    if [[ $files != 'tidegate f 555 0:0' ]]; then
        fail "$image holds more or other than its binary: $files"
    fi
    bytes=$(stat --format=%s "$root/tidegate")
    echo "$image: $bytes bytes, at most $MAX_BYTES"
    if ((bytes > MAX_BYTES)); then
        fail "the image is too large"
    fi
    if [[ $arch == amd64 ]]; then
        # Not by `buildah run`, which now and then loses what a short process prints.
        version=$(chroot --userspec=65532:65532 "$root" /tidegate --version)
        if [[ $version != "tidegate $VERSION" ]]; then
            fail "it says $version, not tidegate $VERSION"
        fi
        echo "$image: $version"
    fi
}

fail() {
    printf 'image: %s\n' "$*" >&2
    exit 1
}

# take ARCH TARGET: puts the binary where docker/Dockerfile looks for it.
take() {
    local arch=$1 binary=$TARGET/$2/release/tidegate
    if [[ ! -x $binary ]]; then
        fail "no $binary; run ./test footprint before"
    fi
    install -D "$binary" "$WORK/context/$arch/tidegate"
}

main() {
    local arch
    take amd64 x86_64-unknown-linux-musl
    if (($# == 1)); then
        build amd64
        check amd64
        rm -f "$1"
        in_store push --quiet tidegate:amd64 "oci-archive:$1:$VERSION"
        return
    fi
    take arm64 aarch64-unknown-linux-musl
    for arch in amd64 arm64; do
        build "$arch"
        check "$arch"
    done
}

main "$@"
