use super::*;

/// A warden of the test's own: the far end of a real connection.
fn connected() -> (WardenClient, mpsc::UnboundedReceiver<Notice>, OwnedFd) {
    let (near, far) = wire::pair().unwrap();
    let (client, notices) = WardenClient::start(Some(near), "/nonexistent/socket".into());
    (client, notices, far)
}

fn next_call(far: &OwnedFd) -> RequestId {
    let (call, _) = wire::receive::<Call>(far).unwrap();
    call.id
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_reach_their_calls_in_any_order() {
    let (client, mut notices, far) = connected();
    assert!(matches!(notices.recv().await, Some(Notice::Connected)));
    let far_side = std::thread::spawn(move || {
        let (first, second) = (next_call(&far), next_call(&far));
        for id in [second, first] {
            let reply = Message::Reply { id, result: Ok(Answer::Record(vec![id.0 as u8])) };
            wire::send(&far, &reply, &[]).unwrap();
        }
        (first, second)
    });
    let one = client.call(Request::Sessions, &[]);
    let two = client.call(Request::Sessions, &[]);
    let (one, two) = tokio::join!(one, two);
    let (first, second) = far_side.join().unwrap();
    let bytes = |reply: Reply| match reply.unwrap().0 {
        Answer::Record(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    let mut got = [bytes(one), bytes(two)];
    got.sort();
    let mut sent = [vec![first.0 as u8], vec![second.0 as u8]];
    sent.sort();
    assert_eq!(got, sent);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_warden_fails_what_waits() {
    let (client, mut notices, far) = connected();
    assert!(matches!(notices.recv().await, Some(Notice::Connected)));
    let far_side = std::thread::spawn(move || {
        let id = next_call(&far);
        wire::send(&far, &Message::Reply { id, result: Ok(Answer::Done) }, &[]).unwrap();
        next_call(&far);
    });
    let version = hangar_runtime::ids::VersionNumber::new(1).unwrap();
    let environment =
        hangar_runtime::ids::EnvironmentId::parse(&format!("henv_{}", "0".repeat(32))).unwrap();
    let job = client.job(Job::RemoveVersion { environment, version }, vec![], &[]);
    let call = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        client.call(Request::Sessions, &[]).await
    };
    let (job, call) = tokio::join!(job, call);
    assert!(matches!(job, Err(WardenError::Gone)), "{job:?}");
    assert!(matches!(call, Err(WardenError::Gone)), "{call:?}");
    assert!(matches!(notices.recv().await, Some(Notice::Gone)));
    far_side.join().unwrap();
}
