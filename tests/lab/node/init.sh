#!/usr/bin/env bash
# The node's first process, in namespaces of its own: sets them up, starts everything, and ends when
# any of it ends. With it, all that runs in the node ends.
#
#   init.sh FOLDER PARTS NODE_ADDRESS SERVICE_NETWORK
#
# FOLDER holds the configuration that the runner has written, and takes the logs.
set -euo pipefail

readonly FOLDER=$1 PARTS=$2 NODE=$3 SERVICES=$4
readonly PKI=$FOLDER/pki
export KUBECONFIG=$FOLDER/kubeconfig
declare -A NAMES=()

main() {
    own_filesystem
    own_kernel_settings
    own_network

    start containerd containerd --config "$FOLDER/containerd.toml"
    start etcd "$PARTS/etcd" --data-dir /run/etcd --unsafe-no-fsync
    start kube-apiserver "$PARTS/kube-apiserver" \
        --etcd-servers http://127.0.0.1:2379 \
        --advertise-address "$NODE" \
        --tls-cert-file "$PKI/apiserver.crt" --tls-private-key-file "$PKI/apiserver.key" \
        --client-ca-file "$PKI/ca.crt" \
        --service-account-key-file "$PKI/accounts.pub" \
        --service-account-signing-key-file "$PKI/accounts.key" \
        --service-account-issuer https://kubernetes.default.svc.cluster.local \
        --service-cluster-ip-range "$SERVICES" \
        --authorization-mode Node,RBAC \
        --kubelet-preferred-address-types InternalIP
    until "$PARTS/kubectl" get --raw /readyz >/dev/null 2>&1; do
        still_up_after 0.1
    done

    # The runner and whoever watches the pods talk to the API server by this socket.
    start kubectl-proxy "$PARTS/kubectl" proxy --unix-socket /run/api.sock
    start kube-controller-manager "$PARTS/kube-controller-manager" \
        --kubeconfig "$KUBECONFIG" --leader-elect=false --bind-address 127.0.0.1 --cert-dir /run/controllers \
        --service-account-private-key-file "$PKI/accounts.key" --root-ca-file "$PKI/ca.crt" \
        --use-service-account-credentials=true
    start kube-scheduler "$PARTS/kube-scheduler" \
        --kubeconfig "$KUBECONFIG" --leader-elect=false --bind-address 127.0.0.1 --cert-dir /run/scheduler
    start kube-proxy "$PARTS/kube-proxy" --config "$FOLDER/kube-proxy.yaml"
    start coredns "$PARTS/coredns" -conf "$FOLDER/Corefile"
    until ctr version >/dev/null 2>&1; do
        still_up_after 0.1
    done
    start events ctr events
    start kubelet "$PARTS/kubelet" --config "$FOLDER/kubelet.yaml" --kubeconfig "$KUBECONFIG" \
        --root-dir "$FOLDER/kubelet" --hostname-override lab --node-ip "$NODE"

    still_up_after infinity
}

# Nothing that is written to the usual places stays on the machine.
own_filesystem() {
    mount --make-rprivate /
    # The kubelet's mounts reach the containers.
    mount --make-rshared /
    local folder
    for folder in /run /var/log /var/lib; do
        mount -t tmpfs -o mode=755 tmpfs "$folder"
    done
    mkdir -p /run/lock "$FOLDER/logs" "$FOLDER/volume-plugins"
}

# The kubelet wants these at values of its own: it is shown files that have them.
own_kernel_settings() {
    local setting file
    for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
        file=/run/settings/${setting%=*}
        mkdir -p "$(dirname "$file")"
        printf '%s\n' "${setting#*=}" >"$file"
        mount --bind "$file" "/proc/sys/${setting%=*}"
    done
}

# A bridge that leads nowhere carries the node's address; pods get a link each.
own_network() {
    hostname lab
    ip link set lo up
    ip link add node type bridge
    ip address add "$NODE/24" dev node
    ip link set node up
    ip route add default dev node
    echo 1 >/proc/sys/net/ipv4/ip_forward
}

# start NAME COMMAND...
start() {
    local name=$1
    shift
    "$@" >"$FOLDER/logs/$name.log" 2>&1 </dev/null &
    NAMES[$!]=$name
}

# Waits so many seconds; ends the node where a process of it has ended.
still_up_after() {
    local alarm ended
    sleep "$1" &
    alarm=$!
    while true; do
        wait -n -p ended || true
        if [[ $ended == "$alarm" ]]; then
            return
        elif [[ -n ${NAMES[$ended]:-} ]]; then
            printf '%s has ended\n' "${NAMES[$ended]}" >&2
            exit 1
        fi
    done
}

main
