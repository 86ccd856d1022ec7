#!/usr/bin/env bash
# Builds the static binaries that go into the image and checks what they cost: size, memory, start.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly MAX_BYTES=5000000
readonly MAX_RSS_KIB=6144
readonly HOOKS=18022
TARGET=$(realpath "${CARGO_TARGET_DIR:-target}")
readonly TARGET

# Prints nothing; the binary is $TARGET/$1/release/tidegate.
build() {
    rustup target add "$1"
    # gcc is for the C in ring; the linker that comes with Rust needs no cross toolchain.
    CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc \
        cargo build --locked --release --no-default-features --target "$1" --target-dir "$TARGET"
}

check_binary() {
    local binary=$1 bytes
    bytes=$(stat --format=%s "$binary")
    echo "$binary: $bytes bytes stripped, at most $MAX_BYTES"
    if ((bytes > MAX_BYTES)); then
        fail "the binary is too large"
    fi
    if ! file --brief "$binary" | grep --quiet --extended-regexp 'static(ally|-pie) linked.*, stripped'; then
        fail "not static and stripped: $(file --brief "$binary")"
    fi
}

# Starts the command in a network namespace of its own, where port 18022 is free, and waits for its
# first answer. Prints `MICROSECONDS RSS_KIB`.
measure() {
    unshare --net -- "${BASH_SOURCE[0]}" in-namespace "$@"
}

in_namespace() {
    local started pid status micros
    ip link set lo up
    started=$(now_micros)
    # An empty environment: a TIDEGATE_ setting of the caller would change what is measured.
    env --ignore-environment "$@" run >&2 &
    pid=$!
    # shellcheck disable=SC2064  # this very process, now
    trap "kill -KILL $pid" EXIT
    until status=$(ask_livez); do
        if ! kill -0 "$pid" 2>/dev/null; then
            trap - EXIT
            fail "$* run ended before it answered"
        fi
        if (($(now_micros) - started > 20000000)); then
            fail "$* run did not answer /livez within 20 s"
        fi
        sleep 0.001
    done
    micros=$(($(now_micros) - started))
    if [[ $status != "HTTP/1.1 200"* ]]; then
        fail "/livez answered: $status"
    fi
    echo "$micros $(awk '/^VmRSS:/ {print $2}' "/proc/$pid/status")"
}

# Prints the status line of an answer; fails where there is none.
ask_livez() {
    local line
    {
        exec 3<>"/dev/tcp/127.0.0.1/$HOOKS"
    } 2>/dev/null || return 1
    printf 'GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n' >&3
    IFS= read -r -t 5 line <&3 || return 1
    printf '%s' "${line%$'\r'}"
}

now_micros() {
    # The decimal sign is the locale's.
    echo "${EPOCHREALTIME/[.,]/}"
}

fail() {
    printf 'footprint: %s\n' "$*" >&2
    exit 1
}

main() {
    local x86_64=$TARGET/x86_64-unknown-linux-musl/release/tidegate
    local aarch64=$TARGET/aarch64-unknown-linux-musl/release/tidegate
    local micros rss_kib figures
    build x86_64-unknown-linux-musl
    build aarch64-unknown-linux-musl
    check_binary "$x86_64"
    check_binary "$aarch64"

    figures=$(measure "$x86_64")
    read -r micros rss_kib <<<"$figures"
    echo "x86_64: first answer after $((micros / 1000)) ms; $rss_kib KiB resident when idle, at most $MAX_RSS_KIB"
    if ((rss_kib > MAX_RSS_KIB)); then
        fail "idle, it holds too much memory"
    fi

    qemu-aarch64-static "$aarch64" --version
    figures=$(measure "$(command -v qemu-aarch64-static)" "$aarch64")
    read -r micros rss_kib <<<"$figures"
    echo "aarch64 under qemu: first answer after $((micros / 1000)) ms"
}

if [[ ${1:-} == in-namespace ]]; then
    shift
    in_namespace "$@"
else
    main
fi
