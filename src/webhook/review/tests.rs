//! Reviews as bytes in and bytes out.

use serde_json::json;

use super::*;

fn review(patch: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller"},
            "object": {"metadata": {"generateName": "cart-00001-"}, "spec": {"containers": []}},
            "oldObject": null,
            "dryRun": false,
            "options": {"kind": "CreateOptions"},
        },
    });
    patch(&mut review);
    review.to_string().into_bytes()
}

fn patched(_: &Value) -> Mutation {
    Mutation::Patch {
        patch: br#"[{"op":"add","path":"/spec/x","value":1}]"#.to_vec(),
        warnings: vec!["tidegate: look".to_owned()],
    }
}

fn answered(body: &[u8], mutate: &Mutate) -> (Answered, Value) {
    let answered = answer(body, mutate).unwrap();
    let body = serde_json::from_slice(&answered.body).unwrap();
    (answered, body)
}

#[test]
fn a_patch_goes_back_in_base64_with_its_warnings() {
    let (answered, body) = answered(&review(|_| {}), &patched);
    assert_eq!(answered.outcome, Outcome::Patched);
    assert_eq!(answered.subject, "shop/cart-00001-*");
    assert_eq!(answered.reason, None);
    assert_eq!(
        body,
        json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {
                "uid": "705ab4f5",
                "allowed": true,
                "patchType": "JSONPatch",
                "patch": "W3sib3AiOiJhZGQiLCJwYXRoIjoiL3NwZWMveCIsInZhbHVlIjoxfV0=",
                "warnings": ["tidegate: look"],
            },
        })
    );
}

#[test]
fn the_mutation_sees_the_pod_as_it_was_sent() {
    let body =
        review(|review| review["request"]["object"] = json!({"z": 1, "a": {"unknown": [null]}}));
    let seen = std::sync::Mutex::new(String::new());
    let mutate = {
        let seen = std::sync::Arc::new(seen);
        let kept = seen.clone();
        let mutate = move |pod: &Value| {
            *seen.lock().unwrap() = pod.to_string();
            Mutation::Unchanged { warnings: vec![] }
        };
        (mutate, kept)
    };
    let (answered, body) = answered(&body, &mutate.0);
    assert_eq!(
        *mutate.1.lock().unwrap(),
        r#"{"z":1,"a":{"unknown":[null]}}"#
    );
    assert_eq!(answered.outcome, Outcome::Unchanged);
    assert_eq!(
        body["response"],
        json!({"uid": "705ab4f5", "allowed": true})
    );
}

#[test]
fn a_refusal_is_a_403_that_says_why() {
    let refuse = |_: &Value| Mutation::Refused("tidegate: mend it".to_owned());
    let (answered, body) = answered(&review(|_| {}), &refuse);
    assert_eq!(answered.outcome, Outcome::Denied);
    assert_eq!(answered.reason.as_deref(), Some("tidegate: mend it"));
    assert_eq!(body["response"]["allowed"], false);
    let status = json!({
        "status": "Failure", "message": "tidegate: mend it", "reason": "Forbidden", "code": 403,
    });
    assert_eq!(body["response"]["status"], status);
}

#[test]
fn a_panic_lets_the_pod_through_with_a_warning() {
    let panics: [&Mutate; 2] = [&|_| panic!("no {}", "luck"), &|pod| {
        Mutation::Refused(pod["spec"].as_str().expect("a text").to_owned())
    }];
    for (mutate, said) in panics.into_iter().zip(["no luck", "a text"]) {
        let (answered, body) = answered(&review(|_| {}), mutate);
        assert_eq!(answered.outcome, Outcome::Failed);
        assert_eq!(answered.reason.as_deref(), Some(said));
        assert_eq!(body["response"]["allowed"], true);
        assert_eq!(body["response"].get("patch"), None);
        let warning = body["response"]["warnings"][0].as_str().unwrap();
        assert!(warning.contains("created without it"), "{warning}");
    }
}

#[test]
fn v1beta1_is_answered_in_kind() {
    let body = review(|review| review["apiVersion"] = json!("admission.k8s.io/v1beta1"));
    let (answered, body) = answered(&body, &patched);
    assert_eq!(answered.outcome, Outcome::Patched);
    assert_eq!(body["apiVersion"], "admission.k8s.io/v1beta1");
}

#[test]
fn a_dry_run_is_answered_like_any_other() {
    let dry = review(|review| review["request"]["dryRun"] = json!(true));
    assert_eq!(
        answered(&dry, &patched),
        answered(&review(|_| {}), &patched)
    );
}

#[test]
fn what_is_no_creation_of_a_pod_passes_with_a_warning() {
    let never = |_: &Value| -> Mutation { panic!("called") };
    let others: [fn(&mut Value); 4] = [
        |r| r["request"]["operation"] = json!("UPDATE"),
        |r| {
            r["request"]["operation"] = json!("DELETE");
            r["request"]["object"] = Value::Null;
        },
        |r| r["request"]["subResource"] = json!("ephemeralcontainers"),
        |r| r["request"]["kind"] = json!({"group": "apps", "version": "v1", "kind": "Deployment"}),
    ];
    for other in others {
        let (answered, body) = answered(&review(other), &never);
        assert_eq!(answered.outcome, Outcome::Unchanged);
        assert_eq!(body["response"]["allowed"], true);
        assert_eq!(body["response"]["warnings"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn what_is_no_review_says_what_it_lacks() {
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    let table: Vec<(Vec<u8>, &str)> = vec![
        (b"".to_vec(), "EOF"),
        (b"{".to_vec(), "EOF"),
        (b"[]".to_vec(), "AdmissionReview"),
        (b"\xff\xfe".to_vec(), "line 1 column 1"),
        (b"{}".to_vec(), "apiVersion"),
        (deep.into_bytes(), "not an AdmissionReview"),
        (review(|r| r["kind"] = json!("Pod")), "\"Pod\""),
        (
            review(|r| r["apiVersion"] = json!("admission.k8s.io/v2")),
            "admissionReviewVersions",
        ),
        (review(|r| r["request"] = Value::Null), "no request"),
        (review(|r| r["request"]["uid"] = json!("")), "no uid"),
        (review(|r| r["request"]["uid"] = json!(7)), "invalid type"),
        (
            review(|r| r["request"]["object"] = Value::Null),
            "no object",
        ),
    ];
    for (body, named) in table {
        let error = answer(&body, &patched).unwrap_err().to_string();
        assert!(error.contains(named), "{error:?} without {named:?}");
    }
}

#[test]
fn a_review_cut_short_anywhere_is_malformed() {
    let body = review(|_| {});
    for end in 0..body.len() {
        assert!(answer(&body[..end], &patched).is_err(), "{end}");
    }
}
