//! A thread that owns one database connection and runs closures on it in order.

use super::StoreError;
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

type Work = Box<dyn FnOnce(&mut Connection) + Send>;

/// How many closures may wait; more callers wait for room.
const WAITING_MAX: usize = 256;

/// The way to the thread. The thread ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(super) struct Lane {
    sender: mpsc::Sender<Work>,
}

impl Lane {
    pub(super) fn start(name: &str, mut connection: Connection) -> Self {
        let (sender, mut receiver) = mpsc::channel::<Work>(WAITING_MAX);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                while let Some(work) = receiver.blocking_recv() {
                    work(&mut connection);
                }
            })
            .expect("a thread can be started");
        Self { sender }
    }

    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (answer, result) = oneshot::channel();
        let work = Box::new(move |connection: &mut Connection| {
            // The caller may have gone away; the change counts all the same.
            let _ = answer.send(work(connection));
        });
        self.sender.send(work).await.map_err(|_| StoreError::Closed)?;
        result.await.map_err(|_| StoreError::Closed)?
    }
}
