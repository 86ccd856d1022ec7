//! Envoy's configuration as Istio would write it for a Knative pod.
//!
//! | listener | direction | to |
//! |---|---|---|
//! | `0.0.0.0:15006` `virtualInbound` | inbound, HTTP | `inbound\|8012\|\|`, 127.0.0.1:8012 |
//! | `0.0.0.0:15007` `virtualInboundTcp` | inbound, TCP | `inbound\|9000\|\|`, 127.0.0.1:9000 |
//! | `127.0.0.1:15001` `virtualOutbound` | outbound, HTTP | `outbound\|80\|\|upstream`, 127.0.0.1:7000 |
//!
//! Istio tells HTTP and TCP apart behind one listener, by the original destination; without its
//! iptables rules they are two. Its other settings that a drain can see are here: no timeouts, the
//! WebSocket upgrade, the default drain and delayed close timeouts, and the statistics it keeps.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use serde_json::{Value, json};

/// Where HTTP comes in.
pub(crate) const INBOUND: u16 = 15006;
/// Where raw TCP comes in.
pub(crate) const INBOUND_TCP: u16 = 15007;
/// Where the workload's own requests go out.
pub(crate) const OUTBOUND: u16 = 15001;
/// Where Envoy's admin interface is in an istio-proxy.
pub(crate) const ADMIN: u16 = 15000;
/// queue-proxy's port: what comes in at [`INBOUND`] goes there.
pub(crate) const QUEUE_PROXY: u16 = 8012;
/// A raw TCP server: what comes in at [`INBOUND_TCP`] goes there.
pub(crate) const TCP_APP: u16 = 9000;
/// Another service: what goes out at [`OUTBOUND`] goes there.
pub(crate) const OTHER_SERVICE: u16 = 7000;

/// What Istio keeps of Envoy's statistics by default: no `downstream_*` is among them.
const STATS_PREFIXES: [&str; 8] = [
    "reporter=",
    "cluster_manager",
    "listener_manager",
    "server",
    "cluster.xds-grpc",
    "wasm",
    "component",
    "istio",
];
const STATS_SUFFIXES: [&str; 4] = [
    "rbac.allowed",
    "rbac.denied",
    "shadow_allowed",
    "shadow_denied",
];

/// Where Envoy's admin interface listens.
#[derive(Clone, Debug)]
pub(crate) enum Admin {
    /// A port of `127.0.0.1`: [`ADMIN`], unless something else is to have that one.
    Tcp(u16),
    /// A unix socket.
    Unix(PathBuf),
}

/// The whole bootstrap, for a pod whose `sidecar.istio.io/statsInclusionRegexps` is this.
pub(crate) fn bootstrap(admin: &Admin, stats_regexps: &str) -> Value {
    json!({
        "node": {
            "id": "sidecar~127.0.0.1~hello-00001-deployment-0.default~default.svc.cluster.local",
            "cluster": "hello-00001.default",
        },
        "admin": { "address": admin_address(admin) },
        "stats_config": {
            "use_all_default_tags": false,
            "stats_matcher": { "inclusion_list": { "patterns": stats_patterns(stats_regexps) } },
        },
        "layered_runtime": { "layers": [{
            "name": "global config",
            "static_layer": { "overload.global_downstream_max_connections": "2147483647" },
        }] },
        "static_resources": {
            "listeners": [
                listener("virtualInbound", "INBOUND", Ipv4Addr::UNSPECIFIED, INBOUND, http_filter(
                    &format!("inbound_0.0.0.0_{QUEUE_PROXY};"),
                    &inbound_cluster(QUEUE_PROXY),
                )),
                listener("virtualInboundTcp", "INBOUND", Ipv4Addr::UNSPECIFIED, INBOUND_TCP, tcp_filter(
                    &inbound_cluster(TCP_APP),
                )),
                listener("virtualOutbound", "OUTBOUND", Ipv4Addr::LOCALHOST, OUTBOUND, http_filter(
                    "outbound_0.0.0.0_80;",
                    "outbound|80||upstream",
                )),
            ],
            "clusters": [
                static_cluster(&inbound_cluster(QUEUE_PROXY), QUEUE_PROXY),
                static_cluster(&inbound_cluster(TCP_APP), TCP_APP),
                static_cluster("outbound|80||upstream", OTHER_SERVICE),
                {
                    "name": "InboundPassthroughCluster",
                    "type": "ORIGINAL_DST",
                    "lb_policy": "CLUSTER_PROVIDED",
                    "connect_timeout": "10s",
                },
            ],
        },
    })
}

fn inbound_cluster(port: u16) -> String {
    format!("inbound|{port}||")
}

fn admin_address(admin: &Admin) -> Value {
    match admin {
        Admin::Tcp(port) => socket_address(Ipv4Addr::LOCALHOST, *port),
        Admin::Unix(path) => json!({ "pipe": { "path": path } }),
    }
}

fn stats_patterns(regexps: &str) -> Vec<Value> {
    let prefixes = STATS_PREFIXES.iter().map(|it| json!({ "prefix": it }));
    let suffixes = STATS_SUFFIXES.iter().map(|it| json!({ "suffix": it }));
    let regexps = regexps.split(',').filter(|it| !it.is_empty());
    let regexps = regexps.map(|it| json!({ "safe_regex": { "regex": it } }));
    prefixes.chain(suffixes).chain(regexps).collect()
}

fn listener(name: &str, direction: &str, address: Ipv4Addr, port: u16, filter: Value) -> Value {
    json!({
        "name": name,
        "traffic_direction": direction,
        "address": socket_address(address, port),
        "filter_chains": [{ "filters": [filter] }],
    })
}

fn http_filter(stat_prefix: &str, cluster: &str) -> Value {
    json!({
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": stat_prefix,
            "codec_type": "AUTO",
            "server_header_transformation": "PASS_THROUGH",
            "stream_idle_timeout": "0s",
            "normalize_path": true,
            "upgrade_configs": [{ "upgrade_type": "websocket" }],
            "route_config": {
                "name": cluster,
                "virtual_hosts": [{
                    "name": "inbound|http|80",
                    "domains": ["*"],
                    "routes": [{
                        "match": { "prefix": "/" },
                        "route": { "cluster": cluster, "timeout": "0s" },
                    }],
                }],
            },
            "http_filters": [{
                "name": "envoy.filters.http.router",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                },
            }],
        },
    })
}

fn tcp_filter(cluster: &str) -> Value {
    json!({
        "name": "envoy.filters.network.tcp_proxy",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
            "stat_prefix": cluster,
            "cluster": cluster,
        },
    })
}

fn static_cluster(name: &str, port: u16) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "10s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{
                "endpoint": { "address": socket_address(Ipv4Addr::LOCALHOST, port) },
            }] }],
        },
    })
}

fn socket_address(address: Ipv4Addr, port: u16) -> Value {
    json!({ "socket_address": { "address": address, "port_value": port } })
}
