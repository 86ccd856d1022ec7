//! gRPC's interoperability cases with a drain that begins in the middle of their streams.

use tokio::task::JoinSet;

use crate::grpc::{self, CASES, client, server};
use crate::hold::Hold;
use crate::netns;
use crate::proxy::{BACKEND, LISTEN, Mode, Proxy};
use crate::verdicts::Verdicts;
use crate::wait::within;

/// These end by themselves, before anything has come back.
const ENDS_BY_ITSELF: [&str; 2] = ["timeout_on_sleeping_server", "cancel_after_begin"];
/// Where the server itself listens, behind what holds its replies back.
const SERVER: u16 = 28012;

#[test]
fn streams_that_a_drain_meets_end_well() {
    netns::test("drain::streams_that_a_drain_meets_end_well", || async {
        let server = server(SERVER).await;
        let hold = Hold::start(BACKEND, SERVER).await;
        let mut proxy = Proxy::start(Mode::Http).await;
        let cases = CASES
            .into_iter()
            .filter(|case| !ENDS_BY_ITSELF.contains(case));
        let mut clients = JoinSet::new();
        for case in cases {
            clients.spawn(async move {
                let ended = client(case, LISTEN).await;
                (case.to_owned(), grpc::verdict(&ended))
            });
        }
        let streams = clients.len();
        within(grpc::LIMIT, "all streams are open", hold.holds(streams)).await;
        proxy.drain().await;
        assert!(clients.try_join_next().is_none(), "nothing can have ended");
        hold.release();
        let ended = within(grpc::LIMIT, "all cases end", clients.join_all()).await;
        let verdicts = Verdicts::from_iter(ended);
        assert_eq!(verdicts.len(), streams);
        assert_eq!(grpc::failed(&verdicts), Vec::<&String>::new());
        println!("gRPC interop, drained in the middle: {streams} cases, all pass");
        drop((hold, server));
        proxy.drained().await;
    });
}
