//! The gate's counter under every order in which threads may take their steps, and see each other's.

/// What the counter is made of, as loom has it.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex};
}

#[path = "../../../src/gate/counter.rs"]
#[allow(dead_code, reason = "the gate uses all of it")]
mod counter;

#[cfg(test)]
mod orders {
    use loom::future::block_on;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use loom::thread;

    use crate::counter::{Counter, Kind};

    /// How often a thread may be interrupted where it need not be, with three threads: all orders of
    /// those take hours, and what goes wrong at all goes wrong with one or two.
    fn three_threads(orders: impl Fn() + Sync + Send + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(orders);
    }

    #[test]
    fn nothing_is_admitted_after_it_was_closed() {
        loom::model(|| {
            let counter = Counter::default();
            let closed = Arc::new(AtomicBool::new(false));
            let closer = thread::spawn({
                let (counter, closed) = (counter.clone(), closed.clone());
                move || {
                    counter.close();
                    closed.store(true, Ordering::Release);
                }
            });
            let late = closed.load(Ordering::Acquire);
            let guard = counter.admit(Kind::Request);
            assert!(!(late && guard.is_some()), "admitted after the close");
            drop(guard);
            closer.join().expect("no panic");
            assert!(counter.admit(Kind::Stream).is_none());
            assert_eq!(counter.in_flight(), 0, "a leak");
        });
    }

    /// Either the counter was closed and nothing is in flight, or something was, and it stays open.
    #[test]
    fn it_is_closed_only_when_idle() {
        loom::model(|| {
            let counter = Counter::default();
            let admitted = thread::spawn({
                let counter = counter.clone();
                move || counter.admit(Kind::Request)
            });
            let closed = counter.close_if_idle();
            let seen = counter.in_flight();
            let guard = admitted.join().expect("no panic");
            match (closed, &guard) {
                (true, Some(_)) => panic!("closed with a request in flight"),
                (false, None) => panic!("refused by a counter that is open"),
                (true, None) => assert!(counter.is_closed()),
                (false, Some(_)) => assert_eq!((seen, counter.is_closed()), (1, false)),
            }
            drop(guard);
            assert_eq!(counter.in_flight(), 0, "a leak");
        });
    }

    /// A reply that is written under a hold, taken before its guard went, is never seen as nothing.
    #[test]
    fn a_hold_bridges_the_end_of_a_guard() {
        loom::model(|| {
            let counter = Counter::default();
            let guard = counter.admit(Kind::Request);
            let written = Arc::new(AtomicBool::new(false));
            let looker = thread::spawn({
                let (counter, written) = (counter.clone(), written.clone());
                move || {
                    if counter.close_if_idle() {
                        assert!(written.load(Ordering::Relaxed), "closed before the write");
                    }
                }
            });
            let hold = counter.hold();
            drop(guard);
            written.store(true, Ordering::Relaxed);
            drop(hold);
            looker.join().expect("no panic");
        });
    }

    #[test]
    fn the_last_end_is_not_missed() {
        three_threads(|| {
            let counter = Counter::default();
            let work = Arc::new(AtomicUsize::new(0));
            let ends: Vec<_> = [Kind::Request, Kind::Stream]
                .into_iter()
                .map(|kind| {
                    let guard = counter.admit(kind);
                    let work = work.clone();
                    thread::spawn(move || {
                        work.fetch_add(1, Ordering::Relaxed);
                        drop(guard);
                    })
                })
                .collect();
            // loom says so where this would wait for ever.
            block_on(counter.idle());
            assert_eq!(work.load(Ordering::Relaxed), 2, "idle before the end");
            for end in ends {
                end.join().expect("no panic");
            }
            assert_eq!((counter.in_flight(), counter.cut()), (0, 0));
        });
    }

    /// An admission that fails looks for a moment like something in flight.
    #[test]
    fn a_refusal_does_not_lose_the_wake_up() {
        loom::model(|| {
            let counter = Counter::default();
            counter.close();
            let refused = thread::spawn({
                let counter = counter.clone();
                move || assert!(counter.admit(Kind::Request).is_none())
            });
            block_on(counter.idle());
            refused.join().expect("no panic");
        });
    }

    #[test]
    fn two_who_wait_are_both_told() {
        three_threads(|| {
            let counter = Counter::default();
            let guard = counter.admit(Kind::Tunnel);
            let other = thread::spawn({
                let counter = counter.clone();
                move || block_on(counter.idle())
            });
            let end = thread::spawn(move || drop(guard));
            block_on(counter.idle());
            end.join().expect("no panic");
            other.join().expect("no panic");
        });
    }

    #[test]
    fn an_upgrade_is_in_flight_all_along() {
        loom::model(|| {
            let counter = Counter::default();
            let guard = counter.admit(Kind::Request);
            let upgrade = thread::spawn(move || {
                let mut guard = guard.expect("open");
                guard.becomes(Kind::Tunnel);
                guard
            });
            assert!(!counter.close_if_idle());
            let guard = upgrade.join().expect("no panic");
            assert_eq!(counter.active(Kind::Tunnel), 1);
            drop(guard);
            assert!(Kind::ALL.iter().all(|kind| counter.active(*kind) == 0));
        });
    }
}
