//! The counter, in one thread; what several may do to it is shown under loom, in `tests/loom`.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Wake, Waker};

use crate::gate::counter::{Counter, Kind};

struct Flag(std::sync::atomic::AtomicUsize);

impl Wake for Flag {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn what_is_admitted_is_counted_by_kind_until_it_ends() {
    let counter = Counter::default();
    let request = counter.admit(Kind::Request).expect("open");
    let mut other = counter.admit(Kind::Request).expect("open");
    let stream = counter.admit(Kind::Stream).expect("open");
    assert_eq!(Kind::ALL.map(|kind| counter.active(kind)), [2, 1, 0]);
    other.becomes(Kind::Tunnel);
    assert_eq!(Kind::ALL.map(|kind| counter.active(kind)), [1, 1, 1]);
    assert_eq!((counter.in_flight(), counter.total()), (3, 3));
    drop(request);
    stream.cut();
    other.cut();
    assert_eq!(Kind::ALL.map(|kind| counter.active(kind)), [0, 0, 0]);
    assert_eq!(
        (counter.in_flight(), counter.total(), counter.cut()),
        (0, 3, 2)
    );
}

#[test]
fn what_enters_is_in_flight_and_arrives_when_it_is_said() {
    let counter = Counter::default();
    let request = counter.enter(Kind::Request).expect("open");
    assert_eq!((counter.in_flight(), counter.total()), (1, 0));
    request.arrives();
    assert_eq!((counter.in_flight(), counter.total()), (1, 1));
    counter.close();
    assert!(counter.enter(Kind::Request).is_none());
}

#[test]
fn a_closed_counter_admits_nothing_and_holds_what_is_there() {
    let counter = Counter::default();
    let request = counter.admit(Kind::Request).expect("open");
    assert!(!counter.close_if_idle(), "a request is in flight");
    let hold = counter.hold();
    drop(request);
    assert!(!counter.close_if_idle(), "its reply is not written");
    drop(hold);
    assert!(counter.close_if_idle());
    assert!(counter.close_if_idle(), "it stays closed");
    assert!(counter.is_closed());
    assert!(counter.admit(Kind::Request).is_none());
    assert_eq!((counter.in_flight(), counter.total()), (0, 1));
    let hold = counter.hold();
    assert_eq!(counter.in_flight(), 1);
    drop(hold);
}

#[test]
fn the_last_end_wakes_whoever_waits_and_nobody_else() {
    let counter = Counter::default();
    let flag = std::sync::Arc::new(Flag(0.into()));
    let waker = Waker::from(flag.clone());
    let mut cx = Context::from_waker(&waker);
    let wakes = || flag.0.load(Ordering::SeqCst);

    let (one, two) = (counter.admit(Kind::Request), counter.admit(Kind::Stream));
    let mut idle = counter.idle();
    assert!(Pin::new(&mut idle).poll(&mut cx).is_pending());
    assert!(Pin::new(&mut idle).poll(&mut cx).is_pending());
    let mut left = counter.idle();
    assert!(Pin::new(&mut left).poll(&mut cx).is_pending());
    drop(left);
    drop(one);
    assert_eq!(wakes(), 0);
    drop(two);
    assert_eq!(wakes(), 1, "once, though it asked twice");
    assert!(Pin::new(&mut idle).poll(&mut cx).is_ready());
    drop(counter.admit(Kind::Request));
    assert_eq!(wakes(), 1, "nobody waits any more");
}
