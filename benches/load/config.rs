//! The peers' configurations: one worker, no access log, idle upstream connections kept, their
//! defaults otherwise, except where a default would hold a peer back.

use std::path::Path;

use serde_json::{Value, json};

use crate::peers::{BACKEND, Ports};

/// At least as many idle upstream connections are kept as there are clients.
const POOL: usize = 64;

/// When HAProxy moves bytes by `splice(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Splice {
    /// Where it finds that worth while.
    Auto,
    Always,
}

pub(crate) fn haproxy(tcp: bool, splice: Splice, ports: Ports) -> String {
    let (h1, h2) = (ports.h1, ports.h2);
    let (up1, up2) = (BACKEND.h1, BACKEND.h2);
    let (mode, proto) = if tcp {
        ("tcp", "")
    } else {
        ("http", " proto h2")
    };
    let splice = match splice {
        Splice::Auto => "option splice-auto",
        Splice::Always => "option splice-request\n    option splice-response",
    };
    let reuse = if tcp { "" } else { "    http-reuse always\n" };
    format!(
        "global
    nbthread 1
    maxconn 4096

defaults
    mode {mode}
    {splice}
    timeout connect 10s
    timeout client 60s
    timeout server 60s
    timeout tunnel 60s
{reuse}
listen one
    bind 127.0.0.1:{h1}
    server backend 127.0.0.1:{up1}

listen two
    bind 127.0.0.1:{h2}{proto}
    server backend 127.0.0.1:{up2}{proto}
"
    )
}

/// It speaks HTTP/1.1 to the backend whatever the client speaks: it has no HTTP/2 for that. What does
/// not fit into its buffers waits in the backend, not in files.
pub(crate) fn nginx(dir: &Path, ports: Ports) -> String {
    let (h1, h2) = (ports.h1, ports.h2);
    let up1 = BACKEND.h1;
    let dir = dir.display();
    format!(
        "worker_processes 1;
master_process off;
daemon off;
pid {dir}/nginx.pid;
error_log stderr error;
events {{
    worker_connections 4096;
}}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {dir}/nginx-body;
    proxy_temp_path {dir}/nginx-proxy;
    fastcgi_temp_path {dir}/nginx-fastcgi;
    uwsgi_temp_path {dir}/nginx-uwsgi;
    scgi_temp_path {dir}/nginx-scgi;
    proxy_max_temp_file_size 0;
    proxy_http_version 1.1;
    map $http_upgrade $connection_upgrade {{
        default upgrade;
        '' '';
    }}
    upstream backend {{
        server 127.0.0.1:{up1};
        keepalive {POOL};
        keepalive_requests 1000000000;
    }}
    server {{
        listen 127.0.0.1:{h1};
        location / {{
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_pass http://backend;
        }}
    }}
    server {{
        listen 127.0.0.1:{h2} http2;
        location / {{
            proxy_set_header Connection '';
            proxy_pass http://backend;
        }}
    }}
}}
"
    )
}

/// One worker besides the main thread; no request ids, no timeouts.
pub(crate) fn envoy(ports: Ports) -> Value {
    json!({
        "node": { "id": "load", "cluster": "load" },
        "layered_runtime": { "layers": [{
            "name": "limits",
            "static_layer": { "overload.global_downstream_max_connections": "2147483647" },
        }] },
        "static_resources": {
            "listeners": [
                listener("one", ports.h1, "HTTP1"),
                listener("two", ports.h2, "HTTP2"),
            ],
            "clusters": [
                cluster("one", BACKEND.h1, "http_protocol_options"),
                cluster("two", BACKEND.h2, "http2_protocol_options"),
            ],
        },
    })
}

fn listener(name: &str, port: u16, codec: &str) -> Value {
    json!({
        "name": name,
        "address": address(port),
        "filter_chains": [{ "filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": name,
                "codec_type": codec,
                "generate_request_id": false,
                "stream_idle_timeout": "0s",
                "upgrade_configs": [{ "upgrade_type": "websocket" }],
                "route_config": {
                    "name": name,
                    "virtual_hosts": [{
                        "name": name,
                        "domains": ["*"],
                        "routes": [{
                            "match": { "prefix": "/" },
                            "route": { "cluster": name, "timeout": "0s" },
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
        }] }],
    })
}

fn cluster(name: &str, port: u16, protocol: &str) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "10s",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { protocol: {} },
            },
        },
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(port) } }] }],
        },
    })
}

fn address(port: u16) -> Value {
    json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } })
}
