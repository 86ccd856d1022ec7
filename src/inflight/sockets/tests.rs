use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};

use proptest::prelude::*;

use super::*;

const MALFORMED: Reading<Sockets> = Reading::Unknown(Cause::Malformed);

const HEADER4: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     \n";
const HEADER6: &str = "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";

/// Linux 6.18: a listener, a reader that reads nothing with 3.9 MB in its server's send queue, a
/// closed connection in either state, an accept queue.
const TCP: &str = concat!(
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode                                                     \n",
    "   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1076 1 0000000049c35f63 100 0 0 10 0                      \n",
    "   1: 0100007F:9509 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 46133 1 000000003fd6ce9a 100 0 0 10 0                     \n",
    "   3: 0100007F:4B74 0100007F:92F4 06 00000000:00000000 03:00001763 00000000     0        0 0 3 0000000021cb4abd                                      \n",
    "   4: 0100007F:4B70 0100007F:839E 08 00000000:00000001 00:00000000 00000000     0        0 44929 1 000000006e63115c 20 4 28 10 -1                    \n",
    "   5: 0100007F:9509 0100007F:DFF8 01 003B2C00:00000000 01:00000000 00000000     0        0 46135 2 00000000e7b462f6 20 0 0 11 -1                     \n",
    "   6: 0100007F:DFF8 0100007F:9509 01 00000000:0001BA00 00:00000000 00000000     0        0 46134 3 00000000bf8437d7 20 4 0 10 -1                     \n",
    "  11: 0100007F:839E 0100007F:4B70 05 00000000:00000000 03:00001768 00000000     0        0 0 3 00000000c4accedb                                      \n",
);
const TCP6: &str = concat!(
    "  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n",
    "   0: 00000000000000000000000001000000:AB13 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 46136 1 00000000b920153b 100 0 0 10 0\n",
    "   1: 00000000000000000000000001000000:AB13 00000000000000000000000001000000:C43E 01 00000000:00000000 00:00000000 00000000     0        0 46138 1 000000000ded4860 20 0 0 10 -1\n",
    "   2: 00000000000000000000000001000000:C43E 00000000000000000000000001000000:AB13 01 00000000:00000000 00:00000000 00000000     0        0 46137 2 0000000033108c5e 20 0 0 10 -1\n",
);

fn known(listening: u32, established: u32, unsent: u64) -> Reading<Sockets> {
    Reading::Known(Sockets {
        listening,
        established,
        unsent,
    })
}

#[test]
fn tables_of_a_real_kernel() {
    let server4 = 0x9509;
    let server6 = 0xAB13;
    assert_eq!(
        parse(TCP, TCP6, &Ports::new(&[server4, server6])),
        known(2, 2, 3_877_888)
    );
    assert_eq!(
        parse(TCP, "", &Ports::new(&[server4, server6])),
        known(1, 1, 3_877_888)
    );
    assert_eq!(parse(TCP, TCP6, &Ports::new(&[server6])), known(1, 1, 0));
    assert_eq!(parse(TCP, TCP6, &Ports::new(&[])), known(0, 0, 0));
    // The other ends of the same connections are not inbound ones.
    assert_eq!(
        parse(TCP, TCP6, &Ports::new(&[0x4B74, 8012])),
        known(0, 0, 0)
    );
}

fn row(index: usize, local: &str, state: &str, tx: u32) -> String {
    format!(
        "{index:4}: {local} 0100007F:DFF8 {state} {tx:08X}:00000000 00:00000000 00000000     0        0 46135 2 00000000e7b462f6 20 0 0 11 -1\n"
    )
}

fn table4(rows: &[(u16, &str, u32)]) -> String {
    let rows = rows.iter().enumerate();
    let rows = rows
        .map(|(index, (port, state, tx))| row(index, &format!("0100007F:{port:04X}"), state, *tx));
    HEADER4.to_owned() + &rows.collect::<String>()
}

#[test]
fn states() {
    let ports = Ports::new(&[8012, 8013]);
    for (state, expected) in [
        ("01", known(0, 1, 7)),
        ("02", known(0, 0, 0)),
        ("03", known(0, 0, 0)),
        ("04", known(0, 0, 7)),
        ("05", known(0, 0, 0)),
        ("06", known(0, 0, 0)),
        ("07", known(0, 0, 0)),
        ("08", known(0, 0, 7)),
        ("09", known(0, 0, 7)),
        ("0A", known(1, 0, 0)),
        ("0B", known(0, 0, 7)),
        ("0C", known(0, 0, 0)),
    ] {
        assert_eq!(
            parse(&table4(&[(8012, state, 7)]), "", &ports),
            expected,
            "{state}"
        );
        assert_eq!(
            parse(&table4(&[(8022, state, 7)]), "", &ports),
            known(0, 0, 0),
            "{state}"
        );
    }
}

#[test]
fn envoys_ports_have_bytes_but_no_workload() {
    let rows = [
        (15006, "0A", 128),
        (15006, "01", 5),
        (15008, "09", 6),
        (15001, "01", 9),
    ];
    assert_eq!(
        parse(&table4(&rows), "", &Ports::new(&[8012])),
        known(0, 0, 11)
    );
}

#[test]
fn a_port_listens_once_however_many_rows_it_has() {
    let table = table4(&[(8012, "0A", 0), (8012, "0A", 0), (8022, "0A", 0)]);
    let local = "00000000000000000000000000000000:1F4C";
    let table6 = HEADER6.to_owned() + &row(0, local, "0A", 0).replace("0100007F:DFF8", local);
    let ports = Ports::new(&[8012, 8013, 8022, 8012]);
    assert_eq!(parse(&table, &table6, &ports), known(2, 0, 0));
}

#[test]
fn tables_that_cannot_be_believed() {
    let ports = Ports::new(&[8012]);
    assert_eq!(parse(HEADER4, HEADER6, &ports), known(0, 0, 0));
    let good = row(0, "0100007F:1F4C", "01", 1);
    assert_eq!(
        parse(&format!("{HEADER4}{good}"), "", &ports),
        known(0, 1, 1)
    );
    for (name, table) in [
        ("empty", String::new()),
        ("a lone newline", "\n".to_owned()),
        ("no header", good.clone()),
        (
            "another table's header",
            "  sl  local_address rem_address\n".to_owned(),
        ),
        (
            "an address of the other family",
            HEADER4.to_owned()
                + &good.replace("0100007F:1F4C", "00000000000000000000000001000000:1F4C"),
        ),
        (
            "a port of three digits",
            HEADER4.to_owned() + &good.replace(":1F4C", ":1F4"),
        ),
        (
            "a port of five digits",
            HEADER4.to_owned() + &good.replace(":1F4C", ":01F4C"),
        ),
        (
            "a signed queue",
            HEADER4.to_owned() + &good.replace("00000001:", "+0000001:"),
        ),
        (
            "a letter too far",
            HEADER4.to_owned() + &good.replace("00000001:", "0000000G:"),
        ),
        ("no state", HEADER4.to_owned() + &good.replace(" 01 ", " ")),
        (
            "no index",
            HEADER4.to_owned() + good.trim_start().trim_start_matches("0:"),
        ),
        (
            "no inode",
            format!(
                "{HEADER4}   0: 0100007F:1F4C 0100007F:DFF8 01 00000001:00000000 00:00000000 00000000     0        0\n"
            ),
        ),
        ("an empty line", format!("{HEADER4}\n{good}")),
        ("text", "404 page not found\n".to_owned()),
    ] {
        assert_eq!(parse(&table, "", &ports), MALFORMED, "{name}");
        assert_eq!(
            parse(HEADER4, &(table + " "), &ports),
            MALFORMED,
            "{name}, in tcp6"
        );
    }
}

#[test]
fn tables_that_were_cut() {
    let ports = Ports::new(&[0x9509]);
    for end in 0..TCP.len() {
        if !TCP[..end].ends_with('\n') {
            assert_eq!(parse(&TCP[..end], TCP6, &ports), MALFORMED, "{end}");
        }
    }
    for end in 1..TCP6.len() {
        if !TCP6[..end].ends_with('\n') {
            assert_eq!(parse(TCP, &TCP6[..end], &ports), MALFORMED, "{end}");
        }
    }
}

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (tcp, tcp6, binary, absent) = (path("tcp"), path("tcp6"), path("binary"), path("absent"));
    std::fs::write(&tcp, TCP).unwrap();
    std::fs::write(&tcp6, TCP6).unwrap();
    std::fs::write(&binary, [HEADER4.as_bytes(), &[0xff, b'\n']].concat()).unwrap();
    let ports = Ports::new(&[0x9509, 0xAB13]);
    let mut buffers = Buffers::default();
    // In this order: nothing of an earlier look may be left in the buffers.
    assert_eq!(
        read_from(&tcp, &tcp6, &ports, &mut buffers),
        known(2, 2, 3_877_888)
    );
    assert_eq!(
        read_from(&tcp, &absent, &ports, &mut buffers),
        known(1, 1, 3_877_888)
    );
    assert_eq!(
        read_from(&absent, &tcp6, &ports, &mut buffers),
        Reading::Unknown(Cause::Broken)
    );
    assert_eq!(read_from(&binary, &tcp6, &ports, &mut buffers), MALFORMED);
    let folder = folder.path().to_str().unwrap();
    assert_eq!(
        read_from(&tcp, folder, &ports, &mut buffers),
        Reading::Unknown(Cause::Broken)
    );
    std::fs::File::create(&binary)
        .unwrap()
        .set_len(TABLE_MAX + 1)
        .unwrap();
    assert_eq!(read_from(&binary, &tcp6, &ports, &mut buffers), MALFORMED);
}

/// A look that the next one confirms: other tests open and close sockets meanwhile.
fn look(ports: &Ports) -> Sockets {
    let mut buffers = Buffers::default();
    let mut last = read(ports, &mut buffers);
    for _ in 0..100 {
        let next = read(ports, &mut buffers);
        match next {
            Reading::Known(sockets) if next == last => return sockets,
            _ => last = next,
        }
    }
    panic!("no two looks agree: {last:?}");
}

#[test]
fn this_machines_own_sockets() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ports = Ports::new(&[address.port()]);
    let counts = |sockets: Sockets| (sockets.listening, sockets.established);
    assert_eq!(counts(look(&ports)), (1, 0));

    let client = TcpStream::connect(address).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let idle = look(&ports);
    assert_eq!(counts(idle), (1, 1));
    assert_eq!(idle.unsent, 0);

    server.set_nonblocking(true).unwrap();
    let mut written = 0;
    while let Ok(count) = server.write(&[0; 65536]) {
        written += count as u64;
    }
    let unsent = look(&ports).unsent;
    assert!(unsent > 0 && unsent <= written, "{unsent} of {written}");

    // The application is gone, its bytes are not.
    drop(server);
    drop(listener);
    let closed = look(&ports);
    assert_eq!(counts(closed), (0, 0));
    assert!(closed.unsent > 0);
    drop(client);
}

proptest! {
    #[test]
    fn any_table(
        rows in prop::collection::vec((0..6_usize, 1..=12_u8, any::<u32>(), any::<bool>()), 0..60),
        cut: prop::sample::Index,
    ) {
        let known_ports = [8012_u16, 8013, 8022, 15006, 15008, 40000];
        let ports = Ports::new(&known_ports[..3]);
        let (mut tcp, mut tcp6) = (HEADER4.to_owned(), HEADER6.to_owned());
        let mut listening = [false; 3];
        let mut expected = Sockets::default();
        for (index, (which, state, tx, ipv6)) in rows.into_iter().enumerate() {
            let port = known_ports[which];
            if ipv6 {
                let ip = "0000000000000000FFFF00000100007F";
                writeln!(tcp6, "{index:4}: {ip}:{port:04X} {ip}:0001 {state:02X} {tx:08X}:00000000 00:00000000 00000000 {index:5} {index:8} {index} 1 0").unwrap();
            } else {
                writeln!(tcp, "{index:4}: 0100007F:{port:04X} 0100007F:0001 {state:02X} {tx:08X}:00000000 00:00000000 00000000 {index:5} {index:8} {index} 1 0").unwrap();
            }
            match state {
                10 if which < 3 => listening[which] = true,
                1 if which < 3 => expected.established += 1,
                _ => {}
            }
            if [1, 4, 8, 9, 11].contains(&state) && which < 5 {
                expected.unsent += u64::from(tx);
            }
        }
        expected.listening = listening.iter().filter(|listens| **listens).count() as u32;
        prop_assert_eq!(parse(&tcp, &tcp6, &ports), Reading::Known(expected));
        let cut = cut.index(tcp.len());
        if !tcp[..cut].ends_with('\n') {
            prop_assert_eq!(parse(&tcp[..cut], &tcp6, &ports), MALFORMED);
        }
    }

    #[test]
    fn garbage_never_panics(tcp in "\\PC{0,200}", rows in "([ :0-9A-F]|\n){0,400}") {
        let ports = Ports::new(&[8012]);
        let _ = parse(&tcp, &rows, &ports);
        let _ = parse(&format!("{HEADER4}{rows}"), &format!("{HEADER6}{tcp}\n"), &ports);
    }
}
