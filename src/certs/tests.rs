//! Pairs, and files that change under the reader.

use std::fs;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};

use super::mount::Mount;
use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A self-signed pair, PEM, valid from `begins` to `ends`.
fn pair(begins: SystemTime, ends: SystemTime) -> (String, String) {
    let mut params = CertificateParams::new(vec!["webhook.test".to_owned()]).unwrap();
    params.not_before = begins.into();
    params.not_after = ends.into();
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn valid() -> (String, String) {
    let now = SystemTime::now();
    pair(now - HOUR, now + HOUR)
}

fn served(store: &Store) -> Option<Vec<u8>> {
    let serving = store.serving();
    let serving = serving.borrow();
    let pair = serving.as_ref().ok()?;
    Some(pair.key.cert[0].to_vec())
}

fn failed(store: &mut Store, now: SystemTime) -> String {
    match store.look(now) {
        Look::Failed(error) => error.to_string(),
        look => panic!("{look:?}"),
    }
}

#[test]
fn validity_is_read_to_the_second() {
    let second = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    // UTCTime ends with 2049, GeneralizedTime begins with 2050.
    for (begins, ends) in [
        (1_700_000_000, 1_900_000_001),
        (2_524_607_999, 4_102_444_800),
    ] {
        let (cert, key) = pair(second(begins), second(ends));
        let pair = Pair::parse(cert.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(
            (pair.not_before, pair.not_after),
            (second(begins), second(ends))
        );
        assert!(matches!(
            pair.check(second(begins - 1)),
            Err(CertError::NotYet(_))
        ));
        assert!(pair.check(second(begins)).is_ok());
        assert!(pair.check(second(ends - 1)).is_ok());
        assert!(matches!(
            pair.check(second(ends)),
            Err(CertError::Expired(_))
        ));
    }
}

#[test]
fn a_chain_is_valid_while_all_of_it_is() {
    let now = SystemTime::now();
    let (cert, key) = pair(now - 3 * HOUR, now + 3 * HOUR);
    let (shorter, _) = pair(now - HOUR, now + HOUR);
    let chain = cert + &shorter;
    let pair = Pair::parse(chain.as_bytes(), key.as_bytes()).unwrap();
    assert_eq!(pair.key.cert.len(), 2);
    assert!(pair.check(now - 2 * HOUR).is_err());
    assert!(pair.check(now).is_ok());
    assert!(pair.check(now + 2 * HOUR).is_err());
}

#[test]
fn what_is_no_pair_says_why() {
    let (cert, key) = valid();
    let (_, other) = valid();
    let body: String = cert.lines().filter(|line| !line.starts_with('-')).collect();
    let der = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        &body[..80]
    );
    let table: [(&str, &str, &str); 6] = [
        ("", &key, "no CERTIFICATE"),
        (&key, &key, "no CERTIFICATE"),
        (&cert, "", "the key is not PEM"),
        (&cert, &cert, "the key is not PEM"),
        (&cert, &other, "cannot serve"),
        (&der, &key, "no validity"),
    ];
    for (cert, key, why) in table {
        let error = Pair::parse(cert.as_bytes(), key.as_bytes())
            .unwrap_err()
            .to_string();
        assert!(error.contains(why), "{error:?} without {why:?}");
    }
    let cut = &cert[..cert.len() / 2];
    assert!(Pair::parse(cut.as_bytes(), key.as_bytes()).is_err());
}

#[test]
fn broken_certificates_never_panic() {
    let (cert, _) = valid();
    let der = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
    for at in 0..der.len() {
        let _ = validity(&der[..at]);
        for bit in 0..8 {
            let mut broken = der.to_vec();
            broken[at] ^= 1 << bit;
            let _ = validity(&broken);
        }
    }
}

#[test]
fn a_new_generation_is_taken_and_the_same_one_is_not() {
    let now = SystemTime::now();
    let mut mount = Mount::new();
    let mut store = Store::new(mount.files());
    assert!(failed(&mut store, now).contains("mount the Secret"));
    assert_eq!(served(&store), None);

    let (cert, key) = valid();
    mount.publish(&cert, &key);
    assert!(matches!(store.look(now), Look::Loaded));
    let first = served(&store);
    assert!(first.is_some());
    assert!(matches!(store.look(now), Look::Same));
    // The kubelet publishes again what it has published: other links, the same content.
    mount.publish(&cert, &key);
    assert!(matches!(store.look(now), Look::Same));

    let (cert, key) = valid();
    mount.publish(&cert, &key);
    assert!(matches!(store.look(now), Look::Loaded));
    assert_ne!(served(&store), first);
}

#[test]
fn the_last_good_pair_is_kept() {
    let now = SystemTime::now();
    let mut mount = Mount::new();
    let mut store = Store::new(mount.files());
    let (cert, key) = valid();
    mount.publish(&cert, &key);
    assert!(matches!(store.look(now), Look::Loaded));
    let first = served(&store);

    let (other, _) = valid();
    let (old, old_key) = pair(now - 2 * HOUR, now - HOUR);
    let (early, early_key) = pair(now + HOUR, now + 2 * HOUR);
    for (cert, key, why) in [
        (&*other, &*key, "cannot serve"),
        ("", "", "no CERTIFICATE"),
        (&old, &old_key, "expired"),
        (&early, &early_key, "not valid before"),
        (&"x".repeat(FILE_MAX as usize + 1), &key, "longer than"),
    ] {
        mount.publish(cert, key);
        let error = failed(&mut store, now);
        assert!(error.contains(why), "{error}");
        assert_eq!(served(&store), first);
    }
    fs::remove_file(mount.path().join("..data")).unwrap();
    assert!(failed(&mut store, now).contains("cannot read"));
    assert_eq!(served(&store), first);

    // The early one is taken when its time comes.
    mount.publish(&early, &early_key);
    assert!(matches!(store.look(now + HOUR + HOUR / 2), Look::Loaded));
    assert_ne!(served(&store), first);
}
